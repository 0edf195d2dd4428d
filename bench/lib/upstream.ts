/**
 * The upstream of every measurement: answers at once with fixed bytes, or streams a token every so often. Streams
 * are spread over slots, so that they do not all speak in the same instant.
 */
const CHUNKS = Number(process.env.CHUNKS ?? 100);
const SLOTS = 5;
/** Time between two tokens, and for requests with `"seed":1`; those with `"seed":2` end after two tokens. */
const INTERVAL_MS = 100;
const FAST_INTERVAL_MS = 20;
const SHORT_CHUNKS = 2;
const EMBEDDINGS = 32;
const DIMENSIONS = 1536;

interface DirectController {
  write(bytes: Uint8Array): unknown;
  flush(): unknown;
  end(): unknown;
}
interface Stream {
  controller: DirectController;
  sent: number;
  finish(): void;
}

const encode = (text: string) => new TextEncoder().encode(text);
const event = (data: unknown) =>
  encode(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_763_000_000, model: "bench" };
/** Stands for a token's text: events of real servers differ in that, too, and in nothing else. */
const SENT_AT = "t0000000000000000";
const token = Buffer.from(
  event({
    ...head,
    choices: [{ index: 0, delta: { content: SENT_AT }, logprobs: null, finish_reason: null }],
  }),
);
const sentAtIndex = token.indexOf(SENT_AT) + 1;

/** A token whose text says when it was sent, in microseconds; its bytes are reused for the next. */
function tokenNow(): Uint8Array {
  const sentUs = Math.floor((performance.timeOrigin + performance.now()) * 1_000);
  token.write(String(sentUs), sentAtIndex, "latin1");
  return token;
}
const opening = event({
  ...head,
  choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }],
});
const usage = { prompt_tokens: 9, completion_tokens: CHUNKS, total_tokens: CHUNKS + 9 };
const closing = Buffer.concat([
  event({ ...head, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }),
  event({ ...head, choices: [], usage }),
  event("[DONE]"),
]);

const completion = encode(
  JSON.stringify({
    ...head,
    object: "chat.completion",
    choices: [
      { index: 0, message: { role: "assistant", content: "word ".repeat(120) }, finish_reason: "stop" },
    ],
    usage,
  }),
);

/** Numbers with the digits that servers really write; the same ones each time. */
function embeddings(): Uint8Array {
  let seed = 1;
  const next = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647 - 0.5;
  };
  const data = Array.from({ length: EMBEDDINGS }, (_, index) => ({
    object: "embedding",
    index,
    embedding: Array.from({ length: DIMENSIONS }, () => Number((next() / 16).toPrecision(9))),
  }));
  return encode(
    JSON.stringify({
      object: "list",
      data,
      model: "bench",
      usage: { prompt_tokens: 256, total_tokens: 256 },
    }),
  );
}
const vectors = embeddings();

/** Lets its streams speak in turn, each once in an interval. */
class Wheel {
  readonly #slots = Array.from({ length: SLOTS }, () => new Set<Stream>());
  #slot = 0;
  #opened = 0;

  constructor(
    intervalMs: number,
    readonly chunks = CHUNKS,
  ) {
    setInterval(() => this.#turn(), intervalMs / SLOTS);
  }

  add(stream: Stream): void {
    this.#slots[this.#opened++ % SLOTS]!.add(stream);
  }

  #turn(): void {
    this.#slot = (this.#slot + 1) % SLOTS;
    const streams = this.#slots[this.#slot]!;
    for (const stream of streams) {
      if (stream.sent++ < this.chunks) {
        stream.controller.write(tokenNow());
        stream.controller.flush();
      } else {
        streams.delete(stream);
        stream.controller.write(closing);
        stream.controller.end();
        stream.finish();
      }
    }
  }
}
const steady = new Wheel(INTERVAL_MS);
const fast = new Wheel(FAST_INTERVAL_MS);
const short = new Wheel(FAST_INTERVAL_MS, SHORT_CHUNKS);

function stream(wheel: Wheel): Response {
  const source = {
    type: "direct",
    pull: (controller: DirectController) =>
      new Promise<void>((finish) => {
        controller.write(opening);
        controller.flush();
        wheel.add({ controller, sent: 0, finish });
      }),
  };
  return new Response(new ReadableStream(source as unknown as UnderlyingSource), {
    headers: { "content-type": "text/event-stream" },
  });
}

const json = (body: Uint8Array) =>
  new Response(body as Uint8Array<ArrayBuffer>, { headers: { "content-type": "application/json" } });

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    if (request.url.endsWith("/v1/models")) return Response.json({ object: "list", data: [{ id: "bench" }] });
    const text = await request.text();
    if (request.url.endsWith("/v1/embeddings")) return json(vectors);
    if (!text.includes('"stream":true')) return json(completion);
    if (text.includes('"seed":2')) return stream(short);
    return stream(text.includes('"seed":1') ? fast : steady);
  },
});
console.log(server.port);
