import { type ChatIdentity, completion, endEvents, pieceEvent, type Usage } from "./chat-wire.ts";
import { type DemoReply, dimensionsOf, embed, isObject, replyTo, textOf, tokensOf } from "./reply.ts";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const SLOW_STEP_MS = 200;
/** Pieces that `demo-cut` sends before it breaks the connection. */
const CUT_AFTER_PIECES = 3;

/** Models by name; each but the first two has one fault that a client must live with. */
export const DEMO_MODELS = {
  demo: "answers with what was said",
  "demo-embed": "embeddings; texts with common words are close",
  "demo-slow": "a word every 200 ms",
  "demo-cut": "breaks the connection in the middle of a stream",
  "demo-429": "always asks to come back in 2 seconds",
  "demo-500": "always fails",
} as const;
/** Takes the spare server away, and brings it back. */
export const SWITCH_PATH = "/switch";

export interface DemoModelServer {
  /** Base URL to register as an `external` backend. */
  url: string;
  stop(): Promise<void>;
}

const refuse = (status: number, message: string, headers: Record<string, string> = {}): Response =>
  Response.json({ error: { message, type: "demo_error", code: String(status) } }, { status, headers });

function listModels(models: readonly string[]): Response {
  const data = models.map((id) => ({ id, object: "model", created: 0, owned_by: "demo" }));
  return Response.json({ object: "list", data });
}

function usageOf(body: Record<string, unknown>, { text, toolCall }: DemoReply): Usage {
  const messages = (Array.isArray(body.messages) ? body.messages : []).filter(isObject);
  const prompt_tokens = messages.reduce((sum, { content }) => sum + 4 + tokensOf(textOf(content)), 0);
  const completion_tokens = tokensOf(text + (toolCall?.arguments ?? ""));
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
}

/** The deltas of an answer: one per word, or the tool call in two pieces. */
function piecesOf({ text, toolCall }: DemoReply) {
  if (!toolCall) return (text.match(/\S+\s*/g) ?? [""]).map((content) => ({ content }));
  const { id, name, arguments: args } = toolCall;
  return [
    { tool_calls: [{ index: 0, id, type: "function" as const, function: { name, arguments: "" } }] },
    { tool_calls: [{ index: 0, function: { arguments: args } }] },
  ];
}

function streamReply(reply: DemoReply, model: string, identity: ChatIdentity, usage: Usage): Response {
  const encoder = new TextEncoder();
  const pieces = piecesOf(reply);
  let sent = 0;
  return new Response(
    new ReadableStream({
      async pull(controller) {
        // Between two words the first one is written to the network, as a model's would be.
        await Bun.sleep(model === "demo-slow" ? SLOW_STEP_MS : 0);
        // Without a reason the server breaks the connection and prints nothing.
        if (model === "demo-cut" && sent === CUT_AFTER_PIECES) return controller.error();
        const isFirst = sent === 0;
        const piece = pieces[sent++];
        const send = (text: string) => controller.enqueue(encoder.encode(text));
        if (piece) return send(pieceEvent(identity, isFirst ? { role: "assistant", ...piece } : piece));
        send(endEvents(identity, reply.toolCall ? "tool_calls" : "stop", usage));
        controller.close();
      },
    }),
    { headers: { "content-type": "text/event-stream; charset=utf-8" } },
  );
}

async function chat(body: Record<string, unknown>, model: string): Promise<Response> {
  const reply = replyTo(body);
  const usage = usageOf(body, reply);
  // A fixed id and time keep the answer the same byte for byte.
  const identity = { id: "chatcmpl-demo", model, createdSeconds: 0 };
  if (body.stream === true) return streamReply(reply, model, identity, usage);
  if (model === "demo-slow") await Bun.sleep(SLOW_STEP_MS * piecesOf(reply).length);
  const { text, toolCall } = reply;
  const call = toolCall && {
    id: toolCall.id,
    type: "function",
    function: { name: toolCall.name, arguments: toolCall.arguments },
  };
  return Response.json(
    completion(identity, {
      message: { role: "assistant", content: call ? null : text, ...(call && { tool_calls: [call] }) },
      finishReason: call ? "tool_calls" : "stop",
      usage,
    }),
  );
}

function embeddings(body: Record<string, unknown>, model: string): Response {
  const { input } = body;
  const texts: unknown[] = Array.isArray(input) ? input : [input];
  if (!texts.every((text) => typeof text === "string"))
    return refuse(400, "`input` must be a text or an array of texts");
  const dimensions = dimensionsOf(body.dimensions);
  const tokens = texts.reduce((sum, text) => sum + tokensOf(text), 0);
  return Response.json({
    object: "list",
    data: texts.map((text, index) => {
      const vector = embed(text, dimensions);
      // The form that most client libraries ask for: little-endian float32 bytes.
      const embedding =
        body.encoding_format === "base64"
          ? Buffer.from(Float32Array.from(vector).buffer).toString("base64")
          : vector;
      return { object: "embedding", index, embedding };
    }),
    model,
    usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens },
  });
}

async function answer(request: Request, models: readonly string[]): Promise<Response> {
  const { pathname } = new URL(request.url);
  if (request.method === "GET" && pathname === "/v1/models") return listModels(models);
  const isChat = pathname === "/v1/chat/completions";
  if (request.method !== "POST" || !(isChat || pathname === "/v1/embeddings"))
    return refuse(404, `The demo model server has no ${request.method} ${pathname}`);
  const body: unknown = await request.json().catch(() => null);
  if (!isObject(body)) return refuse(400, "The body must be a JSON object");
  const { model } = body;
  if (typeof model !== "string" || !models.includes(model))
    return refuse(404, `\`model\` must be one of ${models.join(", ")}`);
  if (model === "demo-429") return refuse(429, "demo-429 is always busy", { "retry-after": "2" });
  if (model === "demo-500") return refuse(500, "demo-500 always fails");
  return isChat ? chat(body, model) : embeddings(body, model);
}

/** A chat-compatible model server without a model: deterministic, for a first look and for tests. */
export function startDemoModelServer({
  port = 0,
  models = Object.keys(DEMO_MODELS),
  onSwitch,
}: {
  port?: number;
  models?: readonly string[];
  /** Says what it did. */
  onSwitch?(): Promise<string>;
} = {}): DemoModelServer {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port,
    idleTimeout: 0,
    maxRequestBodySize: BODY_BYTES_MAX,
    async fetch(request) {
      const isSwitch = request.method === "POST" && new URL(request.url).pathname === SWITCH_PATH;
      return isSwitch && onSwitch ? new Response(await onSwitch()) : answer(request, models);
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}
