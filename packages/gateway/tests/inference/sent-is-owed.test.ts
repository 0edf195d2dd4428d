/**
 * What was sent is owed: a vendor that bills what nobody sees is paid, whatever it was asked for and however that ends.
 * Time stands still unless the vendor thinks, so both ends know to the millisecond how long it did.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { everywhere } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import {
  chunk,
  completion,
  DONE,
  type ReceivedRequest,
  type Reply,
  startUpstream,
  type UpstreamHandler,
  usageChunk,
} from "@model-gateway/testing/upstream.ts";
import { minimax, startMinimax } from "@model-gateway/testing/video.ts";
import { isWork, wave, worker } from "@model-gateway/testing/work.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import {
  bootSpending,
  DEAR,
  NEWER_DEAR,
  PARTED,
  type Spender,
  type SpendingBench,
} from "../support/spending.ts";

const TOKENS_PER_MS = 0.25;
const THOUGHT_MS = 1_000;
const PROMPT_TOKENS = 9;

let elapsedMs = 0;
const clock: Clock = { ...systemClock, elapsed: () => elapsedMs };

let bench: SpendingBench;
let who: Spender;
const voice = startRealtimeUpstream("openai", { answers: false });
const films = startMinimax();

type Json = Record<string, unknown>;
const event = (data: Json): string => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const data = (value: Json): string => `data: ${JSON.stringify(value)}\n\n`;

/** How a vendor's API says that an answer begins, a word, that there are no more, and what it came to. */
interface Wire {
  begins: string[];
  word(text: string): string;
  finishes: string;
  tells(output: number): string[];
}

const CHAT: Wire = {
  begins: [chunk({ delta: { role: "assistant", content: "" } })],
  word: (content) => chunk({ delta: { content } }),
  finishes: chunk({ finish_reason: "stop" }),
  tells: (output) => [usageChunk(chatUsage(output)), DONE],
};
const chatUsage = (output: number) => ({
  prompt_tokens: PROMPT_TOKENS,
  completion_tokens: output,
  total_tokens: PROMPT_TOKENS + output,
});
const COMPLETIONS: Wire = {
  begins: [],
  word: (text) => data({ choices: [{ index: 0, text, finish_reason: null }] }),
  finishes: data({ choices: [{ index: 0, text: "", finish_reason: "stop" }] }),
  tells: CHAT.tells,
};
const MESSAGES: Wire = {
  begins: [
    event({
      type: "message_start",
      message: {
        id: "m",
        type: "message",
        role: "assistant",
        model: "m",
        content: [],
        usage: { input_tokens: PROMPT_TOKENS, output_tokens: 1 },
      },
    }),
    event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
  ],
  word: (text) => event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } }),
  finishes: event({ type: "content_block_stop", index: 0 }),
  tells: (output_tokens) => [
    event({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens } }),
    event({ type: "message_stop" }),
  ],
};
const RESPONSES: Wire = {
  begins: [event({ type: "response.created", response: { id: "r", status: "in_progress", output: [] } })],
  word: (delta) =>
    event({ type: "response.output_text.delta", item_id: "i", output_index: 0, content_index: 0, delta }),
  finishes: event({ type: "response.output_text.done", item_id: "i", output_index: 0, content_index: 0 }),
  tells: (output_tokens) => [
    event({
      type: "response.completed",
      response: {
        id: "r",
        status: "completed",
        output: [],
        usage: {
          input_tokens: PROMPT_TOKENS,
          output_tokens,
          total_tokens: PROMPT_TOKENS + output_tokens,
        },
      },
    }),
  ],
};
const GEMINI: Wire = {
  begins: [],
  word: (text) => data({ candidates: [{ index: 0, content: { role: "model", parts: [{ text }] } }] }),
  finishes: data({ candidates: [{ index: 0, content: { role: "model", parts: [{ text: "" }] } }] }),
  tells: (thoughtsTokenCount) => [
    data({
      candidates: [{ index: 0, content: { role: "model", parts: [] }, finishReason: "STOP" }],
      usageMetadata: { promptTokenCount: PROMPT_TOKENS, candidatesTokenCount: 0, thoughtsTokenCount },
    }),
  ],
};
const wireOf = (path: string): Wire => {
  if (path.includes("/messages")) return MESSAGES;
  if (path.includes("/responses")) return RESPONSES;
  if (path.includes("GenerateContent") || path.includes("generateContent")) return GEMINI;
  return path.endsWith("/chat/completions") ? CHAT : COMPLETIONS;
};

