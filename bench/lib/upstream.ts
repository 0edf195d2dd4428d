/**
 * The upstream of every measurement: answers at once with fixed bytes, or streams a token every so often. Streams
 * are spread over slots, so that they do not all speak in the same instant.
 */
const CHUNKS = Number(process.env.CHUNKS ?? 100);
/** Listed beside the one that is asked. */
const MODELS = Number(process.env.MODELS ?? 0);
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
  form: Form;
  sent: number;
  finish(): void;
}

/** The answers of one API. */
interface Form {
  opening: Uint8Array;
  /** A token's event, and where in it the time stands. */
  token: Buffer;
  sentAtIndex: number;
  closing: Uint8Array;
  whole: Uint8Array;
}

const encode = (text: string) => new TextEncoder().encode(text);
const event = (data: object) =>
  `${"type" in data ? `event: ${data.type}\n` : ""}data: ${JSON.stringify(data)}\n\n`;
const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_763_000_000, model: "bench" };
/** Stands for a token's text: events of real servers differ in that, too, and in nothing else. */
const SENT_AT = "t0000000000000000";
const WORDS = "word ".repeat(120);

function formOf(opening: object[], token: object, closing: object[], whole: object, done = ""): Form {
  const bytes = Buffer.from(event(token));
  return {
    opening: encode(opening.map(event).join("")),
    token: bytes,
    sentAtIndex: bytes.indexOf(SENT_AT) + 1,
    closing: encode(closing.map(event).join("") + done),
    whole: encode(JSON.stringify(whole)),
  };
}

/** A token whose text says when it was sent, in microseconds; its bytes are reused for the next. */
function tokenNow({ token, sentAtIndex }: Form): Uint8Array {
  const sentUs = Math.floor((performance.timeOrigin + performance.now()) * 1_000);
  token.write(String(sentUs), sentAtIndex, "latin1");
  return token;
}

const usage = { prompt_tokens: 9, completion_tokens: CHUNKS, total_tokens: CHUNKS + 9 };
const message = { role: "assistant", content: WORDS };
const chatForm = formOf(
  [{ ...head, choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }] }],
  { ...head, choices: [{ index: 0, delta: { content: SENT_AT }, logprobs: null, finish_reason: null }] },
  [
    { ...head, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
    { ...head, choices: [], usage },
  ],
  { ...head, object: "chat.completion", choices: [{ index: 0, message, finish_reason: "stop" }], usage },
  "data: [DONE]\n\n",
);

const counts = { input_tokens: 9, output_tokens: CHUNKS };
const claude = { id: "msg_1", type: "message", role: "assistant", model: "native", stop_sequence: null };
const messagesForm = formOf(
  [
    { type: "message_start", message: { ...claude, content: [], stop_reason: null, usage: counts } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  ],
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: SENT_AT } },
  [
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage: counts },
    { type: "message_stop" },
  ],
  { ...claude, content: [{ type: "text", text: WORDS }], stop_reason: "end_turn", usage: counts },
);

const place = { item_id: "msg_1", output_index: 0, content_index: 0 };
const item = { id: "msg_1", type: "message", role: "assistant", status: "completed" };
const said = { ...item, content: [{ type: "output_text", text: WORDS, annotations: [] }] };
const response = { id: "resp_1", object: "response", created_at: 1, model: "native", status: "in_progress" };
const responded = { ...response, status: "completed", output: [said], usage: { ...counts, total_tokens: 9 } };
const responsesForm = formOf(
  [
    { type: "response.created", sequence_number: 0, response: { ...response, output: [] } },
    { type: "response.output_item.added", output_index: 0, item: { ...item, content: [] } },
  ],
  { type: "response.output_text.delta", sequence_number: 2, ...place, delta: SENT_AT, logprobs: [] },
  [
    { type: "response.output_item.done", output_index: 0, item: said },
    { type: "response.completed", sequence_number: 3, response: responded },
  ],
  responded,
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
const others = Array.from({ length: MODELS }, (_, i) => ({ id: `model-${i}` }));
const listing = encode(JSON.stringify({ object: "list", data: [{ id: "bench" }, ...others] }));

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
        stream.controller.write(tokenNow(stream.form));
        stream.controller.flush();
      } else {
        streams.delete(stream);
        stream.controller.write(stream.form.closing);
        stream.controller.end();
        stream.finish();
      }
    }
  }
}
const steady = new Wheel(INTERVAL_MS);
const fast = new Wheel(FAST_INTERVAL_MS);
const short = new Wheel(FAST_INTERVAL_MS, SHORT_CHUNKS);

function stream(form: Form, wheel: Wheel): Response {
  const source = {
    type: "direct",
    pull: (controller: DirectController) =>
      new Promise<void>((finish) => {
        controller.write(form.opening);
        controller.flush();
        wheel.add({ controller, form, sent: 0, finish });
      }),
  };
  return new Response(new ReadableStream(source as unknown as UnderlyingSource), {
    headers: { "content-type": "text/event-stream" },
  });
}

const geminiAnswer = encode(
  JSON.stringify({
    candidates: [{ index: 0, content: { role: "model", parts: [{ text: WORDS }] }, finishReason: "STOP" }],
    usageMetadata: { promptTokenCount: 9, candidatesTokenCount: CHUNKS, totalTokenCount: CHUNKS + 9 },
    modelVersion: "bench",
  }),
);

const json = (body: Uint8Array) =>
  new Response(body as Uint8Array<ArrayBuffer>, { headers: { "content-type": "application/json" } });

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    const { pathname: path, search } = new URL(request.url);
    // The backend with dialects of its own asks for a page of a listing, and serves what it was registered with.
    if (path === "/v1/models" && search) return new Response("", { status: 404 });
    if (path === "/v1/models") return json(listing);
    if (path === "/v1beta/models") return Response.json({ models: [{ name: "models/bench" }] });
    const text = await request.text();
    if (path === "/v1/embeddings") return json(vectors);
    if (path.endsWith(":generateContent")) return json(geminiAnswer);
    const form = path === "/v1/messages" ? messagesForm : path === "/v1/responses" ? responsesForm : chatForm;
    if (!text.includes('"stream":true')) return json(form.whole);
    if (text.includes('"seed":2')) return stream(form, short);
    return stream(form, text.includes('"seed":1') ? fast : steady);
  },
});
console.log(server.port);
