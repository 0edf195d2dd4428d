/** Points first, then the tier's quota, then the refusal: as a user meets them on every surface that spends. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { completion } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const PRICED = "gpt-4o";
const UNPRICED = "homemade";
/** A dollar of it, at 30 USD per million, is well within the free tier's tokens. */
const DEAR = "gpt-5.5";
/** A dollar in of gpt-4o's 2.5 USD per million prompt tokens. */
const DOLLAR_TOKENS = 400_000;

function secondsToNextMonth(): number {
  const now = new Date();
  return (Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1) - now.getTime()) / 1000;
}

onEachDatabase("money", (fresh) => {
  let database: TestDatabase;
  let bench: InferenceBench;
  let tokens: { prompt_tokens: number; completion_tokens: number; total_tokens: number };

  beforeAll(async () => {
    database = await fresh();
    const { dataDir, databaseUrl } = database.options;
    bench = await bootInference({
      config: { dataDir, databaseUrl },
      upstream: { models: [PRICED, UNPRICED, DEAR] },
    });
    bench.upstream.answer((_, reply) => reply.json(completion("ok", { usage: tokens })));
  });
  afterAll(async () => {
    await bench.stop();
    await database.drop();
  });

  const spend = (promptTokens: number) => {
    tokens = { prompt_tokens: promptTokens, completion_tokens: 0, total_tokens: promptTokens };
  };

  /** Someone on the free tier with a key, and `points` in the wallet. */
  async function person(name: string, points = 0) {
    const token = await bench.signIn(name);
    const { key } = await bench.rpc("keys.create", { name: "k" }, token);
    if (points > 0) {
      const { id } = await bench.rpc("group.create", { name: `lab of ${name}` }, bench.token);
      const email = `${name}@example.com`;
      await bench.rpc("group.members.add", { group_id: id, email }, bench.token);
      await bench.rpc("group.credits.topup", { group_id: id, points }, bench.token);
      await bench.rpc("group.credits.allocate", { group_id: id, user_id: email, points }, bench.token);
    }
    const ask = (path: string, body: object) =>
      bench.post(path, body, { headers: { authorization: `Bearer ${key}` } });
    const chat = (model: string) =>
      ask("/v1/chat/completions", { model, messages: [{ role: "user", content: "hi" }] });
    const rows = async () => {
      const { records } = await bench.rpc("usage.list", {}, token);
      return records;
    };
    return { token, ask, chat, rows, plan: () => bench.rpc("billing.plan", {}, token) };
  }

  const messages = [{ role: "user", content: "hi" }];

  test("a wallet pays in points; what it cannot pay counts against the quota; then REST says 402, RPC -32006", async () => {
    const { token, ask, chat, plan } = await person("payer", 150);
    spend(DOLLAR_TOKENS);
    expect((await chat(PRICED)).status).toBe(200);
    expect(await plan()).toMatchObject({
      points_balance: 50,
      points_per_usd: 100,
      quota_exceeded: false,
      usage: { cost_usd: 1, tokens: DOLLAR_TOKENS, requests: 1 },
      remaining: { cost_usd: 1, tokens: 100_000 },
    });
    // A dollar more than the 50 points that are left: the whole request goes to the quota.
    expect((await chat(PRICED)).status).toBe(200);
    expect(await plan()).toMatchObject({
      points_balance: 50,
      quota_exceeded: true,
      usage: { cost_usd: 2, requests: 2 },
      remaining: { cost_usd: 0, tokens: 0 },
    });
    const rows = await bench.app.rooms.usage.store.db.all<{
      points: number | null;
      account_type: string | null;
    }>("SELECT points, account_type FROM usage_records ORDER BY created_at, id");
    expect(rows).toEqual([
      { points: 100, account_type: "user" },
      { points: null, account_type: null },
    ]);
    // No price: points cannot pay for it, and the quota is gone.
    const refused = [await chat(UNPRICED), await ask("/v1/embeddings", { model: UNPRICED, input: "x" })];
    for (const answer of refused) {
      expect(answer.status).toBe(402);
      expect(Math.abs(Number(answer.headers.get("retry-after")) - secondsToNextMonth())).toBeLessThan(60);
      const { error } = (await answer.json()) as { error: Record<string, string> };
      expect({ type: error.type, code: error.code }).toEqual({
        type: "insufficient_credits",
        code: "payment_required",
      });
    }
    const { error } = await bench.call("chat.send", { model: UNPRICED, messages }, token);
    expect(error.code).toBe(-32006);
    // What the points still cover passes.
    spend(1_000);
    expect((await chat(PRICED)).status).toBe(200);
  });

  test("someone who never had points gets 429 until the month ends, on RPC -32006", async () => {
    const { token, chat, rows, plan } = await person("free");
    spend(100_000);
    expect((await chat(UNPRICED)).status).toBe(200);
    expect((await rows())[0]).toMatchObject({
      model: UNPRICED,
      backend: "gateway",
      cost: null,
      ref_id: null,
    });
    const answer = await chat(UNPRICED);
    expect(answer.status).toBe(429);
    expect(Math.abs(Number(answer.headers.get("retry-after")) - secondsToNextMonth())).toBeLessThan(60);
    expect(await answer.json()).toMatchObject({ error: { type: "quota_error", code: "quota_exceeded" } });
    const { error } = await bench.call("chat.send", { model: UNPRICED, messages }, token);
    expect(error.code).toBe(-32006);
    expect(error.data).toEqual({ retry_after: expect.any(Number) });
    expect(await plan()).toMatchObject({ current_tier: "free", quota_exceeded: true, points_balance: 0 });
    // A tier without limits opens at once.
    await bench.rpc("billing.plan.set", { user_email: "free@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    expect((await chat(UNPRICED)).status).toBe(200);
    expect(await plan()).toMatchObject({
      quota_exceeded: false,
      remaining: { cost_usd: null, tokens: null },
    });
  });

  test("asking for absurdly many tokens does not open the quota", async () => {
    const { ask, rows } = await person("greedy");
    const greedily = () =>
      ask("/v1/chat/completions", { model: DEAR, messages, max_tokens: 1e308, max_completion_tokens: 1e308 });
    tokens = { prompt_tokens: 0, completion_tokens: 40_000, total_tokens: 40_000 };
    expect((await greedily()).status).toBe(200);
    expect(await rows()).toMatchObject([{ cost: 1.2, total_tokens: 40_000 }]);
    expect((await greedily()).status).toBe(429);
    expect((await ask("/v1/chat/completions", { model: DEAR, messages, max_tokens: 1 })).status).toBe(429);
  });

  test("a group's key draws on the pool by the member's multiplier, and the row says so", async () => {
    const { id } = await bench.rpc("group.create", { name: "pool" }, bench.token);
    await bench.rpc("group.credits.topup", { group_id: id, points: 1_000 }, bench.token);
    const member = await person("member");
    await bench.rpc(
      "group.members.add",
      { group_id: id, email: "member@example.com", cost_multiplier: 1.5 },
      bench.token,
    );
    const { key } = await bench.rpc("keys.create", { name: "g", group_id: id }, member.token);
    spend(DOLLAR_TOKENS);
    const answer = await bench.post(
      "/v1/chat/completions",
      { model: PRICED, messages },
      { headers: { authorization: `Bearer ${key}`, "x-service-ref": " job-7 " } },
    );
    expect(answer.status).toBe(200);
    expect((await member.rows())[0]).toMatchObject({ cost: 1, ref_id: "job-7" });
    expect((await bench.rpc("group.credits.balance", { group_id: id }, bench.token)).balance).toBe(850);
    expect((await member.plan()).points_balance).toBe(0);
    const [row] = await bench.app.rooms.usage.store.db.all(
      "SELECT points, account_type FROM usage_records WHERE ref_id = 'job-7'",
    );
    expect(row).toEqual({ points: 150, account_type: "group" });
  });
});

describe("the per-key limiter", () => {
  test("is 60 a minute by default, for every authenticated request, in plain text without Retry-After", async () => {
    const bench = await bootInference({ config: { apiRateLimitRpm: 60 } });
    try {
      const poll = () =>
        fetch(`${bench.url}/v1/video/generations/${crypto.randomUUID()}`, {
          headers: { authorization: `Bearer ${bench.key}` },
        });
      for (let i = 0; i < 60; i++) expect((await (i % 2 ? poll() : bench.chat({}))).status).not.toBe(429);
      for (const answer of [await poll(), await bench.chat({})]) {
        expect(answer.status).toBe(429);
        expect(await answer.text()).toBe("Rate limit exceeded. Try again later.");
        expect(answer.headers.get("content-type")).toStartWith("text/plain");
        expect(answer.headers.get("retry-after")).toBeNull();
      }
    } finally {
      await bench.stop();
    }
  });
});
