import type { IncomingRequest } from "./http1/incoming.ts";

/**
 * Where a request comes from. X-Forwarded-For counts only when the connection comes from a trusted proxy, and
 * then from the right: the first address that is not itself a trusted proxy. Few ask, and the answer is not free.
 */
export class RequestSource {
  constructor(
    readonly request: IncomingRequest,
    readonly trustedProxies: ReadonlySet<string>,
  ) {}

  get ip(): string {
    const { request, trustedProxies } = this;
    const peer = request.remoteAddress.replace(/^::ffff:/, "");
    if (trustedProxies.size === 0 || !trustedProxies.has(peer)) return peer;
    const hops = (request.header("x-forwarded-for") ?? "")
      .split(",")
      .map((hop) => hop.trim())
      .filter(Boolean);
    return hops.reverse().find((hop) => !trustedProxies.has(hop)) ?? peer;
  }
}