/** An answer in the making: it thinks all the time, says a word now and then, and tells what it came to at the end. */
class Thinking {
  readonly #startedMs = elapsedMs;
  readonly #wire: Wire;

  constructor(
    readonly request: ReceivedRequest,
    readonly reply: Reply,
  ) {
    this.#wire = wireOf(request.path);
  }

  get billed(): number {
    return (elapsedMs - this.#startedMs) * TOKENS_PER_MS;
  }

  /** What happens after each thought, in order. */
  readonly steps: (() => unknown)[] = [
    async () => {
      this.reply.head(200, { "content-type": "text/event-stream" });
      await this.#write(this.#wire.begins);
    },
    () => this.#write([this.#wire.word("word0 ")]),
    () => this.#write([this.#wire.word("word1 ")]),
    () => this.#write([this.#wire.finishes]),
    async () => {
      await this.#write(this.#wire.tells(this.billed));
      await this.reply.end();
    },
  ];

  async run(from: number, to: number): Promise<void> {
    for (const step of this.steps.slice(from, to)) {
      elapsedMs += THOUGHT_MS;
      await step();
    }
  }

  async #write(events: string[]): Promise<void> {
    for (const each of events) if (this.request.closedAtMs === null) await this.reply.write(each);
  }
}

let begun: Thinking | null = null;
/** Ends the answer of work that was asked for. */
let goOn = Promise.withResolvers<void>();

const vendor: UpstreamHandler = async (request, reply) => {
  if (!isWork(request.path) && !request.path.endsWith("/embeddings")) {
    begun = new Thinking(request, reply);
    return;
  }
  await goOn.promise;
  if (isWork(request.path)) return worker(request, reply);
  const usage = { prompt_tokens: PROMPT_TOKENS, total_tokens: PROMPT_TOKENS };
  return reply.json({ object: "list", data: [{ index: 0, embedding: [1, 2] }], usage });
};
const natives = ["messages", "responses", "gemini"].map(
  (dialect) => [dialect, startUpstream({ models: [`${dialect}-${DEAR}`], handler: vendor })] as const,
);

const ollama = startUpstream({ handler: vendor });
ollama.listing((_, reply) => reply.json({ models: [{ name: `ollama-${DEAR}` }] }));

beforeAll(async () => {
  bench = await bootSpending({ overrides: { clock } });
  who = await bench.spender("leaver", { points: 1_000_000 });
  for (const [dialect, { url }] of natives)
    await bench.addBackend({ type: "external", url, name: dialect, dialects: [dialect] });
  await bench.addBackend({ type: "ollama", url: ollama.url, name: "ollama" });
  await bench.addBackend({
    type: "cloud-realtime",
    name: "voice",
    url: voice.url,
    models: [`voice-${DEAR}`],
  });
  await bench.addBackend({
    type: "cloud-video",
    name: "films",
    url: films.url,
    api_key: "k",
    models: ["film"],
  });
  await bench.rpc(
    "billing.video.pricing.set",
    { model: "film", mode: "per_call", base_price: 0.5 },
    ADMIN_TOKEN,
  );
  bench.upstream.answer(vendor);
  // Whole answers say how fast each model is, to the process that passes them on.
  for (const [path, body] of Object.values(VOICES))
    await everywhere(async () => (await whole(path, body)) !== null);
});
afterAll(async () => {
  await bench.stop();
  for (const each of [voice, ollama, ...natives.map(([, native]) => native)]) each.stop();
  films.stop();
});

