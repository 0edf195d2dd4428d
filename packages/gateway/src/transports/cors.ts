import type { HttpRequest } from "../kernel/http.ts";
import { Reply, StreamedReply } from "../kernel/reply.ts";

const ALLOWED_METHODS = "GET, POST, DELETE";
const PREFLIGHT_AGE_SECONDS = 600;

/** Cross-origin access for the listed origins only; none by default. */
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

  preflight(request: HttpRequest): Reply | null {
    if (request.method !== "OPTIONS") return null;
    const origin = this.#allowed(request);
    if (!origin) return new Reply({ status: 403, contentType: "", requestId: "" }, "");
    const headers = {
      "access-control-allow-origin": origin,
      "access-control-allow-methods": ALLOWED_METHODS,
      // Client libraries send headers of their own; an origin that is trusted may send what it likes.
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
        "access-control-expose-headers": "x-request-id, retry-after",
        vary: headers?.vary ? `${headers.vary}, origin` : "origin",
      },
    };
    return answer instanceof Reply ? new Reply(head, answer.body) : new StreamedReply(head, answer.source);
  }
}
