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

  #allowed(request: Request): string | null {
    const origin = request.headers.get("origin");
    return origin && this.#origins.has(origin) ? origin : null;
  }

  preflight(request: Request): Response | null {
    if (request.method !== "OPTIONS") return null;
    const origin = this.#allowed(request);
    if (!origin) return new Response(null, { status: 403 });
    return new Response(null, {
      status: 204,
      headers: {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": ALLOWED_METHODS,
        // Client libraries send headers of their own; an origin that is trusted may send what it likes.
        "access-control-allow-headers":
          request.headers.get("access-control-request-headers") ?? "authorization, content-type",
        "access-control-max-age": String(PREFLIGHT_AGE_SECONDS),
        vary: "origin",
      },
    });
  }

  decorate(request: Request, response: Response | undefined): Response | undefined {
    const origin = this.#allowed(request);
    if (!response || !origin) return response;
    response.headers.set("access-control-allow-origin", origin);
    response.headers.set("access-control-expose-headers", "x-request-id, retry-after");
    response.headers.append("vary", "origin");
    return response;
  }
}