const messages = [{ role: "user", content: "hi there" }];
const contents = [{ role: "user", parts: [{ text: "hi there" }] }];
/** Each chat API, in front of a chat upstream and, where there are such, of one that speaks it. */
const VOICES: Record<string, [path: string, body: Json]> = {
  chats: ["/v1/chat/completions", { messages }],
  "chats of the newer kind": ["/v1/chat/completions", { messages, model: NEWER_DEAR }],
  completions: ["/v1/completions", { prompt: "hi there" }],
  responses: ["/v1/responses", { input: "hi there" }],
  messages: ["/v1/messages", { messages, max_tokens: 20_000 }],
  gemini: [`/v1beta/models/${DEAR}:streamGenerateContent?alt=sse`, { contents }],
  ollama: ["/api/chat", { messages }],
  "native responses": ["/v1/responses", { input: "hi there", model: `responses-${DEAR}` }],
  "native messages": ["/v1/messages", { messages, max_tokens: 20_000, model: `messages-${DEAR}` }],
  "native gemini": [
    `/v1beta/models/gemini-${DEAR}:streamGenerateContent?alt=sse`,
    { contents, model: `models/gemini-${DEAR}` },
  ],
};

interface Asked {
  answer: Promise<Response>;
  leaving: AbortController;
  vendor: Thinking;
}

async function ask(path: string, body: Json, key?: string): Promise<Asked> {
  begun = null;
  const leaving = new AbortController();
  const answer = who.post(path, { model: DEAR, stream: true, ...body }, { signal: leaving.signal, key });
  let refusal: Response | null = null;
  answer.then(
    (response) => {
      if (!response.ok) refusal = response;
    },
    () => {},
  );
  await until("it has arrived, or was refused", () => begun !== null || refusal !== null);
  if (!begun) throw new Error(await refusal!.text());
  return { answer, leaving, vendor: begun };
}

async function whole(path: string, body: Json): Promise<Thinking> {
  const { answer, vendor } = await ask(path, body);
  await vendor.run(0, vendor.steps.length);
  const response = await answer;
  expect([path, response.status]).toEqual([path, 200]);
  await response.text();
  return vendor;
}

/** The client has got what the vendor has said so far. */
async function heard(answer: Promise<Response>, word: string): Promise<void> {
  let text = "";
  const reader = (await answer).body!.getReader();
  while (!text.includes(word)) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`the answer ended without ${word}: ${text}`);
    text += Buffer.from(value).toString();
  }
  reader.releaseLock();
}

type Ids = ReadonlySet<string>;
const rowIds = async (): Promise<Ids> => new Set((await who.rows()).map(({ id }) => id));
/** Durations are made up here, so that the newest row is not always the first one. */
async function newRow(before: Ids) {
  const fresh = async () => (await who.rows()).filter(({ id }) => !before.has(id));
  await until("it has its row", async () => (await fresh()).length > 0);
  const [row, ...more] = await fresh();
  expect(more).toEqual([]);
  return row;
}

/** The vendor's bill is on the books, and a token more where the count had to be rounded. */
async function paid(before: Ids, { billed }: Pick<Thinking, "billed">): Promise<void> {
  const row = await newRow(before);
  expect(row.prompt_tokens).toBeGreaterThanOrEqual(PROMPT_TOKENS);
  expect([billed, billed + 1]).toContain(row.completion_tokens);
}

const revoked = async () => {
  const { id, key } = await bench.rpc("keys.create", { name: "burnt" }, who.token);
  return { key, revoke: () => bench.rpc("keys.revoke", { key_id: id }, who.token) };
};

