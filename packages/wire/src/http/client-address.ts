import type { Networks } from "./networks.ts";
import type { HttpRequest } from "./request.ts";

/**
 * The address of a request's client. X-Forwarded-For is believed only when the connection comes from a trusted proxy,
 * and then read from the right: the first address that is not a trusted proxy. Computed on demand, since few ask.
 */
export class ClientAddress {
  constructor(
    readonly request: Pick<HttpRequest, "header" | "isHttp10"> & { readonly remoteAddress: string },
    readonly trustedProxies: Networks,
  ) {}

  get ip(): string {
    const { request, trustedProxies } = this;
    const peer = request.remoteAddress.replace(/^::ffff:/, "");
    if (!trustedProxies.has(peer)) return peer;
    const hops = (request.header("x-forwarded-for") ?? "")
      .split(",")
      .map((hop) => hop.trim())
      .filter(Boolean);
    return hops.reverse().find((hop) => !trustedProxies.has(hop)) ?? peer;
  }
}
