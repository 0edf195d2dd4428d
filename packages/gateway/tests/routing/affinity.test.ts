/** A conversation stays with its backend: on every instance, after a restart, and after a turn with another model. */
import { afterEach, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { company, registerBackend, sharings } from "../instances/support.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

describe.each(sharings)("three instances %s", (sharing) => {
  test("ten conversations of six turns, each on another instance, do not move", async () => {
    const { boot, stop } = await company(sharing);
    cleanup.push(stop);
    const upstreams = [startUpstream(), startUpstream({ models: ["m", "only-b"] })];
    for (const upstream of upstreams) cleanup.push(() => upstream.stop());
    const start = async () => {
      const gateway = await boot({ config: { apiRateLimitRpm: 100_000 } });
      cleanup.push(() => gateway.stop());
      return gateway;
    };
    const all = [await start(), await start(), await start()];
    const token = await all[0]!.signIn("ada");
    await all[0]!.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    const { key } = await all[0]!.rpc("keys.create", { name: "test" }, token);
    for (const [at, upstream] of upstreams.entries())
      await registerBackend(all[0]!, { name: `up-${at}`, type: "external", url: upstream.url });
    const healthy = async (gateway: TestGateway) => {
      const answer = await fetch(`${gateway.url}/api/admin/backends`, {
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
      return ((await answer.json()) as { backends: { count: number } }).backends.count;
    };
    const ready = (gateway: TestGateway) =>
      until("it knows both backends", async () => (await healthy(gateway)) === 2);
    await Promise.all(all.map(ready));

    const served = ({ requests }: FakeUpstream) => requests.length;
    /** Which of the two served a turn. */
    const ask = async (gateway: TestGateway, fields: object) => {
      const before = upstreams.map(served);
      const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }], ...fields }),
      });
      expect(answer.status).toBe(200);
      await answer.text();
      return upstreams.findIndex((upstream, at) => served(upstream) > before[at]!);
    };
    const turn = (gateway: TestGateway, conversation_id: string, model = "m") =>
      ask(gateway, { conversation_id, model });
    const homes = new Map<string, number>();
    for (let number = 0; number < 10; number++) {
      const { id } = await all[0]!.rpc("conversations.create", {}, token);
      const home = await turn(all[number % 3]!, id);
      homes.set(id, home);
      for (let at = 1; at < 6; at++) expect(await turn(all[(number + at) % 3]!, id)).toBe(home);
      expect(await turn(all[0]!, id, "only-b")).toBe(1);
      expect(await turn(all[1]!, id)).toBe(home);
    }
    expect(new Set(homes.values()).size).toBe(2);

    const restarted = await start();
    await ready(restarted);
    for (const [id, home] of homes) expect(await turn(restarted, id)).toBe(home);

    // A session that only its client names, or only its prompt, is chosen alike by all of them.
    const system = { role: "system", content: "Be brief" };
    for (let number = 0; number < 10; number++)
      for (const fields of [
        { prompt_cache_key: `s-${number}` },
        { messages: [system, { role: "user", content: `question ${number}` }] },
      ]) {
        const found = new Set<number>();
        for (const gateway of [...all, restarted]) found.add(await ask(gateway, fields));
        expect(found.size).toBe(1);
      }
  });
});
