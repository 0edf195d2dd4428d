/**
 * What was sent is owed: a vendor that bills what nobody sees is paid, whatever it was asked for and however that ends.
 * Time stands still unless the vendor thinks, so both ends know to the millisecond how long it did.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { everywhere, inOneProcess } from "@model-gateway/testing/deployment.ts";
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
let aheadMs = 0;
/** How often the deadlines of calls are looked at, and how long realtime sessions wait for their clients. */
const LOOK_MS = 996;
const SILENCE_LOOK_MS = 30_000;
const SILENCE_MS = 10 * 60_000;
const looks = new Map<number, Set<() => void>>([LOOK_MS, SILENCE_LOOK_MS].map((ms) => [ms, new Set()]));
const look = (ms: number) => looks.get(ms)!.forEach((task) => void task());
const clock: Clock = {
  ...systemClock,
  now: () => systemClock.now() + aheadMs,
  elapsed: () => elapsedMs,
  every(ms, task) {
    if (!looks.has(ms)) return systemClock.every(ms, task);
    looks.get(ms)!.add(task);
    return () => looks.get(ms)!.delete(task);
  },
};
/** Looks until the deadline of whatever is silent; it passes with the last one. */
const LOOKS = 8;
const DEADLINES = { firstByteMs: LOOKS * LOOK_MS, idleMs: LOOKS * LOOK_MS, keepAliveMs: 4 * LOOK_MS };
function expire(): void {
  for (let looked = 0; looked < LOOKS; looked++) {
    elapsedMs += LOOK_MS;
    aheadMs += LOOK_MS;
    look(LOOK_MS);
  }
}

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
      look(LOOK_MS);
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

const lines = startUpstream({ models: [`batch-${DEAR}`], handler: vendor });
const ollama = startUpstream({ handler: vendor });
ollama.listing((_, reply) => reply.json({ models: [{ name: `ollama-${DEAR}` }] }));

beforeAll(async () => {
  bench = await bootSpending({ overrides: { clock, deadlines: DEADLINES } });
  who = await bench.spender("leaver", { points: 1_000_000 });
  for (const [dialect, { url }] of natives)
    await bench.addBackend({ type: "external", url, name: dialect, dialects: [dialect] });
  await bench.addBackend({ type: "ollama", url: ollama.url, name: "ollama" });
  await bench.addBackend({ type: "external", url: lines.url, name: "lines", batches: true });
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
  for (const each of [voice, ollama, lines, ...natives.map(([, native]) => native)]) each.stop();
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
  look(LOOK_MS);
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

/** Also after a failure: several in a row would take the backend from the one who met them. */
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

  test.each([0, 2])("the gateway's own deadline passes after %d events", async (events) => {
    await whole(path, body);
    const before = await rowIds();
    const { answer, vendor } = await ask(path, body);
    await vendor.run(0, events);
    if (events > 0) await heard(answer, "word0");
    expire();
    await paid(before, vendor);
  });

  test.each([
    "it is left",
    "its key is revoked",
    "the gateway's own deadline passes",
    "it is larger than the gateway reads",
  ])("%s before a whole answer comes", async (ending) => {
    await whole(path, body);
    const before = await rowIds();
    const { key, revoke } = await revoked();
    const unstreamed = path.replace("streamGenerateContent?alt=sse", "generateContent");
    const { answer, leaving, vendor } = await ask(unstreamed, { ...body, stream: false }, key);
    if (ending.includes("deadline")) {
      expire();
      expect((await answer).status).toBe(502);
    } else {
      elapsedMs += 3 * THOUGHT_MS;
      if (ending.includes("left")) leaving.abort();
      else if (ending.includes("revoked")) await revoke();
      else {
        const headers = { "content-type": "application/json", "content-length": String(2 ** 29) };
        vendor.reply.head(200, headers);
        await vendor.reply.write("{");
        expect((await answer).status).toBe(502);
      }
    }
    await paid(before, vendor);
  });
});

