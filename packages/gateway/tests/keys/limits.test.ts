import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { freshDatabase, kinds } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk } from "@model-gateway/testing/upstream.ts";
import { bootSpending, costUsd, DEAR, honestUpstream, type SpendingBench } from "../support/spending.ts";

const CHEAP = "homemade";

interface Made {
  id: string;
  key: string;
  chat(body?: Record<string, unknown>): Promise<Response>;
  post(path: string, body: unknown): Promise<Response>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  listed(): Promise<any>;
}

describe.each(kinds)("limits of a key on %s", (kind) => {
  let bench: SpendingBench;
  let drop: () => Promise<void>;
  beforeAll(async () => {
    const fresh = await freshDatabase(kind);
    ({ drop } = fresh);
    bench = await bootSpending({ config: { databaseUrl: fresh.options.databaseUrl } });
    await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
  });
  afterAll(async () => {
    await bench.stop();
    await drop();
  });

  async function make(limits: Record<string, unknown> = {}): Promise<Made> {
    const { id, key } = await bench.rpc("keys.create", { name: "k", ...limits }, bench.token);
    const post = (path: string, body: unknown) =>
      bench.post(path, body, { headers: { authorization: `Bearer ${key}` } });
    return {
      id,
      key,
      post,
      chat: (body = {}) =>
        post("/v1/chat/completions", {
          model: DEAR,
          messages: [{ role: "user", content: "hi" }],
          max_tokens: 1_000,
          ...body,
        }),
      listed: async () =>
        (await bench.rpc("keys.list", {}, bench.token)).find((each: { id: string }) => each.id === id),
    };
  }
  const update = (key_id: string, changes: Record<string, unknown>) =>
    bench.rpc("keys.update", { key_id, ...changes }, bench.token);
  const errorOf = async (answer: Response) =>
    ((await answer.json()) as { error: Record<string, string> }).error;

  test("are given, shown, changed one by one, and taken away", async () => {
    const limits = {
      expires_at: "2031-01-31T12:00:00.000Z",
      monthly_budget_usd: 12.345678901,
      total_budget_usd: 0,
      allowed_models: ["A", "b"],
      requests_per_minute: 7,
      tokens_per_minute: 9_000,
    };
    const made = await bench.rpc(
      "keys.create",
      { name: "k", ...limits, expires_at: "2031-01-31T13:00:00+01:00", allowed_models: ["A", "b", "B "] },
      bench.token,
    );
    expect(made).toMatchObject({ ...limits, allowed_models: ["A", "B"] });
    expect(made.key).toStartWith("service-");
    expect(await update(made.id, { name: "renamed", allowed_models: ["c"] })).toMatchObject({
      ...limits,
      name: "renamed",
      allowed_models: ["c"],
    });
    const nothing = Object.fromEntries(Object.keys(limits).map((name) => [name, null]));
    expect(await update(made.id, nothing)).toMatchObject({ ...nothing, name: "renamed" });
    const [listed] = (await bench.rpc("keys.list", {}, bench.token)).filter(
      ({ id }: { id: string }) => id === made.id,
    );
    expect(listed).toMatchObject({
      ...nothing,
      active: true,
      last_used_at: null,
      spent_month_usd: 0,
      spent_total_usd: 0,
      last_refusal: null,
    });
    expect(listed.key).toBeUndefined();
  });

  test("that make no sense are refused by name", async () => {
    const { id } = await make();
    const wrong: [string, unknown[]][] = [
      ["monthly_budget_usd", [-1, -1e-9, 1_000_001, 1e308, "10", true]],
      ["total_budget_usd", [-0.5, 2e6, {}]],
      ["requests_per_minute", [0, -1, 1.5, 1e9, "3"]],
      ["tokens_per_minute", [0, -5, 0.5, 1e12]],
      ["allowed_models", [[], [""], ["x".repeat(257)], "m", [1], Array(101).fill("m")]],
      [
        "expires_at",
        ["2020-01-01T00:00:00Z", "tomorrow", 5, "2030-02-30T00:00:00Z", "9999-12-31T23:59:59-23:59"],
      ],
    ];
    for (const [field, values] of wrong) {
      for (const value of values) {
        for (const [method, params] of [
          ["keys.create", { name: "k", [field]: value }],
          ["keys.update", { key_id: id, [field]: value }],
        ] as const) {
          const { error } = await bench.call(method, params, bench.token);
          expect(error, `${method} ${field} ${JSON.stringify(value)}`).toMatchObject({ code: -32602 });
          expect(error.message).toContain(field);
        }
      }
    }
    const stranger = await bench.signIn("eve");
    const theirs = await bench.call("keys.update", { key_id: id, monthly_budget_usd: null }, stranger);
    expect(theirs.error.message).toContain("Key not found");
    await bench.rpc("keys.revoke", { key_id: id }, bench.token);
    expect((await bench.call("keys.update", { key_id: id, name: "x" }, bench.token)).error.message).toContain(
      "revoked",
    );
  });

  test("an expired key is a 401 that says so, until its owner extends it", async () => {
    const made = await make({ expires_at: new Date(Date.now() + 1_500).toISOString() });
    expect((await made.chat()).status).toBe(200);
    await until("it has expired", async () => (await made.chat()).status === 401);
    const answer = await made.chat();
    expect(answer.headers.get("x-should-retry")).toBe("false");
    const text = await answer.text();
    expect(text).toContain("expired on");
    expect(text).toContain("keys.update");
    const spoken = await made.post("/v1/messages", {
      model: DEAR,
      max_tokens: 10,
      messages: [{ role: "user", content: "hi" }],
    });
    expect(spoken.status).toBe(401);
    expect(await spoken.text()).toContain("expired on");
    expect((await made.listed()).last_refusal).toMatchObject({
      code: "unauthorized",
      message: expect.stringContaining("expired"),
      at: expect.any(String),
    });
    await update(made.id, { expires_at: null });
    expect((await made.chat()).status).toBe(200);
  });

  test("only allowed models, through aliases and routes, on every surface", async () => {
    expect((await bench.admin("POST", "/aliases", { alias: "nickname", target: DEAR })).status).toBe(200);
    await bench.rpc(
      "routes.set",
      { name: "both", targets: [{ model: DEAR }, { model: CHEAP, order: 2 }] },
      bench.token,
    );
    await bench.rpc("routes.set", { name: "dear-only", targets: [{ model: DEAR }] }, bench.token);
    const made = await make({ allowed_models: [CHEAP.toUpperCase()] });
    const messages = [{ role: "user", content: "hi" }];
    const doors: [string, (model: string) => unknown][] = [
      ["/v1/chat/completions", (model) => ({ model, messages })],
      ["/v1/chat/completions", (model) => ({ model, messages, stream: true })],
      ["/v1/embeddings", (model) => ({ model, input: "hi" })],
      ["/v1/responses", (model) => ({ model, input: "hi" })],
      ["/v1/messages", (model) => ({ model, messages, max_tokens: 5 })],
      ["/v1/completions", (model) => ({ model, prompt: "hi" })],
      ["/api/chat", (model) => ({ model, messages })],
      ["/api/generate", (model) => ({ model, prompt: "hi" })],
      ["/api/embed", (model) => ({ model, input: "hi" })],
      ["/v1/video/generations", (model) => ({ model, prompt: "hi" })],
    ];
    const before = bench.upstream.requests.length;
    for (const [path, body] of doors) {
      for (const model of [DEAR, "nickname", "NickName", `${DEAR}:latest`, "dear-only"]) {
        // Videos have no model routes.
        if (path.includes("video") && model === "dear-only") continue;
        const answer = await made.post(path, body(model));
        const text = await answer.text();
        expect(answer.status, `${path} ${model}: ${text}`).toBe(403);
        expect(text).toContain("key");
      }
    }
    expect((await made.chat({ model: "\u0000dear" })).status).toBe(403);
    expect(bench.upstream.requests.length).toBe(before);
    expect((await made.listed()).last_refusal).toMatchObject({ code: "model_not_allowed" });
    expect((await made.chat({ model: CHEAP })).status).toBe(200);
    const routed = await made.chat({ model: "both" });
    expect(routed.status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.json.model).toBe(CHEAP);
    // An edit holds for the next request.
    await update(made.id, { allowed_models: [CHEAP, DEAR] });
    expect((await made.chat({ model: "nickname" })).status).toBe(200);
  });

  test("requests and tokens a minute are 429s with Retry-After that name the limit", async () => {
    const made = await make({ requests_per_minute: 2 });
    const statuses = await Promise.all(Array.from({ length: 10 }, async () => (await made.chat()).status));
    expect(statuses.filter((status) => status === 200)).toHaveLength(2);
    const slow = await made.chat();
    expect(slow.status).toBe(429);
    expect(Number(slow.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await errorOf(slow)).toMatchObject({
      code: "rate_limit_exceeded",
      limit: "requests_per_minute",
      message: expect.stringContaining("More than 2 requests a minute"),
    });
    await update(made.id, { requests_per_minute: null, tokens_per_minute: 1_500 });
    expect((await made.chat()).status).toBe(200);
    const tokens = await made.chat();
    expect(tokens.status).toBe(429);
    expect(Number(tokens.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await errorOf(tokens)).toMatchObject({ limit: "tokens_per_minute" });
    expect((await made.listed()).last_refusal.message).toContain("1500 tokens a minute");
    await update(made.id, { tokens_per_minute: null });
    expect((await made.chat()).status).toBe(200);
  });

  test("of 200 requests at once on a budget for ten, ten are served, and the books agree", async () => {
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    let servedUsd = 0;
    const honest = honestUpstream((tokens) => {
      servedUsd += costUsd(tokens);
    });
    bench.upstream.answer(async (request, reply) => {
      await released;
      await honest(request, reply);
    });
    const made = await make({ total_budget_usd: 0.305 });
    let refused = 0;
    const answers = Array.from({ length: 200 }, async (_, i) => {
      const answer = await made.chat({ stream: i % 2 === 0 });
      if (answer.status !== 200) {
        expect(answer.status).toBe(402);
        expect(await errorOf(answer)).toMatchObject({
          type: "insufficient_credits",
          code: "payment_required",
          limit: "total_budget_usd",
        });
        if (++refused === 190) release();
      } else await answer.text();
      return answer.status;
    });
    const statuses = await Promise.all(answers);
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect(servedUsd).toBeLessThanOrEqual(0.305);
    const listed = await made.listed();
    expect(listed.spent_total_usd).toBeCloseTo(servedUsd, 9);
    expect(listed.spent_month_usd).toBeCloseTo(servedUsd, 9);
    expect(Date.parse(listed.last_used_at)).toBeGreaterThan(Date.now() - 60_000);
    expect((await made.chat()).status).toBe(402);
    // Raised by exactly one more.
    await update(made.id, { total_budget_usd: 0.335 });
    const more = await Promise.all(Array.from({ length: 20 }, async () => (await made.chat()).status));
    expect(more.filter((status) => status === 200)).toHaveLength(1);
    bench.upstream.answer(honest);
    // Other keys of the same person are not limited by it.
    expect((await (await make()).chat()).status).toBe(200);
  });

  test("an answer is limited to what is left, and says so", async () => {
    const made = await make({ monthly_budget_usd: 0.02 });
    const answer = await made.chat({ max_tokens: 5_000 });
    expect(answer.status).toBe(200);
    expect(Number(answer.headers.get("x-service-max-tokens"))).toBeLessThan(667);
    const over = await made.chat({ max_tokens: 5_000 });
    expect(over.status).toBe(429);
    expect(Number(over.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await errorOf(over)).toMatchObject({ code: "quota_exceeded", limit: "monthly_budget_usd" });
  });

  test("an answer that has to be limited gets no more than the client asks for, in whatever field", async () => {
    for (const limit of [{ monthly_budget_usd: 0.02 }, { tokens_per_minute: 1_000 }]) {
      const made = await make(limit);
      const answers = await Promise.all(
        [1, 5, 20].map((num_predict) => made.chat({ max_tokens: undefined, num_predict })),
      );
      expect(answers.map(({ headers }) => headers.get("x-service-max-tokens"))).toEqual(["1", "5", "20"]);
    }
  });

  test("a key that is revoked in mid-stream is charged for what it got, and refused from then on", async () => {
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "half an answer " } }));
    });
    const made = await make({ total_budget_usd: 1, tokens_per_minute: 100_000 });
    const answer = await made.chat({ stream: true, max_tokens: 100 });
    await bench.rpc("keys.revoke", { key_id: made.id }, bench.token);
    expect((await made.chat()).status).toBe(401);
    expect(await answer.text()).toContain("half an answer");
    await until("it is charged", async () => (await made.listed()).spent_total_usd > 0);
    // The prompt, and what the model can have written by then: at most the hundred tokens that were held.
    expect((await made.listed()).spent_total_usd).toBeLessThan(0.005);
    expect(bench.app.rooms.metering).toMatchObject({ holdCount: 0 });
    bench.upstream.answer(honestUpstream(() => {}));
  });
});
