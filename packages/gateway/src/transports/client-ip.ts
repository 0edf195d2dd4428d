import type { Server } from "bun";

/**
 * The caller's address. X-Forwarded-For counts only when the connection comes from a trusted proxy, and then
 * from the right: the first address that is not itself a trusted proxy.
 */
export function clientIp(
  request: Request,
  server: Server<unknown>,
  trustedProxies: ReadonlySet<string>,
): string {
  const peer = (server.requestIP(request)?.address ?? "unknown").replace(/^::ffff:/, "");
  if (trustedProxies.size === 0 || !trustedProxies.has(peer)) return peer;
  const hops = (request.headers.get("x-forwarded-for") ?? "")
    .split(",")
    .map((hop) => hop.trim())
    .filter(Boolean);
  return hops.reverse().find((hop) => !trustedProxies.has(hop)) ?? peer;
}

/** Where a request comes from; few ask, and the answer is not free. */
export class RequestSource {
  constructor(
    readonly request: Request,
    readonly server: Server<unknown>,
    readonly trustedProxies: ReadonlySet<string>,
  ) {}

  get ip(): string {
    return clientIp(this.request, this.server, this.trustedProxies);
  }
}
