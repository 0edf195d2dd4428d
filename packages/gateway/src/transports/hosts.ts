import { ClientAddress, type HttpRequest, ipFamily } from "@model-gateway/wire/http";
import type { CallSource } from "../kernel/context.ts";
import { ServiceError } from "../kernel/errors.ts";

const USER_AGENT_LENGTH_MAX = 256;
const FORWARDED_HEADERS = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"] as const;

/** The name alone of `[::1]:8080`, `localhost:8080` or `Gateway.example.`. */
const nameOf = (host: string): string =>
  host
    .trim()
    .toLowerCase()
    .replace(/:\d*$/, "")
    // Only IPv6 addresses may be in brackets.
    .replace(/^\[([\da-f.]*:[\da-f:.]*)\]$/, "$1")
    .replace(/\.$/, "");

const isLoopbackAddress = (address: string): boolean =>
  address === "::1" || (ipFamily(address) === 4 && address.startsWith("127."));

/** Browsers resolve `*.localhost` to this machine. */
export const isLoopbackName = (host: string): boolean => {
  const name = nameOf(host);
  return name === "localhost" || name.endsWith(".localhost") || isLoopbackAddress(name);
};

/** Host names under which callers without credentials are answered, against DNS rebinding. All IP addresses are. */
export class Hosts {
  readonly #names: ReadonlySet<string>;

  constructor({ host, publicUrl }: { host: string; publicUrl: string | null }) {
    this.#names = new Set([nameOf(host), ...(publicUrl === null ? [] : [nameOf(new URL(publicUrl).host)])]);
  }

  refusal(request: Pick<HttpRequest, "header">): ServiceError | null {
    const host = request.header("host") ?? "";
    const name = nameOf(host);
    if (isLoopbackName(host) || ipFamily(name) !== 0 || this.#names.has(name)) return null;
    return new ServiceError(
      "forbidden",
      `This service does not answer to the name ${name.slice(0, 200) || "(none)"} without credentials; ` +
        "if it is yours, set SERVICE_PUBLIC_URL to the URL under which people open the service",
    );
  }
}

export class RequestSource extends ClientAddress implements CallSource {
  get userAgent(): string | null {
    return this.request.header("user-agent")?.slice(0, USER_AGENT_LENGTH_MAX) ?? null;
  }

  /** A proxy on this machine that adds no headers can be told apart by HTTP/1.0, or the visitor's Origin. */
  get isLocal(): boolean {
    const { request } = this;
    const origin = request.header("origin");
    return (
      !request.isHttp10 &&
      (origin === null || isLoopbackName(URL.parse(origin)?.host ?? "")) &&
      isLoopbackAddress(request.remoteAddress.replace(/^::ffff:/, "")) &&
      isLoopbackName(request.header("host") ?? "") &&
      FORWARDED_HEADERS.every((name) => request.header(name) === null)
    );
  }
}