describe.each(Object.entries(VOICES))("%s", (_, [path, body]) => {
  test("whole", async () => {
    const before = await rowIds();
    await paid(before, await whole(path, body));
  });

  test.each([0, 1, 2, 3, 4])("left after %d events", async (events) => {
    const before = await rowIds();
    const { answer, leaving, vendor } = await ask(path, body);
    await vendor.run(0, events);
    if (events > 1) await heard(answer, events > 2 ? "word1" : "word0");
    elapsedMs += THOUGHT_MS;
    leaving.abort();
    // An answer that has finished is read on for its figures; any other is closed.
    if (events === 4) await vendor.steps.at(-1)!();
    await paid(before, vendor);
  });

  test.each([0, 2])("its key is revoked after %d events", async (events) => {
    const before = await rowIds();
    const { key, revoke } = await revoked();
    const { answer, vendor } = await ask(path, body, key);
    await vendor.run(0, events);
    if (events > 0) await heard(answer, "word0");
    elapsedMs += THOUGHT_MS;
    await revoke();
    await paid(before, vendor);
  });

  test.each([2, 3])("the upstream breaks off after %d events", async (events) => {
    const before = await rowIds();
    const { answer, vendor } = await ask(path, body);
    await vendor.run(0, events);
    await heard(answer, `word${events - 2}`);
    elapsedMs += THOUGHT_MS;
    vendor.reply.reset();
    await paid(before, vendor);
  });

  test("left before a whole answer comes", async () => {
    const before = await rowIds();
    const { leaving, vendor } = await ask(path.replace("streamGenerateContent?alt=sse", "generateContent"), {
      ...body,
      stream: false,
    });
    elapsedMs += 3 * THOUGHT_MS;
    leaving.abort();
    await paid(before, vendor);
  });
});

test.each([0, 2])("chat.send, stopped after %d events", async (events) => {
  const before = await rowIds();
  begun = null;
  const { stream_id } = await bench.rpc("chat.send", { model: DEAR, messages }, who.token);
  await until("it has arrived", () => begun !== null);
  const vendor = begun as unknown as Thinking;
  await vendor.run(0, events);
  elapsedMs += THOUGHT_MS;
  await bench.rpc("chat.stop", { stream_id }, who.token);
  await paid(before, vendor);
});

test("many short answers, which are slow because of their prompts, do not make a long one cheaper", async () => {
  for (let asked = 0; asked < 30; asked++) {
    const { answer, vendor } = await ask("/v1/chat/completions", { messages, max_tokens: 1, stream: false });
    elapsedMs += 5 * THOUGHT_MS;
    await vendor.reply.json(completion("a", { usage: chatUsage(1) }));
    await (await answer).text();
  }
  const before = await rowIds();
  const { leaving, vendor } = await ask("/v1/chat/completions", { messages });
  elapsedMs += 10 * THOUGHT_MS;
  leaving.abort();
  await paid(before, vendor);
});

test("each of several choices thinks, and says how fast one of them does", async () => {
  const left = async (n: number, more: Json = {}, billedTokens: number | null = null) => {
    const before = await rowIds();
    const { leaving, vendor } = await ask("/v1/chat/completions", { messages, n, ...more });
    elapsedMs += 3 * THOUGHT_MS;
    leaving.abort();
    await paid(before, { billed: billedTokens ?? n * vendor.billed });
  };
  await left(4);
  // Ollama's API has no `n`; a model that nobody has seen write is taken to write 100 tokens a second.
  await left(4, { model: `ollama-${DEAR}` }, (3 * THOUGHT_MS) / 10);
  // Held for, in case that the server knows the name, but not taken to be written.
  await left(1, { num_return_sequences: 4 });
  const { answer, vendor } = await ask("/v1/chat/completions", { messages, n: 4, stream: false });
  elapsedMs += 10 * THOUGHT_MS;
  await vendor.reply.json(completion("a", { usage: chatUsage(4 * vendor.billed) }));
  await (await answer).text();
  await left(1);
});

