/**
 * A small engine that speaks chat-compatible HTTP, loads real files, guards itself with a key, and leaves a
 * grandchild in a session of its own, as multi-process engines do.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  args: process.argv.slice(2),
  options: {
    model: { type: "string" },
    alias: { type: "string" },
    host: { type: "string" },
    port: { type: "string" },
    "load-ms": { type: "string" },
    slots: { type: "string" },
    "crash-file": { type: "string" },
  },
});
const { model = "", alias = "", host, port } = values;
if (model && !existsSync(model)) {
  console.error(`no weights at ${model}`);
  process.exit(3);
}
const weights = model && statSync(model).isFile() ? readFileSync(model) : new Uint8Array(0);
// While this file exists the engine cannot start.
if (values["crash-file"] && existsSync(values["crash-file"])) {
  console.error("out of memory, as asked");
  process.exit(4);
}
const stray = Bun.spawn(["sleep", "3600"], { detached: true, stdin: "ignore", stdout: "ignore" });
const readyAtMs = Date.now() + Number(values["load-ms"] ?? "0");
const key = process.env.ENGINE_KEY ?? "";
const encoder = new TextEncoder();

/** Like an engine that batches: so many chats run at once, and the others wait in it. */
let slotsFree = Number(values.slots ?? "Infinity");
let open = 0;
const waiting: (() => void)[] = [];
async function takeSlot(): Promise<void> {
  if (slotsFree > 0) slotsFree--;
  else await new Promise<void>((resolve) => waiting.push(resolve));
}
function leaveSlot(): void {
  const next = waiting.shift();
  if (next) next();
  else slotsFree++;
}
/** Chats that say "hold" go on when they are let go. */
const { promise: letGo, resolve: release } = Promise.withResolvers<void>();

function tokens(text: string): ReadableStream<Uint8Array> {
  const words = `You said: ${text}`.split(" ");
  open++;
  return new ReadableStream({
    async start(controller) {
      await takeSlot();
      if (text === "hold") await letGo;
      for (const word of words) {
        const chunk = {
          object: "chat.completion.chunk",
          model: alias,
          choices: [{ delta: { content: `${word} ` } }],
        };
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(chunk)}\n\n`));
        await Bun.sleep(5);
      }
      controller.enqueue(encoder.encode("data: [DONE]\n\n"));
      controller.close();
      open--;
      leaveSlot();
    },
  });
}

Bun.serve({
  hostname: host,
  port: Number(port),
  idleTimeout: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/health")
      return Date.now() < readyAtMs
        ? new Response("loading", { status: 503 })
        : Response.json({ status: "ok" });
    if (key && request.headers.get("authorization") !== `Bearer ${key}`)
      return Response.json({ error: { message: "no key" } }, { status: 401 });
    if (pathname === "/v1/models") return Response.json({ object: "list", data: [{ id: alias }] });
    if (pathname === "/pids")
      return Response.json({
        pid: process.pid,
        stray: stray.pid,
        weights: weights.length,
        gpus: process.env.CUDA_VISIBLE_DEVICES ?? null,
        token: process.env.AGENT_TOKEN ?? null,
      });
    if (pathname === "/load") return Response.json({ open, waiting: waiting.length });
    if (pathname === "/release") {
      release();
      return new Response(null, { status: 204 });
    }
    if (pathname === "/crash") process.exit(7);
    if (pathname !== "/v1/chat/completions") return new Response("not found", { status: 404 });
    const body = (await request.json()) as { stream?: boolean; messages: { content: string }[] };
    const text = body.messages.at(-1)?.content ?? "";
    if (body.stream) return new Response(tokens(text), { headers: { "content-type": "text/event-stream" } });
    return Response.json({
      object: "chat.completion",
      model: alias,
      choices: [{ message: { role: "assistant", content: `You said: ${text}` }, finish_reason: "stop" }],
      usage: { prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 },
    });
  },
});
console.log(`serving ${alias}`);