test.each([
  ["stopped", 0],
  ["stopped", 2],
  ["ended by the gateway's own deadline", 0],
  ["ended by the gateway's own deadline", 2],
])("chat.send, %s after %d events", async (ending, events) => {
  const before = await rowIds();
  begun = null;
  look(LOOK_MS);
  const { stream_id } = await bench.rpc("chat.send", { model: DEAR, messages }, who.token);
  await until("it has arrived", () => begun !== null);
  const vendor = begun as unknown as Thinking;
  await vendor.run(0, events);
  if (ending !== "stopped") expire();
  else {
    elapsedMs += THOUGHT_MS;
    await bench.rpc("chat.stop", { stream_id }, who.token);
  }
  await paid(before, vendor);
});

test("a line of a batch that the gateway's own deadline ends is owed, and not sent again", async () => {
  await everywhere(
    async () => (await whole("/v1/chat/completions", { messages, model: `batch-${DEAR}` })) !== null,
  );
  const before = await rowIds();
  begun = null;
  look(LOOK_MS);
  const body = { model: `batch-${DEAR}`, messages };
  const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body };
  const file = form({ purpose: "batch", file: new File([JSON.stringify(line)], "in.jsonl") });
  const authorization = `Bearer ${who.key}`;
  const uploaded = await fetch(`${bench.url}/v1/files`, {
    method: "POST",
    headers: { authorization },
    body: file,
  });
  const { id: input_file_id } = (await uploaded.json()) as { id: string };
  const asked = { input_file_id, endpoint: line.url, completion_window: "24h" };
  const { id } = (await (await who.post("/v1/batches", asked)).json()) as { id: string };
  await until("it has arrived", () => begun !== null);
  const vendor = begun as unknown as Thinking;
  begun = null;
  expire();
  const batchOf = async () =>
    (await fetch(`${bench.url}/v1/batches/${id}`, { headers: { authorization } })).json();
  await until("the batch has ended", async () => (await batchOf()).status === "completed");
  const row = await newRow(before);
  // As the clock has it, which also ran while nobody thought.
  expect(row.completion_tokens).toBeGreaterThanOrEqual(vendor.billed);
  expect(begun).toBeNull();
});

/** What an API that was asked says when it fails, with what it has used. */
const FAILURES: Record<string, [path: string, body: Json, failure: Json, used: Json]> = {
  "native responses": [
    "/v1/responses",
    { input: "hi there", model: `responses-${DEAR}` },
    { status: "failed", error: { code: "server_error", message: "boom" }, output: [] },
    { input_tokens: PROMPT_TOKENS, output_tokens: 700, total_tokens: PROMPT_TOKENS + 700 },
  ],
  "translated responses": [
    "/v1/chat/completions",
    { messages, model: `responses-${DEAR}` },
    { status: "failed", error: { code: "server_error", message: "boom" }, output: [] },
    { input_tokens: PROMPT_TOKENS, output_tokens: 700, total_tokens: PROMPT_TOKENS + 700 },
  ],
  chats: ["/v1/chat/completions", { messages }, { error: { message: "boom" } }, chatUsage(700)],
};

