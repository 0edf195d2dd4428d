/** Bodies that are made to hold everyone up are refused before they are read; large ones that are not are served. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readJson } from "../../src/kernel/json.ts";
import { Payload } from "../../src/rooms/inference/request/payload.ts";
import { estimatePromptTokens, estimateTokens } from "../../src/rooms/metering/index.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const BYTES = 31 * 1024 * 1024;
/** More than any of the limits: what a path reads with is the same for all sizes, and takes a tenth of the time. */
const SMALL_BYTES = 4 * 1024 * 1024;
const filled = (piece: string, bytes = BYTES) => piece.repeat(Math.floor(bytes / piece.length));
const chatWith = (content: string) => `{"model":"m","messages":[{"role":"user","content":${content}}]}`;

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
  await bench.addBackend({ name: "up", type: "external", url: bench.upstream.url });
});
afterAll(() => bench.stop());

const COSTLY: Record<string, (bytes: number) => string> = {
  "tiny members": (bytes) => chatWith(`"hi","x":{${filled('"a":1,', bytes)}"b":1}`),
  "empty strings": (bytes) => chatWith(`"hi","x":[${filled('"",', bytes)}1]`),
  "empty arrays": (bytes) => chatWith(`"hi","x":[${filled("[],", bytes)}1]`),
  "objects and arrays": () => chatWith(`"hi","x":[${"[{}],".repeat(100_000)}1]`),
  numbers: (bytes) => chatWith(`"hi","x":[${filled("1,", bytes)}1]`),
  "white space": (bytes) => chatWith(`"hi"${filled(" ", bytes)}`),
  "escaped quotes": (bytes) => chatWith(`"${filled('\\"', bytes)}"`),
  "escaped letters": (bytes) => chatWith(`"${filled("\\u0061", bytes)}"`),
};
const PATHS = [
  "/v1/chat/completions",
  "/v1/responses",
  "/v1/messages",
  "/v1/embeddings",
  "/v1/video/generations",
  "/v1/completions",
  "/v1/messages/count_tokens",
  "/api/chat",
  "/api/generate",
  "/api/embed",
];

test.each(Object.entries(COSTLY))("too many %s are refused on every path", async (_, bodyOf) => {
  for (const [i, path] of PATHS.entries()) {
    const response = await bench.post(path, bodyOf(i === 0 ? BYTES : SMALL_BYTES));
    expect([path, response.status]).toEqual([path, 400]);
    expect(await response.text()).toContain("too costly to read: it has more than");
  }
  expect(bench.upstream.requests).toEqual([]);
});

test("what is read at once inside a body is small", async () => {
  for (const field of ["extra", "options"]) {
    const body = {
      model: "m",
      messages: [{ role: "user", content: "hi" }],
      [field]: { x: "y".repeat(300_000) },
    };
    const response = await bench.post("/v1/chat/completions", body);
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(`\`${field}\` is larger than 262144 bytes`);
  }
});

test("a large body is read in steps, between which others have their turn", async () => {
  const body = Buffer.from(chatWith(`"${filled("some words of a text ")}"`));
  const turnsUntil = async (work: unknown) => {
    let turns = 0;
    let isOver = false;
    const count = () => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    await work;
    isOver = true;
    return turns;
  };
  expect(await turnsUntil(Payload.read(body))).toBeGreaterThanOrEqual(3);
  expect(await turnsUntil(readJson(body))).toBeGreaterThanOrEqual(3);
  const short = Buffer.from(chatWith('"short"'));
  expect(await turnsUntil(Payload.read(short))).toBe(0);
  expect(await turnsUntil(readJson(short))).toBe(0);
});

test("of a very long text a part is counted, which says as much as all of it", () => {
  const words = "Some words of a text, 12 of them in English; 你好世界 too. ";
  const short = Buffer.from(chatWith(`"${words.repeat(10_000)}"`));
  const long = Buffer.from(chatWith(`"${words.repeat(400_000)}"`));
  const [few, many] = [estimatePromptTokens(short), estimatePromptTokens(long)];
  expect(many / few).toBeGreaterThan(39.5);
  expect(many / few).toBeLessThan(40.5);
  expect(estimateTokens(words.repeat(400_000)) / estimateTokens(words.repeat(10_000))).toBeCloseTo(40, 0);
});

test("a large picture, a long text and many token ids are served", async () => {
  const picture = `[{"type":"image_url","image_url":{"url":"data:image/png;base64,${filled("iVBO")}"}}]`;
  const lines = `"${"A line of a long text, as files have them.\\n".repeat(200_000)}"`;
  for (const content of [picture, lines])
    expect((await bench.post("/v1/chat/completions", chatWith(content))).status).toBe(200);
  const ids = Array.from({ length: 250_000 }, (_, i) => 100_000 + (i % 99_000));
  bench.upstream.answer((_, reply) =>
    reply.json({
      object: "list",
      model: "m",
      data: [{ object: "embedding", index: 0, embedding: [0.5] }],
      usage: { prompt_tokens: 1, total_tokens: 1 },
    }),
  );
  expect((await bench.post("/v1/embeddings", { model: "m", input: ids })).status).toBe(200);
});
