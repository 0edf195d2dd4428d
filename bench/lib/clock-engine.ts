/**
 * A chat engine whose model is a clock: continuous batching as on a GPU, where one step makes a token for every slot in
 * use and takes the same time however many there are. `bun clock-engine.ts <port> <model id>`; SLOTS and STEP_MS.
 */
const [port, model] = [Number(process.argv[2]), process.argv[3]!];
const slots = Number(process.env.SLOTS ?? 256);
const stepMs = Number(process.env.STEP_MS ?? 13.9);

interface Sequence {
  tokensLeft: number;
  token(isLast: boolean): void;
}
const running = new Set<Sequence>();
const waiting: Sequence[] = [];
let nextStepMs = 0;

function enter(sequence: Sequence): void {
  if (running.size >= slots) {
    waiting.push(sequence);
    return;
  }
  running.add(sequence);
  if (running.size === 1) {
    nextStepMs = performance.now() + stepMs;
    setTimeout(step, stepMs);
  }
}

function leave(sequence: Sequence): void {
  if (!running.delete(sequence)) return;
  const next = waiting.shift();
  if (next) enter(next);
}

function step(): void {
  for (const sequence of [...running]) {
    const isLast = --sequence.tokensLeft <= 0;
    if (isLast) leave(sequence);
    sequence.token(isLast);
  }
  if (running.size === 0) return;
  nextStepMs = Math.max(nextStepMs + stepMs, performance.now());
  setTimeout(step, nextStepMs - performance.now());
}

const encoder = new TextEncoder();
Bun.serve({
  port,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/health") return Response.json({ ok: true });
    if (pathname === "/v1/models") return Response.json({ object: "list", data: [{ id: model }] });
    const { max_tokens: tokens = 64 } = (await request.json()) as { max_tokens?: number };
    const base = {
      id: crypto.randomUUID(),
      object: "chat.completion.chunk",
      created: Math.floor(Date.now() / 1_000),
      model,
    };
    const event = (choice: object, rest: object = {}) =>
      `data: ${JSON.stringify({ ...base, choices: [{ index: 0, ...choice }], ...rest })}\n\n`;
    const piece = encoder.encode(event({ delta: { content: "x" }, finish_reason: null }));
    const usage = { prompt_tokens: 8, completion_tokens: tokens, total_tokens: tokens + 8 };
    const end = encoder.encode(`${event({ delta: {}, finish_reason: "length" }, { usage })}data: [DONE]\n\n`);
    let sequence: Sequence;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        sequence = {
          tokensLeft: tokens,
          token(isLast) {
            controller.enqueue(piece);
            if (!isLast) return;
            controller.enqueue(end);
            controller.close();
          },
        };
        enter(sequence);
      },
      cancel() {
        const at = waiting.indexOf(sequence);
        if (at !== -1) waiting.splice(at, 1);
        leave(sequence);
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  },
});
