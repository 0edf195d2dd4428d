/** One budget, all at once on every path that spends, with clients that leave: together they get what it pays. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { isWork, PNG, wave, worker } from "@model-gateway/testing/work.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";
import { bootSpending, DEAR, honestUpstream, type SpendingBench } from "../support/spending.ts";

const BUDGET_USD = 0.1;
const REQUESTS = 320;
let bench: SpendingBench;
let film: VideoUpstream;

beforeAll(async () => {
  bench = await bootSpending();
  film = startMinimax();
  film.script = [minimax.success];
  await bench.addBackend({ name: "film", type: "minimax", url: film.url, api_key: "sk", models: ["clip"] });
  const honest = honestUpstream(() => {});
  bench.upstream.answer((request, reply) => {
    const tokens = Math.ceil(request.text.length / 5);
    if (isWork(request.path)) return worker(request, reply);
    if (!request.path.endsWith("/embeddings")) return honest(request, reply);
    const data = [{ object: "embedding", index: 0, embedding: [1] }];
    return reply.json({ object: "list", data, usage: { prompt_tokens: tokens, total_tokens: tokens } });
  });
});
afterAll(async () => {
  await bench.stop();
  film.stop();
});

const messages = [{ role: "user", content: "good morning ".repeat(30) }];
const JSON_DOORS: [path: string, body: object][] = [
  ["/v1/chat/completions", { model: DEAR, messages, max_tokens: 100 }],
  ["/v1/chat/completions", { model: DEAR, messages, max_tokens: 50, n: 2, stream: true }],
  ["/v1/messages", { model: DEAR, messages, max_tokens: 100 }],
  ["/v1/responses", { model: DEAR, input: "hi", max_output_tokens: 100 }],
  ["/v1/completions", { model: DEAR, prompt: "hi", max_tokens: 100 }],
  ["/api/chat", { model: DEAR, messages, options: { num_predict: 100 } }],
  ["/api/generate", { model: DEAR, prompt: "x", options: { num_predict: 100 } }],
  ["/api/embed", { model: DEAR, input: "x" }],
  ["/v1/embeddings", { model: DEAR, input: "x".repeat(2_000) }],
  ["/v1/images/generations", { model: "test-painter", prompt: "p", n: 3, size: "1024x1024" }],
  ["/v1/audio/speech", { model: "test-voice", input: "a".repeat(60), voice: "v" }],
  ["/v1/rerank", { model: "test-ranker", query: "q", documents: Array(250).fill("d") }],
  ["/v1/moderations", { model: "test-judge", input: ["a", "b", "c"] }],
  ["/v1/video/generations", { model: "clip", prompt: "a fox", duration_seconds: 1 }],
];
const FORM_DOORS: [path: string, fields: Record<string, string | Buffer>][] = [
  ["/v1/images/edits", { model: "test-painter", prompt: "p", n: "2", size: "1024x1024", image: PNG }],
  ["/v1/audio/transcriptions", { model: "test-ear", file: wave(3) }],
];

function formOf(fields: Record<string, string | Buffer>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields))
    form.set(name, typeof value === "string" ? value : new Blob([new Uint8Array(value)]));
  return form;
}

/** The status, or "left". */
async function request(key: string, number: number): Promise<string> {
  const at = (number * 7) % (JSON_DOORS.length + FORM_DOORS.length);
  const form = FORM_DOORS[at - JSON_DOORS.length];
  const [path] = form ?? JSON_DOORS[at]!;
  const leaving = new AbortController();
  if (number % 5 === 4) setTimeout(() => leaving.abort(), number % 40);
  try {
    const answer = await fetch(bench.url + path, {
      method: "POST",
      signal: leaving.signal,
      headers: { authorization: `Bearer ${key}`, ...(!form && { "content-type": "application/json" }) },
      body: form ? formOf(form[1]) : JSON.stringify(JSON_DOORS[at]![1]),
    });
    await answer.text();
    return String(answer.status);
  } catch {
    return "left";
  }
}

test.each([
  ["total_budget_usd", "402", { points: 0 }],
  ["monthly_budget_usd", "429", { points: 100_000, drained: true }],
])("%s", async (limit, refusal, means) => {
  const who = await bench.spender(limit.replaceAll("_", "-"), means);
  const { key, id } = await bench.rpc("keys.create", { name: "k", [limit]: BUDGET_USD }, who.token);
  const ends = await Promise.all(Array.from({ length: REQUESTS }, (_, number) => request(key, number)));
  expect(ends.filter((end) => !["200", refusal, "left"].includes(end))).toEqual([]);
  const metering = bench.app.rooms.metering as MeteringService;
  await until("nothing is held", () => metering.holdCount === 0);
  const [listed] = (await bench.rpc("keys.list", {}, who.token)).filter(
    (each: { id: string }) => each.id === id,
  );
  // Prompts are estimated before they are sent, and then counted by the upstream.
  expect(listed.spent_total_usd).toBeLessThanOrEqual(BUDGET_USD * 1.01);
  // It was worth trying: most of it is gone, and the rows say the same.
  expect(listed.spent_total_usd).toBeGreaterThan(BUDGET_USD / 2);
  expect(await who.charged()).toBeCloseTo(listed.spent_total_usd, 9);
});

/** One request of each API, and where its error's words are. */
// biome-ignore lint/suspicious/noExplicitAny: each API has another form
const VOICES: [path: string, body: object, words: (body: any) => string][] = [
  ["/v1/chat/completions", { messages, max_tokens: 100 }, ({ error }) => error.message],
  ["/v1/messages", { messages, max_tokens: 100 }, ({ error }) => error.message],
  ["/v1/responses", { input: "hi", max_output_tokens: 100 }, ({ error }) => error.message],
  ["/v1/completions", { prompt: "hi", max_tokens: 100 }, ({ error }) => error.message],
  ["/api/chat", { messages, options: { num_predict: 100 } }, ({ error }) => error],
];

test.each([
  ["this month's quota", 429, {}, {}, 4],
  ["your points", 402, { points: 1, drained: true }, {}, 1],
  ["this key's monthly budget of 0.01 USD", 429, { points: 1_000 }, { monthly_budget_usd: 0.01 }, 1],
  ["this key's total budget of 0.01 USD", 402, { points: 1_000 }, { total_budget_usd: 0.01 }, 1],
])(
  "a request in progress that holds the rest of %s is the reason that others get",
  async (what, status, means, limits, n) => {
    const who = await bench.spender(`held-${what.replace(/\W+/g, "-")}`, means);
    const { key } = await bench.rpc("keys.create", { name: "k", ...limits }, who.token);
    const reached = Promise.withResolvers<void>();
    const mayEnd = Promise.withResolvers<void>();
    bench.upstream.answer(async (request, reply) => {
      if (request.json.seed === 1) reached.resolve();
      if (request.json.seed === 1) await mayEnd.promise;
      return honestUpstream(() => {})(request, reply);
    });
    // It asks for all that there is.
    const first = who.chat({ n, seed: 1 }, { key });
    await reached.promise;
    for (const [path, body, words] of VOICES) {
      const refused = await who.post(path, { model: DEAR, ...body }, { key });
      expect([path, refused.status, refused.headers.get("retry-after")]).toEqual([path, status, "5"]);
      expect(words(await refused.json())).toStartWith(`Requests in progress hold the rest of ${what};`);
    }
    mayEnd.resolve();
    await (await first).text();
  },
);