describe.each(Object.entries(FAILURES))("a failure of %s", (_, [path, body, failure, used]) => {
  beforeEach(() => whole(path, body));
  const failing = (usage?: Json): string => {
    const response = { ...failure, usage };
    return failure.status ? event({ type: "response.failed", response }) : data(response);
  };
  const charged = async (before: Ids) => {
    const { prompt_tokens, completion_tokens } = await newRow(before);
    return [prompt_tokens, completion_tokens];
  };

  test.each([0, 2])("after %d events is charged with what it reports, and nothing else", async (events) => {
    const before = await rowIds();
    const { answer, vendor } = await ask(path, body);
    if (events === 0) vendor.reply.head(200, { "content-type": "text/event-stream" });
    await vendor.run(0, events);
    if (events > 0) await heard(answer, "word0");
    elapsedMs += 10 * THOUGHT_MS;
    await vendor.reply.write(failing(used));
    await vendor.reply.end();
    expect(await charged(before)).toEqual([PROMPT_TOKENS, 700]);
    await answer;
  });

  test("instead of a whole answer is charged with what it reports", async () => {
    const before = await rowIds();
    const { answer, vendor } = await ask(path, { ...body, stream: false });
    elapsedMs += 10 * THOUGHT_MS;
    await vendor.reply.json({ ...failure, usage: used });
    expect((await answer).status).toBe(502);
    expect(await charged(before)).toEqual([PROMPT_TOKENS, 700]);
  });

  test("that reports nothing, before a word, is free", async () => {
    const before = await rowIds();
    for (const stream of [true, false]) {
      const { answer, vendor } = await ask(path, { ...body, stream });
      elapsedMs += 10 * THOUGHT_MS;
      if (stream) {
        vendor.reply.head(200, { "content-type": "text/event-stream" });
        await vendor.reply.write(failing());
        await vendor.reply.end();
      } else await vendor.reply.json(failure);
      expect((await answer).status).toBe(502);
    }
    expect(await rowIds()).toEqual(before);
  });
});

test.each([
  ["as it is", "/v1/responses", { input: "hi there" }],
  ["translated", "/v1/chat/completions", { messages }],
])("an incomplete response, %s, is charged with what it reports", async (_, path, asked) => {
  const before = await rowIds();
  const { answer, vendor } = await ask(path, { ...asked, model: `responses-${DEAR}` });
  await vendor.run(0, 2);
  const [, , , usage] = FAILURES["native responses"]!;
  const incomplete_details = { reason: "max_output_tokens" };
  const response = { id: "r", status: "incomplete", incomplete_details, output: [], usage };
  await vendor.reply.write(event({ type: "response.incomplete", response }));
  await vendor.reply.end();
  await (await answer).text();
  expect((await newRow(before)).completion_tokens).toBe(700);
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

  test.each(["whole", "left", "revoked", "deadline"])("%s", async (ending) => {
    const before = await rowIds();
    look(LOOK_MS);
    const seen = bench.upstream.requests.length;
    goOn = Promise.withResolvers();
    const leaving = new AbortController();
    const { key, revoke } = await revoked();
    const asking = send(key, leaving.signal);
    asking.catch(() => {});
    await until("it is sent", () => bench.upstream.requests.length > seen);
    if (ending === "deadline") expire();
    else elapsedMs += THOUGHT_MS;
    if (ending === "left") leaving.abort();
    else if (ending === "revoked") await revoke();
    else if (ending === "whole") goOn.resolve();
    const { cost } = await newRow(before);
    goOn.resolve();
    expect(cost).toBeGreaterThanOrEqual(usd);
    // Texts are not counted to the token, and the head of a sound file counts as sound.
    expect(cost).toBeLessThanOrEqual(path.endsWith("embeddings") ? 3 * usd : 1.01 * usd);
  });
});

// Whoever stops them all cannot tell which of several had the request.
inOneProcess("what is on its way when the service is told to stop is owed", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "sent-is-owed-"));
  const boot = () => bootSpending({ dataDir, config: { drainGraceMs: 0 }, overrides: { clock } });
  const first = await boot();
  const person = await first.spender("stopped", { points: 1_000_000 });
  first.upstream.answer(() => {});
  const { length: before } = first.upstream.requests;
  const asked = [
    person.chat({ stream: true }),
    person.chat(),
    ...Object.values(WORKS).flatMap(([path, body]) => {
      const sent = body();
      return sent instanceof FormData ? [] : [person.post(path, sent)];
    }),
  ];
  for (const each of asked) each.catch(() => {});
  await until("all are sent", () => first.upstream.requests.length === before + asked.length);
  elapsedMs += THOUGHT_MS;
  await first.app.stop();
  first.upstream.stop();
  const second = await boot();
  const { records } = await second.rpc("usage.list", { limit: 200 }, person.token);
  await second.stop();
  rmSync(dataDir, { recursive: true });
  expect(records).toHaveLength(asked.length);
  for (const { cost } of records) expect(cost).toBeGreaterThan(0);
});

