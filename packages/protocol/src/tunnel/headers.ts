/** Which headers cross the tunnel. */

/** Hop-by-hop headers (RFC 9110 section 7.6.1), and those that each hop sets itself. */
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
