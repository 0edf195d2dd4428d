import { type Backend, type BackendConfig, BackendError, type ModelCall } from "../contract.ts";

const ERROR_BODY_CHARS_MAX = 4_096;
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EHOSTUNREACH", "ENETUNREACH", "ConnectionRefused"]);
/** Answers of a server that is alive but lists no models. */
const NO_LISTING = new Set([404, 405, 501]);

export type Fetch = (url: string, init: BunFetchRequestInit) => Promise<Response>;

/** A chat-compatible HTTP server at `config.url`, asked through whatever carries the request there. */
export function createChatHttp(config: BackendConfig, { fetch }: { fetch: Fetch }): Backend {
  const headers: Record<string, string> = config.apiKey ? { authorization: `Bearer ${config.apiKey}` } : {};

  async function ask(path: string, init: BunFetchRequestInit & { signal: AbortSignal }): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(`${config.url}${path}`, { ...init, redirect: "manual", timeout: false });
    } catch (error) {
      throw toBackendError(error, init.signal);
    }
    if (response.ok) return response;
    const detail = (await response.text().catch(() => "")).slice(0, ERROR_BODY_CHARS_MAX);
    throw new BackendError("upstream", detail || response.statusText, response.status);
  }

  const post = (path: string, { body, signal }: ModelCall) =>
    ask(path, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: body.bytes(),
      signal,
    });

  return {
    config,
    chat: (call) => post("/v1/chat/completions", call),
    embed: (call) => post("/v1/embeddings", call),
    async probe(signal) {
      try {
        const response = await ask("/v1/models", { method: "GET", headers, signal });
        const { data } = (await response.json()) as { data?: { id?: unknown }[] };
        const ids = (data ?? []).flatMap(({ id }) => (typeof id === "string" ? { id } : []));
        return { state: "Healthy", models: ids };
      } catch (error) {
        const answers = error instanceof BackendError && NO_LISTING.has(error.status ?? 0);
        if (answers) return { state: "Healthy", models: [] };
        return { state: "Unhealthy", models: [], detail: (error as Error).message };
      }
    },
    close() {},
  };
}

/** An abort stays the abort that it is; anything else says whether the upstream can have seen the request. */
function toBackendError(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof BackendError) return error;
  const { code = "", message = "" } = error as { code?: string; message?: string };
  return new BackendError(
    NOT_SENT.has(code) ? "connect" : "transport",
    message.slice(0, ERROR_BODY_CHARS_MAX),
  );
}
