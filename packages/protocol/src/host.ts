/** Checks the host names that nodes report and the gateway dials: they must be nothing but a host. */

/** The host as it is written in a URL. */
export const urlHost = (host: string): string =>
  host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;

/** Where clouds serve instance metadata, with credentials in it; no engine ever listens there. */
const METADATA_NAMES =
  /^(?:.*\.)?(?:metadata|instance-data)(?:\.(?:google\.internal|goog|internal|ec2\.internal|azure\.internal|local))?$/;
/** AWS over IPv6, Alibaba Cloud, Oracle Cloud, Azure's wire server. */
const METADATA_ADDRESSES = new Set(["[fd00:ec2::254]", "100.100.100.200", "192.0.0.192", "168.63.129.16"]);

/** An IPv4 address inside an IPv6 one (mapped, compatible, NAT64, 6to4), as four numbers with dots. */
function embeddedIpv4(hostname: string): string | null {
  const found =
    /^\[::(?:ffff:(?:0:)?)?([0-9a-f]{1,4}):([0-9a-f]{1,4})\]$/.exec(hostname) ??
    /^\[64:ff9b:(?:1:)?:([0-9a-f]{1,4}):([0-9a-f]{1,4})\]$/.exec(hostname) ??
    /^\[2002:([0-9a-f]{1,4}):([0-9a-f]{1,4}):/.exec(hostname);
  if (!found) return null;
  const [high, low] = [Number.parseInt(found[1]!, 16), Number.parseInt(found[2]!, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}

/** 169.254.0.0/16 and fe80::/10: clouds serve instance metadata there, and no engine ever does. */
const LINK_LOCAL = /^169\.254\.|^\[fe[89ab]/;

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
  const name = url.hostname.replace(/\.$/, "");
  for (const address of [name, embeddedIpv4(name) ?? name]) {
    if (LINK_LOCAL.test(address)) return "link-local addresses are not dialled";
    if (METADATA_ADDRESSES.has(address) || METADATA_NAMES.test(address))
      return "addresses of cloud metadata are not dialled";
  }
  return null;
}

/** This machine's own loopback, as whoever dials the address means it. */
const LOOPBACK = /^127\.|^0\.0\.0\.0$|^\[::1?\]$|^(?:.*\.)?localhost$/;

export function isLoopback(host: string): boolean {
  const name = new URL(`http://${urlHost(host)}/`).hostname.replace(/\.$/, "");
  return LOOPBACK.test(name) || LOOPBACK.test(embeddedIpv4(name) ?? "");
}