test("what nobody reported costs what it can have come to: an hour's cache, sound", async () => {
  const cached = [
    {
      role: "user",
      content: [{ type: "text", text: "hi", cache_control: { type: "ephemeral", ttl: "1h" } }],
    },
  ];
  for (const [usdOf, more] of [
    [(prompt: number, output: number) => (prompt * 10 + output * 30) / 1e6, { messages: cached }],
    [
      (prompt: number, output: number) => (prompt * 5 + output * 60) / 1e6,
      { messages, modalities: ["text", "audio"] },
    ],
  ] as const) {
    const before = await rowIds();
    const { leaving } = await ask("/v1/chat/completions", { model: PARTED, ...more });
    elapsedMs += THOUGHT_MS;
    leaving.abort();
    const { prompt_tokens, completion_tokens, cost } = await newRow(before);
    expect(completion_tokens).toBeGreaterThan(0);
    expect(cost).toBeCloseTo(usdOf(prompt_tokens, completion_tokens), 9);
  }
});

test("a stream that its payer can no longer cover is owed with what was thought", async () => {
  const poor = await bench.spender("poor", { points: 10, drained: true });
  begun = null;
  const asking = poor.chat({ stream: true });
  await until("it has arrived", () => begun !== null);
  const vendor = begun as unknown as Thinking;
  await vendor.run(0, 2);
  const held = Number((await asking).headers.get("x-service-max-tokens"));
  elapsedMs += 100 * THOUGHT_MS;
  // The upstream does not keep to the limit that it was sent.
  await vendor.reply.write(CHAT.word("word ".repeat(2 * held)));
  expect(await (await asking).text()).toContain('"length"');
  expect((await poor.rows())[0].completion_tokens).toBeGreaterThanOrEqual(held);
});

test("a film that the upstream fetches is owed as it was held: it may fill the context window", async () => {
  const before = await rowIds();
  const film = { type: "video_url", video_url: { url: "https://films.test/a.mp4" } };
  const { leaving } = await ask("/v1/chat/completions", { messages: [{ role: "user", content: [film] }] });
  leaving.abort();
  expect((await newRow(before)).prompt_tokens).toBe(200_000);
});

const form = (fields: Json): FormData => {
  const made = new FormData();
  for (const [name, value] of Object.entries(fields)) made.append(name, value as string);
  return made;
};
/** Work with a price of its own, and what the vendor bills for it however its answer ends. */
const WORKS: Record<string, [path: string, body: () => Json | FormData, usd: number]> = {
  images: [
    "/v1/images/generations",
    () => ({ model: "test-painter", prompt: "p", n: 3, size: "1024x1024" }),
    0.006,
  ],
  edits: [
    "/v1/images/edits",
    () => form({ model: "test-painter", prompt: "p", n: "2", size: "1024x1024", image: new Blob(["png"]) }),
    0.004,
  ],
  speech: ["/v1/audio/speech", () => ({ model: "test-voice", input: "a".repeat(40), voice: "v" }), 0.004],
  transcriptions: [
    "/v1/audio/transcriptions",
    () => form({ model: "test-ear", file: new Blob([new Uint8Array(wave(2))]) }),
    0.002,
  ],
  rankings: ["/v1/rerank", () => ({ model: "test-ranker", query: "q", documents: ["a", "b"] }), 0.001],
  moderations: ["/v1/moderations", () => ({ model: "test-judge", input: "a" }), 0.0005],
  embeddings: ["/v1/embeddings", () => ({ model: DEAR, input: "hi there, this is a text" }), 45e-6],
};

describe.each(Object.entries(WORKS))("%s", (_, [path, body, usd]) => {
  const send = (key: string, signal: AbortSignal) => {
    const sent = body();
    return fetch(bench.url + path, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        ...(!(sent instanceof FormData) && { "content-type": "application/json" }),
      },
      body: sent instanceof FormData ? sent : JSON.stringify(sent),
      signal,
    });
  };

  test.each(["whole", "left", "revoked"])("%s", async (ending) => {
    const before = await rowIds();
    const seen = bench.upstream.requests.length;
    goOn = Promise.withResolvers();
    const leaving = new AbortController();
    const { key, revoke } = await revoked();
    const asking = send(key, leaving.signal);
    asking.catch(() => {});
    await until("it is sent", () => bench.upstream.requests.length > seen);
    elapsedMs += THOUGHT_MS;
    if (ending === "left") leaving.abort();
    else if (ending === "revoked") await revoke();
    else goOn.resolve();
    const { cost } = await newRow(before);
    goOn.resolve();
    expect(cost).toBeGreaterThanOrEqual(usd);
    // Texts are not counted to the token, and the head of a sound file counts as sound.
    expect(cost).toBeLessThanOrEqual(path.endsWith("embeddings") ? 3 * usd : 1.01 * usd);
  });
});

