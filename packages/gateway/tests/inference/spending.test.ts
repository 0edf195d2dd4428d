/** Ways to have inference for nothing, each tried as a client with an ordinary key would. */
import { afterAll, beforeAll, beforeEach, describe, expect, spyOn, test } from "bun:test";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, completion, DONE, startUpstream, usageChunk } from "@model-gateway/testing/upstream.ts";
import { WatchedCall } from "../../src/rooms/inference/call/deadlines.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";
import { doneLine, startFakeOllama } from "../support/ollama.ts";
import {
  bootSpending,
  costUsd,
  DEAR,
  NEWER_DEAR,
  PARTED,
  QUOTA_USD,
  type Spender,
  type SpendingBench,
} from "../support/spending.ts";

let bench: SpendingBench;
let count = 0;
const nameOf = (what: string) => `${what}-${++count}`;

beforeAll(async () => {
  bench = await bootSpending();
});
afterAll(async () => {
  const { problems } = await verifyLedger(bench.app.rooms.usage.store.db);
  await bench.stop();
  expect(problems).toEqual([]);
});

const messages = [{ role: "user", content: "hi there" }];
/** What a request served beyond the first one's bound would cost at the very least. */
const SLACK_USD = 1_024 * 30e-6 + 0.001;

describe("a wallet of 2 points and a drained quota", () => {
  const ways: [what: string, body: Record<string, unknown>][] = [
    ["no limit at all", {}],
    ["a small limit beside a large one", { max_tokens: 1, max_completion_tokens: 100_000 }],
    ["many answers at once", { max_tokens: 100, n: 128 }],
    ["many answers, without a limit", { n: 128 }],
    ["many answers in extra", { max_tokens: 100, extra: { n: 128 } }],
    ["a large limit in extra", { extra: { max_completion_tokens: 100_000 } }],
    ["a limit that the server does not know", { num_predict: 1, max_new_tokens: 1 }],
    ["a limit in options, which the server does not read", { options: { num_predict: 1 } }],
    ["a negative limit", { max_tokens: -1 }],
  ];
  for (const [what, body] of ways) {
    for (const stream of [false, true]) {
      test(`${what}${stream ? ", streamed" : ""}: 30 requests at once cost no more than there is`, async () => {
        const who = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
        const before = bench.servedUsd;
        const answers = await Promise.all(
          Array.from({ length: 30 }, async () => {
            const answer = await who.chat({ ...body, stream });
            await answer.text();
            return answer.status;
          }),
        );
        for (const status of answers) expect([200, 400, 402]).toContain(status);
        const served = bench.servedUsd - before;
        expect(served).toBeLessThanOrEqual(0.02);
        expect(await who.charged()).toBeCloseTo(served, 6);
        const wallet = await who.wallet();
        expect(wallet.debt).toBe(0);
        expect(wallet.balance).toBeGreaterThanOrEqual(0);
        expect(2 - wallet.balance).toBe(Math.round(served * 100));
      });
    }
  }

  test("the answer is limited to what can be paid, and says so; with room enough nothing is touched", async () => {
    const who = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
    const lowered = await who.chat({});
    expect(lowered.status).toBe(200);
    const limit = Number(lowered.headers.get("x-service-max-tokens"));
    // 2 points less the prompt, at 0.003 points a token.
    expect(limit).toBeGreaterThan(600);
    expect(limit).toBeLessThan(667);
    expect(bench.upstream.requests.at(-1)!.json.max_tokens).toBe(limit);

    const rich = await bench.spender(nameOf("rich"), { points: 1_000, drained: true });
    const whole = await rich.chat({});
    expect(whole.headers.get("x-service-max-tokens")).toBeNull();
    expect(bench.upstream.requests.at(-1)!.json).not.toHaveProperty("max_tokens");
  });

  const said = (text: string, more = {}) => [{ role: "user", content: [{ type: "text", text, ...more }] }];
  const hour = { cache_control: { type: "ephemeral", ttl: "1h" } };
  const words = "word ".repeat(900);
  // 4 points are 0.04 dollars, of which the prompt takes about 0.005 at its plain rate.
  test.each([
    ["the plain rate", { messages: said(words) }, [1_100, 1_200]],
    ["an hour's cache", { messages: said(words, hour) }, [950, 1_050]],
    ["another's words about it", { messages: said(`${words} for 1h, "1h"`) }, [1_100, 1_200]],
    ["sound", { messages: said(words), modalities: ["text", "audio"] }, [550, 600]],
    ["a prompt that may be a long one", { messages: said(words.repeat(2)) }, [300, 370]],
  ])("the dearest that a request can come to is held: %s", async (_, body, [least, most]) => {
    const who = await bench.spender(nameOf("thrifty"), { points: 4, drained: true });
    const answer = await who.chat({ model: PARTED, ...body });
    const limit = Number(answer.headers.get("x-service-max-tokens"));
    expect(limit).toBeGreaterThan(least!);
    expect(limit).toBeLessThan(most!);
  });

  test("a word that makes a request dearer is read in any spelling", async () => {
    const who = await bench.spender(nameOf("thrifty"), { points: 4, drained: true });
    const answer = await fetch(`${bench.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${who.key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: PARTED, messages: said(words, hour) }).replace(
        '"1h"',
        String.raw`"\u0031\u0068"`,
      ),
    });
    expect(Number(answer.headers.get("x-service-max-tokens"))).toBeLessThan(1_050);
  });

  test("every field that the client used is set to the limit, for each of its answers", async () => {
    const who = await bench.spender(nameOf("thrifty"), { points: 8, drained: true });
    const answer = await who.chat({
      n: 2,
      max_tokens: 100_000,
      max_completion_tokens: 50_000,
      extra: { max_new_tokens: 70_000, keep: "me" },
      options: { num_predict: 90_000, top_k: 3 },
    });
    expect(answer.status).toBe(200);
    const limit = Number(answer.headers.get("x-service-max-tokens"));
    expect(limit).toBeGreaterThan(1_200);
    expect(limit).toBeLessThan(1_334);
    expect(bench.upstream.requests.at(-1)!.json).toMatchObject({
      n: 2,
      max_tokens: limit,
      max_completion_tokens: limit,
      max_new_tokens: limit,
      keep: "me",
      options: { num_predict: limit, top_k: 3 },
    });
  });

  test("the limit is added in the field that the backend and the model know", async () => {
    const newer = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
    const answer = await newer.chat({ model: NEWER_DEAR });
    expect(answer.status).toBe(200);
    const sent = bench.upstream.requests.at(-1)!.json;
    expect(sent.max_completion_tokens).toBe(Number(answer.headers.get("x-service-max-tokens")));
    expect(sent).not.toHaveProperty("max_tokens");

    const ollama = startFakeOllama();
    const local = `local-${DEAR}`;
    ollama.on("/api/tags", () => Response.json({ models: [{ name: `${local}:latest` }] }));
    ollama.on("/api/chat", () => new Response(doneLine({ message: { role: "assistant", content: "ok" } })));
    await bench.addBackend({ name: "ollama", type: "local-server", url: ollama.url });
    try {
      const ask = async (body: Record<string, unknown>) => {
        const who = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
        const lowered = await who.chat({ model: local, ...body });
        expect(lowered.status).toBe(200);
        const limit = Number(lowered.headers.get("x-service-max-tokens"));
        expect(limit).toBeGreaterThan(600);
        return { limit, options: ollama.requests.at(-1)!.body.options };
      };
      const added = await ask({});
      expect(added.options).toEqual({ num_predict: added.limit });
      const own = await ask({ options: { num_predict: 9_000, top_k: 3 } });
      expect(own.options).toEqual({ num_predict: own.limit, top_k: 3 });
    } finally {
      await ollama.stop();
    }
  });

  test("fewer than 256 tokens are not worth sending, unless the client asks for fewer", async () => {
    const poor = await bench.spender(nameOf("poor"), { points: 1, drained: true });
    expect((await poor.chat({ n: 2 })).status).toBe(402);
    const modest = await poor.chat({ max_tokens: 100, n: 2 });
    expect(modest.status).toBe(200);
    expect(modest.headers.get("x-service-max-tokens")).toBeNull();
  });

  test("chat.send says what it was limited to; a stream carries the header", async () => {
    const who = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
    const sent = await bench.rpc("chat.send", { model: DEAR, messages }, who.token);
    expect(sent.max_tokens).toBeGreaterThan(600);
    expect(sent.max_tokens).toBeLessThan(667);
    const other = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
    const streamed = await other.chat({ stream: true });
    expect(Number(streamed.headers.get("x-service-max-tokens"))).toBeGreaterThan(600);
    await streamed.text();
  });
});

describe("a backend that takes over and knows another limit than the client sends", () => {
  const model = `twofold-${DEAR}`;
  let isFull = false;
  const full = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () =>
      isFull
        ? Response.json({ error: { message: "overloaded" } }, { status: 503 })
        : Response.json({ data: [] }),
  });
  beforeAll(async () => {
    const common = { type: "external", models: [model] };
    const url = `http://127.0.0.1:${full.port}/v1`;
    await bench.addBackend({ ...common, name: "full", url, limit_field: "max_tokens" });
    const second = { ...common, name: "second", url: `${bench.upstream.url}/v1` };
    await bench.addBackend({ ...second, limit_field: "max_completion_tokens" });
    isFull = true;
  });
  afterAll(async () => {
    for (const name of ["full", "second"]) await bench.removeBackend(name);
    await full.stop(true);
  });
  /** Asks until the full backend was the first to be asked. */
  async function takenOver(ask: () => Promise<Response>): Promise<Response> {
    for (let i = 0; i < 4; i++) {
      const answer = await ask();
      if (answer.headers.get("x-service-attempts") === "2" || !answer.ok) return answer;
    }
    throw new Error("no backend took over");
  }

  test("is sent what the client asked for, not all that the wallet covers", async () => {
    const who = await bench.spender(nameOf("thrifty"), { points: 2, drained: true });
    const answer = await takenOver(() => who.chat({ model, max_tokens: 20 }));
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-service-max-tokens")).toBe("20");
    expect(bench.upstream.requests.at(-1)!.json).toMatchObject({ max_tokens: 20, max_completion_tokens: 20 });
  });

  test("holds no more than that, so that others can be paid meanwhile, and a poor wallet is enough", async () => {
    // A point is 333 tokens of output.
    const who = await bench.spender(nameOf("poor"), { points: 1, drained: true });
    const before = bench.upstream.requests.length;
    const statuses = await Promise.all(
      Array.from({ length: 4 }, async () => (await who.chat({ model, max_tokens: 20, n: 2 })).status),
    );
    expect(statuses).toEqual([200, 200, 200, 200]);
    for (const { json } of bench.upstream.requests.slice(before)) expect(json.max_completion_tokens).toBe(20);
  });

  test("a takeover that cannot be paid says who was asked before", async () => {
    const who = await bench.spender(nameOf("poor"), { points: 1, drained: true });
    const price = { model: "homemade", input_usd: 5, output_usd: 1_000 };
    await bench.rpc("billing.prices.set", price, bench.token);
    const targets = [
      { model, backend: "full", order: 1 },
      { model: "homemade", order: 2 },
    ];
    await bench.rpc("routes.set", { name: "dearer", targets }, bench.token);
    const answer = await who.chat({ model: "dearer", max_tokens: 100 });
    await bench.rpc("routes.delete", { name: "dearer" }, bench.token);
    await bench.rpc("billing.prices.remove", { model: "homemade" }, bench.token);
    expect(answer.status).toBe(402);
    expect(answer.headers.get("x-service-attempts")).toBe("1");
    expect(answer.headers.get("x-service-backend")).toBe("full");
  });

  inOneProcess("who leaves while its hold is taken owes nothing", async () => {
    const who = await bench.spender(nameOf("leaver"), { points: 100 });
    const metering = bench.app.rooms.metering as MeteringService;
    const admit = metering.admit.bind(metering);
    const leaving = new AbortController();
    const abort = spyOn(WatchedCall.prototype, "abort");
    const admitting = spyOn(metering, "admit").mockImplementation(async (options) => {
      if (admitting.mock.calls.length === 1) return admit(options);
      leaving.abort();
      await until("the gateway knows it", () => abort.mock.calls.length > 0);
      return admit(options);
    });
    try {
      const before = bench.upstream.requests.length;
      for (let i = 0; i < 2 && !leaving.signal.aborted; i++) {
        admitting.mockClear();
        await who.chat({ model, max_tokens: 5 }, { signal: leaving.signal }).catch(() => {});
      }
      expect(leaving.signal.aborted).toBe(true);
      const served = bench.upstream.requests.length - before;
      await until("the holds have ended", () => metering.holdCount === 0);
      expect(await who.rows()).toHaveLength(served);
    } finally {
      admitting.mockRestore();
      abort.mockRestore();
    }
  });
});

describe("the free tier's quota", () => {
  test("one RPC batch of 50 chat.send with n in extra spends it once", async () => {
    const who = await bench.spender(nameOf("batch"));
    const before = bench.servedUsd;
    const calls = Array.from({ length: 50 }, (_, id) => ({
      jsonrpc: "2.0",
      id,
      method: "chat.send",
      params: { model: DEAR, messages, max_tokens: 400, extra: { n: 128 } },
    }));
    const answers = (await (
      await fetch(`${bench.url}/api/rpc`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${who.token}` },
        body: JSON.stringify(calls),
      })
    ).json()) as { result?: object; error?: { code: number } }[];
    const refused = answers.filter(({ error }) => error);
    for (const { error } of refused) expect(error!.code).toBe(-32006);
    expect(refused.length).toBeGreaterThanOrEqual(48);
    await until("every chat has ended", async () => bench.app.rooms.inference.callsInFlight === 0);
    await until("it is charged", async () => (await who.charged()) > 0);
    expect(bench.servedUsd - before).toBeLessThanOrEqual(QUOTA_USD + SLACK_USD);
    expect(await who.charged()).toBeCloseTo(bench.servedUsd - before, 6);
  });

  test("a new project label for every request does not open another one", async () => {
    const who = await bench.spender(nameOf("labels"));
    const before = bench.servedUsd;
    const statuses: number[] = [];
    for (let i = 0; i < 30; i++) {
      const { key } = await bench.rpc("keys.create", { name: `k${i}`, project: `label ${i}` }, who.token);
      const answer = await who.chat({ max_tokens: 3_000 }, { key });
      await answer.text();
      statuses.push(answer.status);
    }
    expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(12);
    expect(statuses.at(-1)).toBe(429);
    expect(bench.servedUsd - before).toBeLessThanOrEqual(QUOTA_USD + SLACK_USD);
    // What a signed-in person does stays out of it, and the other way round.
    expect((await bench.call("chat.send", { model: DEAR, messages }, who.token)).error.code).toBe(-32006);
  });

  test("lets at most one request across its line, whichever way they come", async () => {
    const who = await bench.spender(nameOf("burst"));
    const before = bench.servedUsd;
    const responses = { model: DEAR, input: "hi", max_output_tokens: 4_000 };
    const anthropic = { model: DEAR, messages, max_tokens: 4_000 };
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const answer =
          i % 4 === 0
            ? await who.post("/v1/responses", responses)
            : i % 4 === 1
              ? await who.post("/v1/messages", anthropic)
              : await who.chat({ max_tokens: 4_000, stream: i % 4 === 2 });
        await answer.text();
        return answer.status;
      }),
    );
    expect(answers.filter((status) => status === 200).length).toBeGreaterThan(5);
    for (const status of answers) expect([200, 429]).toContain(status);
    expect(bench.servedUsd - before).toBeLessThanOrEqual(QUOTA_USD + SLACK_USD);
    expect(await who.charged()).toBeCloseTo(bench.servedUsd - before, 6);
  });

  test("responses and messages are limited like chats, and carry the header", async () => {
    const who = await bench.spender(nameOf("compat"), { points: 2, drained: true });
    const answer = await who.post("/v1/responses", { model: DEAR, input: "hi", max_output_tokens: 50_000 });
    expect(answer.status).toBe(200);
    expect(Number(answer.headers.get("x-service-max-tokens"))).toBeLessThan(667);
    const other = await bench.spender(nameOf("compat"), { points: 2, drained: true });
    const message = await other.post("/v1/messages", { model: DEAR, messages, max_tokens: 50_000 });
    expect(message.status).toBe(200);
    expect(Number(message.headers.get("x-service-max-tokens"))).toBeLessThan(667);
  });

  const disguises: [what: string, disguise: (json: string) => string][] = [
    ["in a sea of white space", (json) => json.replace(/}$/, `${" ".repeat(900_000)}}`)],
    ["in a sea of escaped spaces", (json) => json.replace("1 1", `1${"\\u0020".repeat(140_000)}1`)],
    ["of characters that no tokenizer knows", (json) => json.replace("1 1", "\u283f".repeat(10_000))],
    ["of the same, escaped", (json) => json.replace("1 1", "\\u283f".repeat(10_000))],
  ];
  for (const [what, disguise] of disguises) {
    test(`a prompt ${what} is held for what it is`, async () => {
      const who = await bench.spender(nameOf("disguise"));
      let servedTokens = 0;
      let underWay = 0;
      let answered = 0;
      bench.upstream.answer(async ({ json }, reply) => {
        // Every byte is a token, and white space is one in all.
        const prompt_tokens = Buffer.byteLength(json.messages[0].content.replace(/\s+/g, " "));
        servedTokens += prompt_tokens;
        underWay++;
        // None ends before all of them have been admitted or refused.
        await until("all are decided", async () => answered + underWay >= 30);
        await reply.json(completion("ok", { usage: { prompt_tokens, completion_tokens: 1 } }));
      });
      const prompt = [{ role: "user", content: "1 ".repeat(10_000) }];
      const body = disguise(JSON.stringify({ model: DEAR, max_tokens: 1, messages: prompt }));
      await Promise.all(
        Array.from({ length: 30 }, async () => {
          await (await who.post("/v1/chat/completions", body)).text();
          answered++;
        }),
      );
      expect(servedTokens).toBeGreaterThan(0);
      expect(servedTokens).toBeLessThanOrEqual(130_000);
    });
  }

  test("a prompt that is larger than what is left is refused, embeddings too", async () => {
    const who = await bench.spender(nameOf("large"));
    const content = "word ".repeat(120_000);
    expect((await who.chat({ messages: [{ role: "user", content }] })).status).toBe(429);
    const input = Array.from({ length: 220_000 }, () => 1);
    const answer = await who.post("/v1/embeddings", { model: DEAR, input });
    expect(answer.status).toBe(429);
    expect(((await answer.json()) as { error: { message: string } }).error.message).toContain("too little");
  });
});

describe("what was delivered is counted", () => {
  /** The client takes this much of a stream, and leaves. */
  async function leaveAfter(who: Spender, bytes: number, body: Record<string, unknown> = {}): Promise<void> {
    const leaving = new AbortController();
    const answer = await who.chat({ stream: true, ...body }, { signal: leaving.signal });
    let seen = 0;
    try {
      for await (const piece of answer.body!) {
        seen += piece.length;
        if (seen >= bytes) break;
      }
    } catch {}
    leaving.abort();
  }
  const oneRow = async (who: Spender) => {
    await until("the row is there", async () => (await who.rows()).length === 1);
    return (await who.rows())[0];
  };
  const TEXT = "some words of an answer, ".repeat(40);
  /** As o200k counts it, less the error of an estimate. */
  const TEXT_TOKENS = 6 * 40 * 0.9;
  const DELTAS: Record<string, Record<string, unknown>> = {
    "function_call.arguments": { function_call: { arguments: TEXT } },
    "content parts": { content: [{ type: "text", text: TEXT }] },
    reasoning_details: { reasoning_details: [{ type: "reasoning.text", text: TEXT }] },
    audio: { audio: { data: TEXT, transcript: "" } },
    thinking: { thinking: TEXT },
    "a name that nobody knows": { zebra: { deep: [{ deeper: TEXT }] } },
    tool_calls: { tool_calls: [{ index: 0, function: { arguments: TEXT } }] },
  };

  for (const [where, delta] of Object.entries(DELTAS)) {
    test(`output in ${where}: leaving before the usage costs what was delivered`, async () => {
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { role: "assistant" } }));
        for (let i = 0; i < 50; i++) await reply.write(chunk({ delta }));
        // Never comes to an end.
      });
      const who = await bench.spender(nameOf("leaver"));
      await leaveAfter(who, 50 * TEXT.length);
      const row = await oneRow(who);
      expect(row.completion_tokens).toBeGreaterThanOrEqual(45 * TEXT_TOKENS);
      expect(row.completion_tokens).toBeLessThanOrEqual(50 * TEXT_TOKENS * 1.2);
      expect(row).toMatchObject({ estimated: true });
      expect(row.prompt_tokens).toBeGreaterThan(0);
    });
  }

  for (const stream of [false, true]) {
    test(`a key that its owner revokes before the answer leaves the prompt to pay, and what may be written by then${stream ? ", streamed" : ""}`, async () => {
      bench.upstream.requests.length = 0;
      bench.upstream.answer(() => new Promise(() => {}));
      const who = await bench.spender(nameOf("revoker"));
      const { id, key } = await bench.rpc("keys.create", { name: "burnt" }, who.token);
      const content = "a long prompt that the upstream reads and bills ".repeat(100);
      const asking = who.chat({ stream, messages: [{ role: "user", content }] }, { key });
      await until("the upstream has it", () => bench.upstream.requests.length === 1);
      await bench.rpc("keys.revoke", { key_id: id }, who.token);
      const answer = await asking;
      expect(answer.status).toBe(401);
      expect(await answer.text()).toContain("was revoked");
      const row = await oneRow(who);
      expect(row.prompt_tokens).toBeGreaterThan(800);
      expect(row.estimated).toBe(true);
      expect(row.completion_tokens).toBeLessThanOrEqual(20_000);
    });
  }

  test("usage of the moment in every chunk does not settle a stream that was left", async () => {
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      const usage = { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 };
      for (let i = 0; i < 50; i++) await reply.write(chunk({ delta: { content: TEXT }, usage }));
    });
    const who = await bench.spender(nameOf("leaver"));
    const messages = [{ role: "user", content: "word ".repeat(2_000) }];
    await leaveAfter(who, 50 * TEXT.length, { messages });
    const row = await oneRow(who);
    expect(row.completion_tokens).toBeGreaterThanOrEqual(45 * TEXT_TOKENS);
    expect(row.prompt_tokens).toBeGreaterThan(1_800);
  });

  const twins = `twins-${DEAR}`;
  const gemini = startUpstream({ models: [twins] });
  beforeAll(() =>
    bench.addBackend({
      name: twins,
      type: "external",
      url: gemini.url,
      dialects: ["gemini"],
      models: [twins],
    }),
  );
  afterAll(async () => {
    await bench.removeBackend(twins);
    gemini.stop();
  });
  /** The first of eight answers to a long prompt is there; the others follow, or do not. */
  async function leaveFirstOfEight(
    path: string,
    body: object,
    ending: () => string[] | null,
  ): Promise<Spender> {
    const usage = { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 };
    const choice = { index: 0, delta: { content: "hi" }, text: "hi", finish_reason: "stop" };
    const content = { role: "model", parts: [{ text: "hi" }] };
    const candidate = { index: 0, content, finishReason: "STOP" };
    const usageMetadata = { promptTokenCount: 9, candidatesTokenCount: 1, totalTokenCount: 10 };
    const first = path.includes(":")
      ? { candidates: [candidate], usageMetadata }
      : { id: "a", object: "b", created: 1, model: "m", choices: [choice], usage };
    const { promise: left, resolve: leave } = Promise.withResolvers<void>();
    (path.includes(":") ? gemini : bench.upstream).answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(`data: ${JSON.stringify(first)}\n\n`);
      await left;
      const rest = ending();
      for (const piece of rest ?? []) await reply.write(piece);
      if (rest) await reply.end();
    });
    const who = await bench.spender(nameOf("leaver"), { points: 1_000 });
    const leaving = new AbortController();
    const answer = await who.post(path, body, { signal: leaving.signal });
    await answer.body!.getReader().read();
    leaving.abort();
    leave();
    return who;
  }
  const long = "word ".repeat(2_000);
  const stream = { model: DEAR, stream: true, max_tokens: 1_000 };
  const eight = { ...stream, n: 8, messages: [{ role: "user", content: long }] };

  test("nor does what the first of several answers came to, before the others have begun", async () => {
    const contents = [{ role: "user", parts: [{ text: long }] }];
    const generationConfig = { candidateCount: 8, maxOutputTokens: 1_000 };
    for (const [path, body] of [
      ["/v1/chat/completions", eight],
      ["/v1/completions", { ...stream, prompt: Array(8).fill(long) }],
      [`/v1beta/models/${twins}:streamGenerateContent?alt=sse`, { contents, generationConfig }],
    ] as const) {
      const row = await oneRow(await leaveFirstOfEight(path, body, () => null));
      expect([path, row.estimated]).toEqual([path, true]);
      expect(row.prompt_tokens).toBeGreaterThan(1_800);
      expect(row.completion_tokens).toBeGreaterThan(500);
    }
  });

  test("several answers that end after their client has left cost what they came to", async () => {
    const usage = { prompt_tokens: 2_000, completion_tokens: 80, total_tokens: 2_080 };
    const rest = [chunk({ finish_reason: "stop" }), usageChunk(usage)];
    for (const ending of [rest, [...rest, DONE]]) {
      const row = await oneRow(await leaveFirstOfEight("/v1/chat/completions", eight, () => ending));
      expect(row).toMatchObject({ prompt_tokens: 2_000, completion_tokens: 80, estimated: false });
    }
  });

  test("nor one that ends without saying what it came to", async () => {
    bench.upstream.answer((_, reply) =>
      reply.stream([
        chunk({
          delta: { content: TEXT },
          usage: { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 },
        }),
        ...Array.from({ length: 20 }, () => chunk({ delta: { content: TEXT } })),
        chunk({ finish_reason: "stop" }),
        DONE,
      ]),
    );
    const who = await bench.spender(nameOf("reader"));
    await (await who.chat({ stream: true })).text();
    expect((await oneRow(who)).completion_tokens).toBeGreaterThanOrEqual(20 * TEXT_TOKENS);
  });

  test("a finished stream costs what was reported, be it more or less than the count", async () => {
    const usage = { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 };
    bench.upstream.answer((_, reply) =>
      reply.stream([
        chunk({ delta: { content: TEXT } }),
        chunk({ finish_reason: "stop" }),
        usageChunk(usage),
        DONE,
      ]),
    );
    const who = await bench.spender(nameOf("reader"));
    await (await who.chat({ stream: true })).text();
    expect(await oneRow(who)).toMatchObject({ prompt_tokens: 9, completion_tokens: 3, estimated: false });
  });

  for (const stream of [false, true]) {
    test(`leaving ${stream ? "a stream" : "a whole answer"} after dispatch, before any of it, costs the prompt and what may be written by then`, async () => {
      const before = bench.upstream.requests.length;
      bench.upstream.answer(() => new Promise(() => {}));
      const who = await bench.spender(nameOf("leaver"), { points: 100 });
      const leaving = new AbortController();
      const content = "word ".repeat(10_000);
      const asking = who.chat({ stream, messages: [{ role: "user", content }] }, { signal: leaving.signal });
      await until("the upstream has it", () => bench.upstream.requests.length > before);
      leaving.abort();
      await asking.catch(() => {});
      const row = await oneRow(who);
      expect(row.prompt_tokens).toBeGreaterThan(9_000);
      expect(row.prompt_tokens).toBeLessThan(13_000);
      expect(row.estimated).toBe(true);
      expect(row.completion_tokens).toBeLessThanOrEqual(20_000);
    });
  }

  test("what the first backend reported is not charged if the second one fails, too", async () => {
    const who = await bench.spender(nameOf("unlucky"), { points: 100 });
    const early = startUpstream({ models: ["early"] });
    await bench.addBackend({ name: "early", type: "external", url: early.url, models: ["early"] });
    const targets = [
      { model: "early", order: 1 },
      { model: DEAR, order: 2 },
    ];
    await bench.rpc("routes.set", { name: "either", targets }, bench.token);
    const usage = { prompt_tokens: 50_000, completion_tokens: 0, total_tokens: 50_000 };
    early.answer((_, reply) => reply.stream([chunk({ delta: { role: "assistant" }, usage })]));
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "out of memory" } }, 500));
    const answer = await who.chat({ model: "either", stream: true });
    expect([answer.status, answer.headers.get("x-service-attempts")]).toEqual([502, "2"]);
    bench.upstream.answer((_, reply) => reply.json(completion("ok")));
    await (await who.chat({})).text();
    expect(await who.rows()).toMatchObject([{ prompt_tokens: 9 }]);
    await bench.rpc("routes.delete", { name: "either" }, bench.token);
    await bench.removeBackend("early");
    early.stop();
  });

  test("a failure costs nothing if what it reports cannot be true", async () => {
    const who = await bench.spender(nameOf("unlucky"));
    for (const prompt_tokens of [-1, 1e12]) {
      const usage = { prompt_tokens, completion_tokens: 1 };
      bench.upstream.answer((_, reply) => reply.json({ error: { message: "out of memory" }, usage }));
      expect((await who.chat({})).status).toBe(502);
    }
    bench.upstream.answer((_, reply) => reply.json(completion("ok")));
    await (await who.chat({})).text();
    expect(await oneRow(who)).toMatchObject({ prompt_tokens: 9, completion_tokens: 4 });
  });

  test("what a report leaves out is counted", async () => {
    const text = "some words of an answer ".repeat(200);
    const prompt = [{ role: "user", content: "tell me ".repeat(500) }];
    const reports: [usage: object, atLeast: { prompt: number; completion: number }][] = [
      [{ prompt_tokens: 5 }, { prompt: 5, completion: 900 }],
      [
        { prompt_tokens: 5, completion_tokens: null },
        { prompt: 5, completion: 900 },
      ],
      [
        { prompt_tokens: 10, total_tokens: 5 },
        { prompt: 10, completion: 900 },
      ],
      [{ completion_tokens: 5 }, { prompt: 800, completion: 5 }],
    ];
    for (const [usage, atLeast] of reports) {
      for (const stream of [false, true]) {
        const who = await bench.spender(nameOf("half"), { points: 100 });
        bench.upstream.answer((_, reply) =>
          stream
            ? reply.stream([
                chunk({ delta: { content: text } }),
                chunk({ finish_reason: "stop" }),
                usageChunk(usage),
                DONE,
              ])
            : reply.json(completion(text, { usage })),
        );
        await (await who.chat({ messages: prompt, stream })).text();
        const [row] = await who.rows();
        expect(row.prompt_tokens).toBeGreaterThanOrEqual(atLeast.prompt);
        expect(row.completion_tokens).toBeGreaterThanOrEqual(atLeast.completion);
        expect(row.prompt_tokens + row.completion_tokens).toBeLessThan(1_500);
      }
    }
  });

  test("an upstream that fails by itself without output is owed nothing", async () => {
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "out of memory" } }, 500));
    const who = await bench.spender(nameOf("unlucky"));
    expect((await who.chat()).status).toBe(502);
    expect((await who.chat({ stream: true })).status).toBe(502);
    expect(await who.rows()).toEqual([]);
    expect(bench.app.rooms.metering).toMatchObject({ holdCount: 0 });
  });
});

describe("a prompt costs what is sent", () => {
  beforeEach(() => {
    // No usage: the gateway's own count is charged.
    bench.upstream.answer((_, reply) => reply.json(completion("ok", { usage: undefined })));
  });
  const promptTokens = async (who: Spender) => (await who.rows())[0].prompt_tokens;

  test("text that begins like an image is text", async () => {
    const who = await bench.spender(nameOf("disguise"), { points: 100 });
    const content = `;base64,${"the quick brown fox jumps over the lazy dog ".repeat(2_000)}`;
    expect((await who.chat({ messages: [{ role: "user", content }] })).status).toBe(200);
    expect(await promptTokens(who)).toBeGreaterThan(16_000);
  });

  test("so does the stored history", async () => {
    const who = await bench.spender(nameOf("historian"), { points: 100 });
    const { id } = await bench.rpc("conversations.create", {}, who.token);
    const stored = { role: "user", content: "what was said before, at length. ".repeat(1_200) };
    await bench.app.rooms.conversations.append(id, [stored]);
    await bench.rpc("chat.send", { model: DEAR, messages, conversation_id: id }, who.token);
    await until("the row is there", async () => (await who.rows()).length === 1);
    expect(await promptTokens(who)).toBeGreaterThan(7_000);
  });

  test("members of extra count, and token numbers count as tokens", async () => {
    const who = await bench.spender(nameOf("extra"), { points: 100 });
    await who.chat({ extra: { documents: ["what the document says, at length. ".repeat(1_000)] } });
    expect(await promptTokens(who)).toBeGreaterThan(7_000);
    bench.upstream.answer((_, reply) =>
      reply.json({ object: "list", model: DEAR, data: [{ object: "embedding", index: 0, embedding: [1] }] }),
    );
    await who.post("/v1/embeddings", { model: DEAR, input: Array.from({ length: 5_000 }, () => 7) });
    expect((await who.rows())[0].prompt_tokens).toBe(5_000);
    await who.post("/v1/embeddings", { model: DEAR, input: [7, "some words of a text ".repeat(1_000)] });
    expect((await who.rows())[0].prompt_tokens).toBeGreaterThan(4_000);
    const beside = [{ role: "user", content: "some words of a text ".repeat(1_000) }];
    await who.post("/v1/embeddings", { model: DEAR, input: [7], messages: beside });
    expect((await who.rows())[0].prompt_tokens).toBeGreaterThan(4_000);
  });
});

describe("keys that fold to a protected name", () => {
  const spellings: [Record<string, unknown>, string][] = [
    [{ Model: "other" }, "Model"],
    [{ N: 128 }, "N"],
    [{ MAX_TOKENS: 100_000 }, "MAX_TOKENS"],
    [{ Max_Completion_Tokens: 1 }, "Max_Completion_Tokens"],
    [{ mes\u017fages: [] }, "mes\u017fages"],
    [{ max_to\u212aens: 9 }, "max_to\u212aens"],
    [{ \u017ftream: true }, "\u017ftream"],
    [{ MaxOutputTokens: 9 }, "MaxOutputTokens"],
    [{ extra: { MODEL: "other" } }, "extra.MODEL"],
    [{ extra: { be\u017ft_of: 9 } }, "extra.be\u017ft_of"],
    [{ options: { NUM_PREDICT: 9 } }, "options.NUM_PREDICT"],
  ];

  test("are a 400 that names them, on chats and embeddings, and never reach an upstream", async () => {
    const who = await bench.spender(nameOf("speller"));
    const before = bench.upstream.requests.length;
    for (const [fields, name] of spellings) {
      const answer = await who.chat(fields);
      expect({ name, status: answer.status }).toEqual({ name, status: 400 });
      const { error } = (await answer.json()) as { error: { message: string } };
      expect(error.message).toContain(`\`${name}\` is refused`);
    }
    expect((await who.post("/v1/embeddings", { model: DEAR, input: "x", INPUT: "y" })).status).toBe(400);
    const sent = await bench.call("chat.send", { model: DEAR, messages, extra: { Model: "x" } }, who.token);
    expect(sent.error.code).toBe(-32602);
    expect(bench.upstream.requests.length).toBe(before);
    // Escaped, it is the same key.
    const raw = `{"model":"${DEAR}","messages":[{"role":"user","content":"x"}],"\\u004eum_predict":1}`;
    expect((await who.post("/v1/chat/completions", raw)).status).toBe(400);
  });

  test("so are lists of other models, which some servers answer with", async () => {
    const who = await bench.spender(nameOf("router"));
    const before = bench.upstream.requests.length;
    for (const name of ["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks"]) {
      for (const fields of [{ [name]: ["dearer"] }, { extra: { [name]: ["dearer"] } }]) {
        const answer = await who.chat(fields);
        expect(answer.status).toBe(400);
        const { error } = (await answer.json()) as { error: { message: string } };
        expect(error.message).toContain(`${name}\` is refused`);
      }
    }
    expect((await who.chat({ Models: ["dearer"] })).status).toBe(400);
    expect(bench.upstream.requests.length).toBe(before);
  });

  test("so is what decides the cost, in places where some servers look for settings", async () => {
    bench.upstream.answer((_, reply) => reply.json(completion("ok")));
    const who = await bench.spender(nameOf("hider"));
    const before = bench.upstream.requests.length;
    for (const place of [
      "extra_body",
      "generation_config",
      "generationConfig",
      "parameters",
      "sampling_params",
    ])
      for (const inner of [
        { max_output_tokens: 100_000 },
        { maxOutputTokens: 1 },
        { N: 128 },
        { candidate_count: 8 },
        { model: "dearer" },
        { messages: [] },
        { options: { num_predict: 9 } },
        { fallbacks: ["dearer"] },
      ])
        for (const fields of [{ [place]: inner }, { extra: { [place]: inner } }]) {
          const answer = await who.chat(fields);
          expect({ fields, status: answer.status }).toEqual({ fields, status: 400 });
          const { error } = (await answer.json()) as { error: { message: string } };
          expect(error.message).toContain(`${place}.${Object.keys(inner)[0]}\` is refused`);
        }
    const raw = `{"model":"${DEAR}","messages":[{"role":"user","content":"x"}],"extra_body":{"n":9},"extra_body":{}}`;
    expect((await who.post("/v1/chat/completions", raw)).status).toBe(400);
    expect((await who.chat({ Extra_Body: {} })).status).toBe(400);
    expect((await who.post("/v1/responses", { model: DEAR, input: "x", extra_body: { n: 9 } })).status).toBe(
      200,
    );
    expect(bench.upstream.requests.at(-1)!.json.extra_body).toBeUndefined();
    expect(bench.upstream.requests.length).toBe(before + 1);
    // Everything else in these places is the upstream's.
    const harmless = { google: { thinking_config: { thinking_budget: 5 } }, temperature: 0.5 };
    expect((await who.chat({ extra_body: harmless, parameters: "x" })).status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.json).toMatchObject({ extra_body: harmless, parameters: "x" });
  });

  test("other keys pass as they are, in whatever case", async () => {
    bench.upstream.answer((_, reply) => reply.json(completion("ok")));
    const who = await bench.spender(nameOf("speller"));
    expect((await who.chat({ topK: 3, Seed: 1, extra: { doSample: true } })).status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.json).toMatchObject({ topK: 3, Seed: 1, doSample: true });
  });
});

describe("figures that no request can have", () => {
  const absurd = [1e308, -5, 12.5, 10_000_001, "100"];
  const flag = async () =>
    (await bench.backends()).backends.health[0].implausible_usage ?? { count: 0, problem: "" };

  test("are not charged: the count is, and the backend is flagged", async () => {
    for (const figure of absurd) {
      const usage = { prompt_tokens: figure, completion_tokens: figure, total_tokens: figure };
      const who = await bench.spender(nameOf("victim"), { points: 100 });
      bench.upstream.answer((_, reply) =>
        reply.json(completion("these words of an answer make about ten tokens", { usage })),
      );
      const answer = (await (await who.chat()).json()) as { usage: { completion_tokens: number } };
      expect(answer.usage.completion_tokens).toBe(10);
      bench.upstream.answer((_, reply) =>
        reply.stream([
          chunk({ delta: { content: "words" } }),
          chunk({ finish_reason: "stop" }),
          usageChunk(usage),
          DONE,
        ]),
      );
      await (await who.chat({ stream: true })).text();
      const rows = await who.rows();
      const counted = rows.map(({ completion_tokens }) => completion_tokens);
      expect(counted.sort((a, b) => a - b)).toEqual([2, 10]);
      for (const row of rows) expect(row.prompt_tokens).toBeLessThan(60);
      expect((await who.wallet()).balance).toBe(100);
    }
    await until("all are told of", async () => (await flag()).count === absurd.length * 2);
    expect((await flag()).problem).toContain("impossible usage figures");
  });

  test("more than the context window, or than the limit, is charged as reported and flags the backend", async () => {
    const who = await bench.spender(nameOf("victim"), { points: 10_000 });
    const answerWith = (prompt_tokens: number, completion_tokens: number) => {
      const usage = { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
      bench.upstream.answer((_, reply) => reply.json(completion("ok", { usage })));
    };
    answerWith(200_001, 1);
    await who.chat();
    await until("it is told of", async () => (await flag()).problem.includes("context window"));
    answerWith(1, 501);
    await who.chat({ max_tokens: 250, n: 2 });
    await until("that, too", async () =>
      (await flag()).problem.includes("501 output tokens, more than the limit of 500"),
    );
    const { count } = await flag();
    answerWith(200_000, 500);
    await who.chat({ max_tokens: 250, n: 2 });
    expect((await flag()).count).toBe(count);
    expect(await who.charged()).toBeCloseTo(costUsd({ prompt_tokens: 400_002, completion_tokens: 1_002 }), 6);
    expect(await (await fetch(`${bench.url}/metrics`)).text()).toContain("gateway_implausible_usage_total ");
  });
});

test("who leaves, or is revoked, while the upstream cannot be reached owes nothing", async () => {
  const own = await bootSpending();
  // A network that drops packets: the connection is neither made nor refused.
  const connecting = spyOn(Bun, "connect").mockImplementation(() => new Promise<never>(() => {}));
  try {
    const who = await own.spender("unheard");
    const { id, key } = await own.rpc("keys.create", { name: "burnt" }, who.token);
    const leaving = new AbortController();
    const left = who.chat({}, { signal: leaving.signal }).catch((error: Error) => error);
    const revoked = who.chat({ stream: true }, { key });
    await until("both try to connect", () => connecting.mock.calls.length === 2);
    leaving.abort();
    expect(await left).toBeInstanceOf(Error);
    await own.rpc("keys.revoke", { key_id: id }, who.token);
    expect(await (await revoked).text()).toContain("was revoked");
    connecting.mockRestore();
    await (await who.chat({ max_tokens: 1 })).text();
    await until("the last row is there", async () => (await who.rows()).length > 0);
    expect(await who.rows()).toHaveLength(1);
    expect(own.app.rooms.metering).toMatchObject({ holdCount: 0 });
  } finally {
    connecting.mockRestore();
    await own.stop();
  }
});

test("a vendor's tool costs as many calls as a chat allows, since its answer does not show them", async () => {
  const backend = { name: "first", tool_prices: { web_search: 0.01 } };
  await bench.rpc("backends.update", backend, bench.token);
  const who = await bench.spender(nameOf("searcher"), { points: 1_000 });
  await (await who.chat({ tools: [{ type: "web_search", max_uses: 3 }], max_tokens: 10 })).text();
  const [row] = await who.rows();
  expect(row.cost).toBeCloseTo(costUsd(row) + 0.03, 9);
  await bench.rpc("backends.update", { ...backend, tool_prices: null }, bench.token);
});
