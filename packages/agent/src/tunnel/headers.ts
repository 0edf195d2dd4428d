/** Which headers cross the tunnel. */

/** Meaningful for one connection only (RFC 9110 section 7.6.1), or set anew by the side that sends. */
const CONNECTION_HEADERS = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "host",
  "expect",
]);

export function tunnelledHeaders(
  headers: Iterable<[string, string]>,
  drop: string[] = [],
): [string, string][] {
  const kept: [string, string][] = [];
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    if (!CONNECTION_HEADERS.has(lower) && !drop.includes(lower)) kept.push([lower, value]);
  }
  return kept;
}