describe("realtime", () => {
  /** A session in which a response was asked for and has thought, then said something. */
  async function session(key: string) {
    voice.received.length = 0;
    const socket = new WebSocket(`${bench.url.replace("http", "ws")}/v1/realtime?model=voice-${DEAR}`, {
      headers: { authorization: `Bearer ${key}` },
    } as unknown as string[]);
    const types: string[] = [];
    socket.onmessage = ({ data }) => types.push(JSON.parse(String(data)).type);
    await until("the session is open", () => types.includes("session.created"));
    socket.send(JSON.stringify({ type: "response.create" }));
    await until("it is asked for", () => voice.received.some(({ type }) => type === "response.create"));
    const startedMs = elapsedMs;
    const bill = () => (elapsedMs - startedMs) * TOKENS_PER_MS;
    voice.emit({ type: "response.created", response: { id: "r", status: "in_progress" } });
    elapsedMs += 5 * THOUGHT_MS;
    voice.emit({ type: "response.output_text.delta", response_id: "r", delta: "word" });
    await until("it is heard", () => types.includes("response.output_text.delta"));
    const done = (status: string, usage?: Json) =>
      voice.emit({ type: "response.done", response: { id: "r", status, output: [], usage } });
    const told = () => ({ input_tokens: PROMPT_TOKENS, output_tokens: bill() });
    return { socket, types, bill, done, told };
  }

  beforeAll(() =>
    everywhere(async () => {
      const { socket, types, done, told } = await session(who.key);
      done("completed", told());
      await until("it is done", () => types.includes("response.done"));
      socket.close();
      return true;
    }),
  );

  test.each(["whole", "left", "cancelled", "revoked", "cut"])("%s", async (ending) => {
    const before = await rowIds();
    const { key, revoke } = await revoked();
    const { socket, bill, done, told } = await session(key);
    if (ending === "whole") done("completed", told());
    else if (ending === "left") socket.close();
    else if (ending === "revoked") await revoke();
    else if (ending === "cut") voice.closeAll();
    else {
      socket.send(JSON.stringify({ type: "response.cancel" }));
      await until("it is cancelled", () => voice.received.some(({ type }) => type === "response.cancel"));
      done("cancelled");
    }
    const { completion_tokens } = await newRow(before);
    socket.close();
    expect([bill(), bill() + 1]).toContain(completion_tokens);
  });
});

describe("clips", () => {
  const made = async (key: string) => {
    films.script = [minimax.status("Processing")];
    const answer = await who.post("/v1/video/generations", { model: "film", prompt: "p" }, { key });
    const { id } = (await answer.json()) as { id: string };
    await until("it runs", async () => {
      const { status } = await bench.rpc("video.get", { job_id: id }, who.token);
      return status === "running";
    });
    return id;
  };

  test.each(["cancelled", "revoked"])("%s", async (ending) => {
    for (const [last, usd] of [
      [minimax.success, 0.5],
      [minimax.status("Processing"), 0.5],
      [minimax.status("Fail"), 0],
    ] as const) {
      const before = await rowIds();
      const { key, revoke } = await revoked();
      const job_id = await made(key);
      films.script = [last];
      if (ending === "revoked") await revoke();
      else await bench.rpc("video.cancel", { job_id }, who.token);
      const jobOf = () => bench.rpc("video.get", { job_id }, who.token);
      await until(
        "it is settled",
        async () => (await jobOf()).cost === usd && (await jobOf()).status === "cancelled",
      );
      if (usd > 0) expect((await newRow(before)).cost).toBe(usd);
      else expect(await rowIds()).toEqual(before);
    }
  });
});
