// Whether the service in this container is ready, by its own settings of port and TLS.
const secure = Boolean(process.env.SERVICE_TLS_CERT);
// Its certificate is for the name that people use, not for this address.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
const url = `${secure ? "https" : "http"}://127.0.0.1:${process.env.SERVICE_PORT || 8080}/readyz`;
fetch(url).then(
  ({ ok }) => process.exit(ok ? 0 : 1),
  () => process.exit(1),
);
