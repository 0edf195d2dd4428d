/** `system.status` and `memory.status` are about the service, whichever process answers. */
import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { Activity } from "../../src/rooms/memory/activity.ts";
import { company, registerBackend, sharings } from "../instances/support.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

describe.each(sharings)("three instances %s", (sharing) => {
  test("tell the same figures, also one that joins later, and when one has gone", async () => {
    const { boot, stop } = await company(sharing);
    cleanup.push(stop);
    const upstream = startUpstream();
    cleanup.push(() => upstream.stop());
    const start = async () => {
      const gateway = await boot();
      cleanup.push(() => gateway.stop());
      return gateway;
    };
    const all = [await start()];
    const startedMs = Date.now();
    all.push(await start(), await start());
    const token = await all[0]!.signIn("ada");
    await all[0]!.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    const { key } = await all[0]!.rpc("keys.create", { name: "test" }, token);
    await registerBackend(all[0]!, { name: "up", type: "external", url: upstream.url });
    const chat = async (gateway: TestGateway) => {
      const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }),
      });
      await answer.text();
      return answer.status;
    };
    for (let i = 0; i < 20; i++) await chat(all[i % 3]!);
    for (const gateway of all) {
      const booked = async () => (await gateway.rpc("usage.list", {}, token)).records.length;
      await until("all are in the books", async () => (await booked()) === 20);
      const { minutes } = await gateway.rpc("system.activity", {}, token);
      expect(minutes.reduce((sum: number, { ok }: { ok: number }) => sum + ok, 0)).toBe(20);
    }
    const figures = (gateways: readonly TestGateway[]) =>
      Promise.all(gateways.map((gateway) => gateway.rpc("system.status", {}, token)));
    const agree = (gateways: readonly TestGateway[], total: number) =>
      until(`all tell ${total}`, async () =>
        (await figures(gateways)).every(({ requests_total }) => requests_total === total),
      );
    await agree(all, 20);
    for (const { requests_per_minute } of await figures(all)) expect(requests_per_minute).toBe(20);

    const late = await start();
    await agree([late], 20);
    const upForSeconds = Math.floor((Date.now() - startedMs) / 1000);
    expect((await late.rpc("system.status", {}, token)).uptime_seconds).toBeGreaterThanOrEqual(upForSeconds);
    await all.pop()!.stop();
    await chat(late);
    await agree([...all, late], 21);
  });
});

test("memory events are newest first by their time, not by when they were heard of", () => {
  const bus = new InProcessBus();
  const activity = new Activity({ bus, clock: new ManualClock() });
  const event = { kind: "recall", outcome: "ok", count: 0, node_ids: [], duration_ms: 1, detail: null };
  for (const second of [2, 4, 3, 1]) {
    const at = `2026-01-01T00:00:0${second}.000Z`;
    bus.publish("memory-activity", JSON.stringify({ userId: "u", event: { at, ...event } }));
  }
  expect(activity.of("u").map(({ at }) => Number(at.slice(17, 19)))).toEqual([4, 3, 2, 1]);
});
