export interface OllamaRequest {
  method: string;
  path: string;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies freely
  body: any;
  signal: AbortSignal;
}

export type OllamaHandler = (request: OllamaRequest) => Response | Promise<Response>;

export interface FakeOllama {
  url: string;
  requests: OllamaRequest[];
  /** Replaces what a path answers. */
  on(path: string, handler: OllamaHandler): void;
  stop(): Promise<void>;
}

/** Pieces of bytes as one NDJSON answer; each is sent on its own. */
export const ndjson = (pieces: readonly (string | Uint8Array)[], { cut = false } = {}): Response => {
  const encoder = new TextEncoder();
  let next = 0;
  const body = new ReadableStream({
    async pull(controller) {
      const piece = pieces[next++];
      if (piece !== undefined) {
        controller.enqueue(typeof piece === "string" ? encoder.encode(piece) : piece);
        // The socket is flushed between pieces, so that they arrive as separate ones.
        await new Promise((resolve) => setImmediate(resolve));
      } else if (cut) controller.error();
      else controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
};

export const chatLine = (message: Record<string, unknown>, rest: Record<string, unknown> = {}): string =>
  `${JSON.stringify({
    model: "llama3.2:latest",
    created_at: "2026-11-15T12:00:00Z",
    message: { role: "assistant", content: "", ...message },
    done: false,
    ...rest,
  })}\n`;

export const doneLine = (rest: Record<string, unknown> = {}): string =>
  chatLine(
    {},
    {
      done: true,
      done_reason: "stop",
      total_duration: 1,
      prompt_eval_count: 9,
      eval_count: 2,
      eval_duration: 1,
      ...rest,
    },
  );

const TAGS = {
  models: [
    {
      name: "llama3.2:latest",
      model: "llama3.2:latest",
      size: 1,
      digest: "d1",
      capabilities: ["completion", "tools"],
      details: { family: "llama" },
    },
    { name: "nomic-embed-text:v1.5", model: "nomic-embed-text:v1.5", size: 1, capabilities: ["embedding"] },
  ],
};

const standard: Record<string, OllamaHandler> = {
  "/api/tags": () => Response.json(TAGS),
  "/api/version": () => Response.json({ version: "0.15.2" }),
  "/api/chat": ({ body }) => {
    const text: string = body.messages.at(-1)?.content ?? "";
    if (body.stream === false)
      return new Response(doneLine({ message: { role: "assistant", content: text } }));
    return ndjson([...(text.match(/\S+\s*/g) ?? []).map((content) => chatLine({ content })), doneLine()]);
  },
  "/api/embed": ({ body }) => {
    const inputs: string[] = Array.isArray(body.input) ? body.input : [body.input];
    return Response.json({
      model: body.model,
      embeddings: inputs.map((text) => [text.length, 0.5, -1]),
      prompt_eval_count: inputs.length * 2,
    });
  },
};

/** A server that speaks Ollama's native API and says each message back. */
export function startFakeOllama(): FakeOllama {
  const handlers = new Map(Object.entries(standard));
  const requests: OllamaRequest[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const { pathname: path } = new URL(request.url);
      const { method, headers, signal } = request;
      const body = method === "POST" ? await request.json() : undefined;
      const received = { method, path, headers, body, signal };
      requests.push(received);
      const handler = handlers.get(path);
      return handler ? handler(received) : new Response("404 page not found", { status: 404 });
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    requests,
    on: (path, handler) => handlers.set(path, handler),
    stop: () => server.stop(true),
  };
}
