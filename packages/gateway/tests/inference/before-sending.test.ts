/** Between the choice of a backend and the sending: what is held, what limit is sent, and whose place is kept. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { completion, type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { bootSpending, DEAR, type Spender, type SpendingBench } from "../support/spending.ts";

const GPT = `gpt-5.6-${DEAR}`;
const QUESTION = [{ role: "user", content: "hi" }];
const SEARCH = { type: "web_search", name: "web_search" };

let bench: SpendingBench;
let who: Spender;
const upstreams = new Map<string, FakeUpstream>();
beforeAll(async () => {
  bench = await bootSpending();
  await bench.removeBackend("first");
  who = await bench.spender("someone", { points: 1_000_000 });
});
afterEach(async () => {
  for (const [name, upstream] of upstreams) {
    await bench.removeBackend(name);
    upstream.stop();
  }
  upstreams.clear();
});
afterAll(() => bench.stop());

/** Writes as much as it is asked for. */
function obedient(upstream: FakeUpstream): void {
  upstream.answer(({ json, path }, reply) => {
    const prompt = 20;
    if (path.endsWith("/messages"))
      return reply.json({ type: "message", content: [], usage: { input_tokens: prompt, output_tokens: 5 } });
    if (path.endsWith("/responses")) {
      const output_tokens = Math.max(16, json.max_output_tokens);
      return reply.json({ status: "completed", output: [], usage: { input_tokens: prompt, output_tokens } });
    }
    const completion_tokens = json.max_completion_tokens ?? json.max_tokens;
    return reply.json(completion("ok", { usage: { prompt_tokens: prompt, completion_tokens } }));
  });
}
async function backend(name: string, config: object, models = [DEAR]): Promise<FakeUpstream> {
  const upstream = startUpstream({ models });
  upstreams.set(name, upstream);
  obedient(upstream);
  await bench.addBackend({ type: "external", url: upstream.url, name, models, ...config });
  return upstream;
}
const keyOf = (person: Spender, limits: object) =>
  bench.rpc("keys.create", { name: "k", ...limits }, person.token);

describe("a request that is refused after its backend was chosen", () => {
  const places = async () =>
    (await bench.backends()).backends.health.map((one: { in_flight: number }) => one.in_flight);

  test.each<[string, string, object]>([
    ["a tool's bound", "/v1/chat/completions", { messages: QUESTION, tools: [{ ...SEARCH, max_uses: "x" }] }],
    ["a bound of calls", "/v1/chat/completions", { messages: QUESTION, max_tool_calls: -1, tools: [SEARCH] }],
    ["a protected name", "/v1/embeddings", { input: "hi", extra: { models: ["x"] } }],
  ])("keeps no place there: %s", async (_, path, body) => {
    await backend("narrow", { concurrency: 1, capabilities: ["chat", "embeddings"] });
    for (let i = 0; i < 2; i++) expect((await who.post(path, { model: DEAR, ...body })).status).toBe(400);
    expect(await places()).toEqual([0]);
    expect((await who.chat({ max_tokens: 5 })).status).toBe(200);
  });

  test("keeps no place there: no chat can say what it says", async () => {
    await backend("speaks", { dialects: ["messages"] });
    await backend("chats", { dialects: ["chat"], concurrency: 1 });
    const messages = [{ role: "user", content: [{ type: "strange" }] }];
    const statuses = [];
    for (let i = 0; i < 6; i++)
      statuses.push((await who.post("/v1/messages", { model: DEAR, max_tokens: 5, messages })).status);
    expect(statuses).toContain(400);
    expect(await places()).toEqual([0, 0]);
  });

  test("keeps no place at the next one either", async () => {
    const first = await backend("first", { dialects: ["messages"] });
    await backend("next", { dialects: ["chat"], concurrency: 1 }, [GPT]);
    first.answer((_, reply) => reply.json({ error: { message: "overloaded" } }, 529));
    const targets = [
      { model: DEAR, backend: "first", order: 1 },
      { model: GPT, backend: "next", order: 2 },
    ];
    await bench.rpc("routes.set", { name: "both", targets }, bench.token);
    const messages = [{ role: "user", content: [{ type: "strange" }] }];
    expect((await who.post("/v1/messages", { model: "both", max_tokens: 5, messages })).ok).toBe(false);
    expect(await places()).toEqual([0, 0]);
    await bench.rpc("routes.delete", { name: "both" }, bench.token);
  });
});

