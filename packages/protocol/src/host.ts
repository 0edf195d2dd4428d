/** Checks the host names that nodes report and the gateway dials: they must be nothing but a host. */

/** The host as it is written in a URL. */
export const urlHost = (host: string): string =>
  host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;

/** 169.254.0.0/16 and fe80::/10: clouds serve instance metadata there, and no engine ever does. */
const LINK_LOCAL = /^169\.254\.|^\[fe[89ab]|^\[::(?:ffff:)?a9fe:/;

/** Null when the host can be dialled; otherwise what is wrong with it. */
export function hostProblem(host: string): string | null {
  let url: URL;
  try {
    url = new URL(`http://${urlHost(host)}/`);
  } catch {
    return "an IP address or a host name is expected";
  }
  // A port, path or user in the text shows up in the URL beside the host.
  if (url.href !== `http://${url.hostname}/` || /[/?#@\\]/.test(host))
    return "an IP address or a host name alone is expected, without scheme, port or path";
  return LINK_LOCAL.test(url.hostname) ? "link-local addresses are not dialled" : null;
}
