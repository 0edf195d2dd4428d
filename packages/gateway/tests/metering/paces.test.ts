import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { Paces } from "../../src/rooms/metering/paces.ts";

test("a stored answer of many choices does not make a model look fast", () => {
  const paces = new Paces();
  const one = { model: "m", tokens: 2_000, ms: 20_000 };
  const fifty = { model: "m", tokens: 20_000, ms: 400 };
  paces.learn([one, fifty]);
  expect(paces.tokensIn("m", 1_000)).toBe(100);
  paces.learn([fifty, one, fifty, one, { ...one, ms: 10_000 }]);
  expect(paces.tokensIn("m", 1_000)).toBe(200);
  paces.learn([]);
  expect(paces.tokensIn("m", 1_000)).toBe(100);
});

test("how fast a model writes is known to a process that has not seen it write", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "paces-"));
  const upstream = startUpstream({ models: ["m"] });
  let arrivedMs = 0;
  upstream.answer(async ({ json }, reply) => {
    arrivedMs = performance.now();
    if (json.stream) return;
    const usage = { prompt_tokens: 5, completion_tokens: 100_000, total_tokens: 100_005 };
    await reply.json({ choices: [{ message: { role: "assistant", content: "Yes." } }], usage });
  });
  let gateway = await bootGateway({ dataDir, deployment: null });
  try {
    const token = await gateway.signIn("ada");
    const { key } = await gateway.rpc("keys.create", { name: "k" }, token);
    const plan = { user_email: "ada@example.com", tier: "enterprise" };
    await gateway.rpc("billing.plan.set", plan, ADMIN_TOKEN);
    const post = (path: string, bearer: string, body: object, signal?: AbortSignal) =>
      fetch(gateway.url + path, {
        method: "POST",
        headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
        body: JSON.stringify(body),
        signal,
      });
    await post("/api/admin/backends", ADMIN_TOKEN, { type: "external", name: "b", url: upstream.url });
    const chat = { model: "m", messages: [{ role: "user", content: "Hi" }], max_tokens: 1_000_000 };
    expect((await post("/v1/chat/completions", key, chat)).status).toBe(200);
    await gateway.stop();

    gateway = await bootGateway({ dataDir, deployment: null });
    arrivedMs = 0;
    const leaving = new AbortController();
    const left = post("/v1/chat/completions", key, { ...chat, stream: true }, leaving.signal).catch(() => {});
    await until("it has been sent for a while", () => arrivedMs > 0 && performance.now() - arrivedMs > 200);
    const seconds = (performance.now() - arrivedMs) / 1_000;
    leaving.abort();
    await left;
    let tokens = 0;
    await until("what was left is charged", async () => {
      const { records, total } = await gateway.rpc("usage.list", {}, token);
      tokens = records[0].completion_tokens;
      return total === 2;
    });
    // 100 a second where nothing is known; no model is taken to write more than 3,000.
    expect(tokens).toBeGreaterThan(1_000 * seconds);
  } finally {
    await gateway.stop();
    upstream.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
});