describe("a request in a vendor's own dialect", () => {
  const ask = () => who.post("/v1/messages", { model: DEAR, max_tokens: 50, messages: QUESTION });

  test("goes to another backend that speaks it when the first is overloaded, or gone", async () => {
    const full = await backend("full", { dialects: ["messages"] });
    const well = await backend("well", { dialects: ["messages"] });
    full.answer((_, reply) => reply.json({ error: { message: "overloaded" } }, 529));
    for (let i = 1; i <= 6; i++) {
      const answer = await ask();
      expect([answer.status, answer.headers.get("x-service-backend")]).toEqual([200, "well"]);
      expect(well.requests).toHaveLength(i);
    }
    full.stop();
    for (let i = 0; i < 6; i++) expect((await ask()).status).toBe(200);
  });

  test.each<[string, string, object, string]>([
    ["messages", "/v1/messages", { max_tokens: 10, messages: QUESTION }, '"max_tokens":10,'],
    [
      "responses",
      "/v1/responses",
      { max_output_tokens: 20, input: "hi", store: false },
      '"max_output_tokens":20,',
    ],
    [
      "gemini",
      `/v1beta/models/${DEAR}:generateContent`,
      { generationConfig: { maxOutputTokens: 10 }, contents: [{ role: "user", parts: [{ text: "hi" }] }] },
      '"maxOutputTokens":10}',
    ],
  ])("%s: a limit that has to be lowered is not raised", async (dialect, path, body, sent) => {
    const upstream = await backend("own", { dialects: [dialect] });
    upstream.answer((_, reply) => reply.json({ error: { message: "no" } }, 400));
    const poor = await bench.spender(`poor-${dialect}`, { points: 2, drained: true });
    await poor.post(path, { ...body, model: DEAR, max_new_tokens: 1_000_000 });
    expect(`${JSON.stringify(upstream.requests.at(-1)!.json).slice(0, -1)},`).toContain(sent);
  });
});

describe("what is held", () => {
  test("the least limit where tools in `extra` send a chat to Responses", async () => {
    const upstream = await backend("both", { dialects: ["chat", "responses"] }, [GPT]);
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
    const leastBudget = async (more: object): Promise<number> => {
      for (let usd = 0.0002; ; usd *= 1.1) {
        const { key } = await keyOf(who, { total_budget_usd: usd });
        if ((await who.chat({ model: GPT, max_tokens: 1, ...more }, { key })).ok) return usd;
      }
    };
    const beside = await leastBudget({ tools });
    expect(upstream.requests.at(-1)!.path).toEndWith("/responses");
    expect(await leastBudget({ extra: { tools } })).toBeCloseTo(beside, 4);
    const [{ implausible_usage }] = (await bench.backends()).backends.health;
    expect(implausible_usage ?? null).toBeNull();
  });

  test("all of an image, whatever the pace of its key", async () => {
    const upstream = await backend("pictures", { capabilities: ["chat", "images"] });
    const usage = { input_tokens: 10, output_tokens: 6_240, total_tokens: 6_250 };
    upstream.answer((_, reply) => reply.json({ data: [{ b64_json: "aGk=" }], usage }));
    const image = async (person: Spender, limits: object) => {
      const { key } = await keyOf(person, limits);
      return (await person.post("/v1/images/generations", { model: DEAR, prompt: "a fjord" }, { key }))
        .status;
    };
    const poor = await bench.spender("poor", { points: 5, drained: true });
    expect([
      await image(who, { total_budget_usd: 0.05 }),
      await image(who, { total_budget_usd: 0.05, tokens_per_minute: 1_000 }),
      await image(poor, {}),
      await image(poor, { tokens_per_minute: 1_000 }),
    ]).toEqual([402, 429, 402, 429]);
    expect(upstream.requests).toHaveLength(0);
    expect(await image(who, { tokens_per_minute: 100_000 })).toBe(200);
  });
});