/** Streams of every way in which an answer comes: as bytes, translated, and as a sound. */
const STREAMS: Record<string, [path: string, body: Json, piece: string]> = {
  "a chat": [
    "/v1/chat/completions",
    { model: DEAR, messages, stream: true },
    CHAT.word("word ".repeat(10_000)),
  ],
  "a translated chat": [
    "/v1/chat/completions",
    { model: `responses-${DEAR}`, messages, stream: true },
    RESPONSES.word("word ".repeat(10_000)),
  ],
  speech: [
    "/v1/audio/speech",
    { model: "test-voice", input: "a".repeat(40), voice: "v" },
    "a".repeat(65_536),
  ],
};

test.each(Object.entries(STREAMS))("%s that is not read is owed by who leaves it", async (_, asked) => {
  const [path, fields, piece] = asked;
  const before = await rowIds();
  let taken = 0;
  const isStreaming = Promise.withResolvers<void>();
  const endless: UpstreamHandler = async (request, reply) => {
    reply.head(200, { "content-type": isWork(request.path) ? "audio/mpeg" : "text/event-stream" });
    isStreaming.resolve();
    for (; request.closedAtMs === null; taken++) await reply.write(piece);
  };
  const upstreams = [bench.upstream, ...natives.map(([, native]) => native)];
  for (const each of upstreams) each.answer(endless);
  const body = JSON.stringify(fields);
  const headers = `authorization: Bearer ${who.key}\r\ncontent-type: application/json`;
  const client = connect(Number(new URL(bench.url).port), "127.0.0.1");
  client.pause();
  client.write(
    `POST ${path} HTTP/1.1\r\nhost: x\r\n${headers}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  await isStreaming.promise;
  let [seen, looked] = [-1, 0];
  await until("nobody takes any more", () => {
    looked = taken === seen ? looked + 1 : 0;
    seen = taken;
    return looked > 20;
  });
  client.resetAndDestroy();
  expect((await newRow(before)).cost).toBeGreaterThan(0);
  for (const each of upstreams) each.answer(vendor);
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

  test.each(["whole", "left", "cancelled", "revoked", "cut", "deadline"])("%s", async (ending) => {
    const before = await rowIds();
    const { key, revoke } = await revoked();
    const { socket, bill, done, told } = await session(key);
    if (ending === "whole") done("completed", told());
    else if (ending === "left") socket.close();
    else if (ending === "revoked") await revoke();
    else if (ending === "cut") voice.closeAll();
    else if (ending === "deadline") {
      aheadMs += SILENCE_MS + 1_000;
      look(SILENCE_LOOK_MS);
      aheadMs -= SILENCE_MS + 1_000;
    } else {
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
  const ENDED_AS = ["cancelled", "failed"];
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

  test.each(["cancelled", "revoked", "deadline"])("%s", async (ending) => {
    for (const [last, usd] of [
      [minimax.success, 0.5],
      [minimax.status("Processing"), 0.5],
      [minimax.status("Fail"), 0],
    ] as const) {
      const before = await rowIds();
      const { key, revoke } = await revoked();
      const job_id = await made(key);
      const jobOf = () => bench.rpc("video.get", { job_id }, who.token);
      // At the deadline it is asked whether it has finished, and once more when it was told to stop.
      const isAsked = async () => ending !== "deadline" || (await jobOf()).status === "failed";
      films.script = [async () => ((await isAsked()) ? last : minimax.status("Processing"))()];
      if (ending === "revoked") await revoke();
      else if (ending === "deadline") {
        const { db } = bench.app.rooms.usage.store;
        await db.run("UPDATE video_jobs SET deadline_at = created_at WHERE id = $1", [job_id]);
      } else await bench.rpc("video.cancel", { job_id }, who.token);
      await until(
        "it is settled",
        async () => (await jobOf()).cost === usd && ENDED_AS.includes((await jobOf()).status),
      );
      if (usd > 0) expect((await newRow(before)).cost).toBe(usd);
      else expect(await rowIds()).toEqual(before);
    }
  });
});
