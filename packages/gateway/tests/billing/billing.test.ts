import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { payerOf } from "../../src/rooms/keys/index.ts";
import { bootOn, emailOf, type GatewayOnDatabase } from "../groups/support.ts";

onEachDatabase("billing", (_, kind) => {
  let gateway: GatewayOnDatabase;
  let ann: string;
  beforeAll(async () => {
    gateway = await bootOn(kind);
    ann = await gateway.signIn("ann");
  });
  afterAll(() => gateway.stop());

  const setPlan = (tier: string, name = "ann", bearer: string | undefined = ADMIN_TOKEN) =>
    gateway.call("billing.plan.set", { user_email: emailOf(name), tier }, bearer);

  test("billing.plan says what the tier gives, what was used and what is left", async () => {
    const untouched = {
      quota_cost_usd: 0,
      quota_tokens: 0,
      remaining: { cost_usd: 1, tokens: 100_000 },
      exceeded: false,
    };
    const fresh = await gateway.rpc("billing.plan", {}, ann);
    expect(fresh).toEqual({
      tiers: [
        { name: "free", monthly_usd_quota: 1, monthly_token_quota: 100_000, rpm: 10 },
        { name: "pro", monthly_usd_quota: 20, monthly_token_quota: 5_000_000, rpm: 120 },
        { name: "enterprise", monthly_usd_quota: null, monthly_token_quota: null, rpm: 1000 },
      ],
      current_tier: "free",
      usage: { cost_usd: 0, tokens: 0, requests: 0, quota_cost_usd: 0, quota_tokens: 0 },
      remaining: { cost_usd: 1, tokens: 100_000 },
      quota_exceeded: false,
      windows: { signed_in: untouched, keys: untouched, projects: [] },
      points_balance: 0,
      debt_points: 0,
      points_per_usd: 100,
    });
    const { id: userId } = await gateway.rpc<{ id: string }>("auth.me", {}, ann);
    const { metering, ledger } = gateway.app.rooms;
    const who = await metering.payerOf({ userId });
    const bound = { promptTokens: 1, outputTokensMax: 1, outputTokensMin: 1 };
    const use = async (promptTokens: number, model = "gpt-4o", payer = who) => {
      const admission = await metering.admit({
        requestId: Bun.randomUUIDv7(),
        payer,
        model,
        bound,
        refId: null,
      });
      admission.settle({ backend: "rpc", promptTokens, completionTokens: 0, estimated: false });
    };
    await use(4000);
    expect(await gateway.rpc("billing.plan", {}, ann)).toMatchObject({
      usage: { cost_usd: 0.01, tokens: 4000, requests: 1, quota_cost_usd: 0.01, quota_tokens: 4000 },
      remaining: { cost_usd: 0.99, tokens: 96_000 },
    });
    await ledger.transaction((tx) =>
      ledger.topup(tx, { type: "user", id: userId }, { points: 7, note: null, actor: userId }),
    );
    await use(8000);
    await use(200_000, "unpriced-model");
    expect(await gateway.rpc("billing.plan", {}, ann)).toMatchObject({
      usage: { cost_usd: 0.03, tokens: 212_000, requests: 3, quota_cost_usd: 0.01, quota_tokens: 204_000 },
      remaining: { cost_usd: 0.99, tokens: 0 },
      quota_exceeded: false,
      windows: { signed_in: { exceeded: true }, keys: untouched, projects: [] },
      points_balance: 5,
    });
    // Keys have a window of their own, and are still served.
    const key = { ...who, keyId: crypto.randomUUID(), keyPrefix: "12345678", project: "shop" };
    await use(100_000, "unpriced-model", key);
    expect(await gateway.rpc("billing.plan", {}, ann)).toMatchObject({
      quota_exceeded: true,
      windows: {
        keys: { quota_tokens: 100_000, exceeded: true },
        projects: [{ project: "shop", quota_tokens: 100_000, remaining: { cost_usd: 1, tokens: 0 } }],
      },
    });
  });

  test("billing.plan.set takes effect on keys and people at once", async () => {
    const { key } = await gateway.rpc<{ key: string }>("keys.create", { name: "k" }, ann);
    const { keys, metering } = gateway.app.rooms;
    const { id: userId } = await gateway.rpc<{ id: string }>("auth.me", {}, ann);
    const tiers = async () => [
      payerOf((await keys.authenticate(key))!).tier,
      (await metering.payerOf({ userId })).tier,
      (await gateway.rpc<{ current_tier: string }>("billing.plan", {}, ann)).current_tier,
    ];
    expect(await tiers()).toEqual(["free", "free", "free"]);
    expect((await setPlan("pro")).result).toEqual({ ok: true });
    expect(await tiers()).toEqual(["pro", "pro", "pro"]);
    expect((await setPlan("enterprise")).result).toEqual({ ok: true });
    expect(await gateway.rpc("billing.plan", {}, ann)).toMatchObject({
      remaining: { cost_usd: null, tokens: null },
      quota_exceeded: false,
    });
  });

  test("billing.plan.set refuses what it does not know, and anyone without the admin token", async () => {
    const unknownTier = (await setPlan("gold")).error;
    expect(unknownTier.code).toBe(-32602);
    expect(unknownTier.message).toContain("free, pro, enterprise");
    expect((await setPlan("pro", "nobody")).error).toMatchObject({ code: -32000 });
    for (const bearer of [ann, "", "wrong"]) {
      expect((await setPlan("pro", "ann", bearer)).error).toMatchObject({
        code: -32005,
        message: "admin access required",
      });
    }
  });

  test("video prices are set whole, with the defaults for what is not given", async () => {
    const set = (params: unknown, bearer: string = ADMIN_TOKEN) =>
      gateway.call("billing.video.pricing.set", params, bearer);
    const get = async () =>
      (await gateway.rpc<{ pricing: unknown[] }>("billing.video.pricing.get", {}, ann)).pricing;
    expect(await get()).toEqual([]);
    expect((await set({ model: "video-1" })).result).toEqual({ ok: true });
    const defaults = {
      model: "video-1",
      mode: "per_second_resolution",
      base_price: 0,
      price_per_second: 0,
      price_per_frame: 0,
      resolution_coeff: { "*": 1 },
      currency: "USD",
      enabled: true,
    };
    expect(await get()).toEqual([defaults]);
    const changed = {
      ...defaults,
      mode: "per_frame",
      base_price: 0.25,
      price_per_frame: 0.001,
      resolution_coeff: { "720": 1.5, "*": 1 },
      enabled: false,
    };
    await set(changed);
    await set({ model: "another", mode: "per_call", base_price: 1 });
    expect(await get()).toEqual([
      { ...defaults, model: "another", mode: "per_call", base_price: 1 },
      changed,
    ]);

    const size = { durationSeconds: 10, frames: 240, clips: 1, shortSides: [720], sizeUnclear: false };
    const { billing } = gateway.app.rooms;
    expect(await billing.videoCostNanoUsd("another", size)).toBe(1e9);
    // Without a row, and with one that is switched off: the fallback.
    expect(await billing.videoCostNanoUsd("video-1", size)).toBe(50_000_000);
    expect(await billing.videoCostNanoUsd("unknown", size)).toBe(50_000_000);

    expect((await set({ model: "x", mode: "per_hour" })).error.code).toBe(-32602);
    expect((await set({ model: "x", base_price: -1 })).error.message).toContain("base_price");
    expect((await set({ model: "x", resolution_coeff: { hd: 2 } })).error.message).toContain(
      "resolution_coeff",
    );
    expect((await set({ model: "x" }, ann)).error.code).toBe(-32005);
  });
});