test("calls of a vendor's tools in an attempt that failed are not charged with the next one", async () => {
  const config = { dialects: ["responses"], tool_prices: { web_search: 0.01 } };
  const failing = await backend("failing", config);
  await backend("working", config, [GPT]);
  const event = (data: { type: string }) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
  const call = { id: "w", type: "web_search_call" };
  const failed = { status: "failed", error: { code: "server_error", message: "boom" } };
  failing.answer(({ json }, reply) =>
    json.stream
      ? reply.stream([
          event({ type: "response.output_item.added", item: call } as { type: string }).repeat(3),
          event({ type: "response.failed", response: failed } as { type: string }),
        ])
      : reply.json({ ...failed, output: [call, call], usage: null }),
  );
  const response = { status: "completed", output: [], usage: { input_tokens: 10, output_tokens: 10 } };
  upstreams
    .get("working")!
    .answer(({ json }, reply) =>
      json.stream
        ? reply.stream([event({ type: "response.completed", response } as { type: string })])
        : reply.json(response),
    );
  const targets = [
    { model: DEAR, backend: "failing", order: 1 },
    { model: GPT, backend: "working", order: 2 },
  ];
  await bench.rpc("routes.set", { name: "tooled", targets }, bench.token);
  for (const stream of [false, true]) {
    const asked = { model: "tooled", stream, store: false, input: "hi", max_output_tokens: 100 };
    const answer = await who.post("/v1/responses", { ...asked, tools: [SEARCH] });
    expect((await answer.text()).length).toBeGreaterThan(0);
    expect(answer.headers.get("x-service-backend")).toBe("working");
    const [row] = await who.rows();
    expect(row!.cost).toBeLessThan(0.01);
  }
  await bench.rpc("routes.delete", { name: "tooled" }, bench.token);
});

describe("a key with a pace", () => {
  test("is told to wait where that helps, and not where nothing does", async () => {
    await backend("chats", { dialects: ["chat"] });
    const slow = await keyOf(who, { tokens_per_minute: 100 });
    expect((await who.chat({ max_tokens: 500 }, slow)).status).toBe(200);
    const again = await who.chat({ max_tokens: 500 }, slow);
    expect([again.status, Number(again.headers.get("retry-after")) > 0]).toEqual([429, true]);
    expect(await again.text()).toContain("wait, set max_tokens");
    const never = await who.chat({ max_tokens: 500 }, await keyOf(who, { tokens_per_minute: 10 }));
    expect([never.status, never.headers.get("retry-after")]).toEqual([429, null]);
    expect(await never.text()).toContain("send less, or have");
  });

  test("waits for the books where other requests hold the points", async () => {
    const upstream = await backend("chats", { dialects: ["chat"] });
    const { promise: goOn, resolve: release } = Promise.withResolvers<void>();
    const usage = { prompt_tokens: 20, completion_tokens: 5 };
    upstream.answer(async ({ json }, reply) => {
      if (json.user === "slow") await goOn;
      await reply.json(completion("ok", { usage }));
    });
    const poor = await bench.spender("held", { points: 1, drained: true });
    const paced = await keyOf(poor, { tokens_per_minute: 250 });
    const first = poor.chat({ max_tokens: 250, user: "slow" });
    for (const deadline = Date.now() + 5_000; upstream.requests.length === 0; await Bun.sleep(5))
      if (Date.now() > deadline) throw new Error("the first request does not arrive");
    const second = await poor.chat({ max_tokens: 500 }, paced);
    expect(second.status).toBe(402);
    expect(await second.text()).toContain("Requests in progress hold");
    release();
    await (await first).text();
    expect((await poor.chat({ max_tokens: 500 }, paced)).status).toBe(200);
  });
});
