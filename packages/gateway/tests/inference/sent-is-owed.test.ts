/** What was sent is owed: a vendor that bills what nobody sees is paid, however its answer ends. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import {
  chunk,
  completion,
  DONE,
  type UpstreamHandler,
  usageChunk,
} from "@model-gateway/testing/upstream.ts";
import { bootSpending, DEAR, NEWER_DEAR, type Spender, type SpendingBench } from "../support/spending.ts";

const TOKENS_PER_MS = 20;
const PIECES = 8;
const PIECE_MS = 20;
/** Neither end knows to the millisecond when the other began and ended. */
const CLOCKS_AGREE_BY = 0.5;

let bench: SpendingBench;
let who: Spender;
/** Output tokens of the latest answer, as the vendor bills them: most of them are thought, not said. */
let billed = 0;
let isCut = false;

/** Thinks all the time, says a word now and then, and tells what it came to at the very end. */
const thinking: UpstreamHandler = async (request, reply) => {
  const startedMs = Date.now();
  billed = 0;
  const bill = () => {
    billed = ((request.closedAtMs ?? Date.now()) - startedMs) * TOKENS_PER_MS;
    return { prompt_tokens: 9, completion_tokens: billed, total_tokens: 9 + billed };
  };
  const { stream } = request.json;
  if (stream) reply.head(200, { "content-type": "text/event-stream" });
  for (let piece = 0; piece < PIECES && request.closedAtMs === null; piece++) {
    await Bun.sleep(PIECE_MS);
    if (isCut && piece === PIECES / 2) {
      bill();
      return reply.reset();
    }
    if (stream) await reply.write(chunk({ delta: { content: `word${piece} ` } }));
  }
  const usage = bill();
  if (request.closedAtMs !== null) return;
  if (!stream) return reply.json(completion("words", { usage }));
  for (const last of [chunk({ finish_reason: "stop" }), usageChunk(usage), DONE]) await reply.write(last);
  await reply.end();
};

beforeAll(async () => {
  bench = await bootSpending();
  who = await bench.spender("leaver", { points: 100_000 });
  bench.upstream.answer(thinking);
  // Whole answers say how fast the model is; the very first ones of a process are slow, so these are another model's.
  for (const model of [NEWER_DEAR, NEWER_DEAR, DEAR, DEAR])
    await (await who.chat({ model, stream: true })).text();
});
afterAll(() => bench.stop());

const messages = [{ role: "user", content: "hi there" }];
const VOICES: Record<string, Record<string, unknown>> = {
  "/v1/chat/completions": { messages },
  "/v1/completions": { prompt: "hi there" },
  "/v1/responses": { input: "hi there" },
  "/v1/messages": { messages, max_tokens: 20_000 },
  "/api/chat": { messages },
};

const rowCount = async () => (await who.rows()).length;
/** The vendor's bill is on the books. */
async function paid(rowsBefore: number): Promise<void> {
  await until("the vendor has its bill", () => billed > 0);
  await until("it has its row", async () => (await rowCount()) === rowsBefore + 1);
  const [row] = await who.rows();
  expect(row.completion_tokens).toBeGreaterThanOrEqual(Math.floor(billed * CLOCKS_AGREE_BY));
  expect(row.completion_tokens).toBeLessThanOrEqual(20_000);
}

describe.each(Object.entries(VOICES))("%s", (path, body) => {
  test.each([
    ["left before the first word", 0],
    ["left after the first word", 1],
    ["left before the last word", PIECES - 1],
  ])("%s", async (_, words) => {
    const before = await rowCount();
    const seen = bench.upstream.requests.length;
    const leaving = new AbortController();
    const asking = who.post(path, { model: DEAR, stream: true, ...body }, { signal: leaving.signal });
    if (words === 0) await until("it is sent", () => bench.upstream.requests.length > seen);
    else {
      let text = "";
      for await (const piece of (await asking).body!) {
        text += Buffer.from(piece).toString();
        if (text.includes(`word${words - 1}`)) break;
      }
    }
    if (words === 0) await Bun.sleep(3 * PIECE_MS);
    leaving.abort();
    await asking.catch(() => {});
    await paid(before);
  });
});

test("a whole answer that is left before it comes", async () => {
  const before = await rowCount();
  const leaving = new AbortController();
  const asking = who.chat({}, { signal: leaving.signal });
  await Bun.sleep(4 * PIECE_MS);
  leaving.abort();
  await asking.catch(() => {});
  await paid(before);
});

test("a key that is revoked in the middle", async () => {
  const before = await rowCount();
  const { id, key } = await bench.rpc("keys.create", { name: "burnt" }, who.token);
  const asking = who.chat({ stream: true }, { key });
  await Bun.sleep(4 * PIECE_MS);
  await bench.rpc("keys.revoke", { key_id: id }, who.token);
  await (await asking).text().catch(() => {});
  await paid(before);
});

test("an upstream that breaks off", async () => {
  const before = await rowCount();
  isCut = true;
  await (await who.chat({ stream: true })).text().catch(() => {});
  isCut = false;
  await paid(before);
});

test("an answer that has finished is read on for its figures when its client leaves", async () => {
  const before = await rowCount();
  const figures = Promise.withResolvers<void>();
  bench.upstream.answer(async (_, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(chunk({ delta: { content: "word" } }));
    await reply.write(chunk({ finish_reason: "stop" }));
    await figures.promise;
    await reply.write(usageChunk({ prompt_tokens: 9, completion_tokens: 12_345, total_tokens: 12_354 }));
    await reply.write(DONE);
    await reply.end();
  });
  const leaving = new AbortController();
  const answer = await who.chat({ stream: true }, { signal: leaving.signal });
  for await (const piece of answer.body!) if (Buffer.from(piece).includes("stop")) break;
  leaving.abort();
  await Bun.sleep(PIECE_MS);
  figures.resolve();
  await until("it has its row", async () => (await rowCount()) === before + 1);
  const [row] = await who.rows();
  expect(row).toMatchObject({ completion_tokens: 12_345, estimated: false });
  bench.upstream.answer(thinking);
});

test("a film that the upstream fetches is owed as it was held: it may fill the context window", async () => {
  const before = await rowCount();
  const leaving = new AbortController();
  const film = { type: "video_url", video_url: { url: "https://films.test/a.mp4" } };
  const asking = who.chat({ messages: [{ role: "user", content: [film] }] }, { signal: leaving.signal });
  await Bun.sleep(4 * PIECE_MS);
  leaving.abort();
  await asking.catch(() => {});
  await until("it has its row", async () => (await rowCount()) === before + 1);
  expect((await who.rows())[0].prompt_tokens).toBe(200_000);
});
