import type { HttpRequest } from "@model-gateway/wire/http";
import { Reply, StreamedReply } from "@model-gateway/wire/http";
import { ServiceError } from "../kernel/errors.ts";

const ALLOWED_METHODS = "GET, POST, DELETE";
const PREFLIGHT_AGE_SECONDS = 600;

export class Cors {
  #origins: ReadonlySet<string>;
  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  get enabled(): boolean {
    return this.#origins.size > 0;
  }

  #allowed(request: HttpRequest): string | null {
    const origin = request.header("origin");
    return origin && this.#origins.has(origin) ? origin : null;
  }

  /** Refuses requests of other sites' pages without credentials: they can do harm even if pages cannot read the answers. */
  refusal(request: HttpRequest): ServiceError | null {
    const origin = request.header("origin");
    if (!origin || this.#origins.has(origin)) return null;
    const site = request.header("sec-fetch-site");
    const isOwn =
      site === null ? isSameHost(origin, request.header("host")) : site === "same-origin" || site === "none";
    if (isOwn) return null;
    return new ServiceError(
      "forbidden",
      `Pages of ${origin.slice(0, 200)} may not call this service; SERVICE_CORS_ORIGINS lists those that may`,
    );
  }

  preflight(request: HttpRequest): Reply | null {
    if (request.method !== "OPTIONS") return null;
    const origin = this.#allowed(request);
    if (!origin) return new Reply({ status: 403, contentType: "", requestId: "" }, "");
    const headers = {
      "access-control-allow-origin": origin,
      "access-control-allow-methods": ALLOWED_METHODS,
      // Client libraries send their own headers, and listed origins are trusted.
      "access-control-allow-headers":
        request.header("access-control-request-headers") ?? "authorization, content-type",
      "access-control-max-age": String(PREFLIGHT_AGE_SECONDS),
      vary: "origin",
    };
    return new Reply({ status: 204, contentType: "", requestId: "", headers }, "");
  }

  decorate<Answer>(request: HttpRequest, answer: Answer): Answer | Reply | StreamedReply {
    const origin = this.#allowed(request);
    if (!origin || !(answer instanceof Reply || answer instanceof StreamedReply)) return answer;
    const { headers } = answer.head;
    const head = {
      ...answer.head,
      headers: {
        ...headers,
        "access-control-allow-origin": origin,
        "access-control-expose-headers": "x-request-id, retry-after, x-should-retry",
        vary: headers?.vary ? `${headers.vary}, origin` : "origin",
      },
    };
    return answer instanceof Reply
      ? new Reply(head, answer.body, answer.release)
      : new StreamedReply(head, answer.source);
  }
}

/** Compares name and port only: behind a proxy the scheme may differ. */
function isSameHost(origin: string, host: string | null): boolean {
  return URL.canParse(origin) && new URL(origin).host === host?.toLowerCase();
}
