/** Which hosts a gateway dials. A node names its own, so the name must be nothing but a host. */

/** How the host stands in a URL. */
export const urlHost = (host: string): string =>
  host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;

/** 169.254.0.0/16 and fe80::/10: never another machine's service, but the metadata services of clouds. */
const LINK_LOCAL = /^169\.254\.|^\[fe[89ab]|^\[::(?:ffff:)?a9fe:/;

/** Null when the host can be dialled; otherwise what is wrong with it. */
export function hostProblem(host: string): string | null {
  let url: URL;
  try {
    url = new URL(`http://${urlHost(host)}/`);
  } catch {
    return "an IP address or a host name is expected";
  }
  // Whatever else the text holds (a port, a path, a user) shows in what the URL has beside its host.
  if (url.href !== `http://${url.hostname}/` || /[/?#@\\]/.test(host))
    return "an IP address or a host name alone is expected, without scheme, port or path";
  return LINK_LOCAL.test(url.hostname) ? "link-local addresses are not dialled" : null;
}
