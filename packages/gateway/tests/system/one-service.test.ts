/** What the service tells is the same whichever process answers, and is told by all as soon as it was changed. */
import { afterEach, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRpcSocketServer } from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import type { Config } from "../../src/config.ts";
import { company, registerBackend, type Sharing, sharings } from "../instances/support.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

async function openService(sharing: Sharing, config: Partial<Config> = {}) {
  const { boot, stop } = await company(sharing);
  cleanup.push(stop);
  const start = async () => {
    const gateway = await boot({ config });
    cleanup.push(() => gateway.stop());
    return gateway;
  };
  const all = [await start()];
  const startedMs = Date.now();
  all.push(await start(), await start());
  const token = await all[0]!.signIn("ada");
  await all[0]!.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const { key } = await all[0]!.rpc("keys.create", { name: "test" }, token);
  const upstream = startUpstream();
  cleanup.push(() => upstream.stop());
  await registerBackend(all[0]!, { name: "up", type: "external", url: upstream.url });
  const chat = async (gateway: TestGateway, content = "hi") => {
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content }] }),
    });
    await answer.text();
    return answer.status;
  };
  return { all, start, startedMs, token, upstream, chat };
}

describe.each(sharings)("three instances %s", (sharing) => {
  test("tell the same figures, also one that joins later, and when one has gone", async () => {
    const { all, start, startedMs, token, chat } = await openService(sharing);
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

  test("know of a change as soon as one of them has answered it", async () => {
    const { all, token, upstream } = await openService(sharing);
    const backendsOf = async ({ url }: TestGateway): Promise<string[]> => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
      const { backends } = await (await fetch(`${url}/api/admin/backends`, { headers })).json();
      return backends.health.map(({ name }: { name: string }) => name);
    };
    const routesOf = async (gateway: TestGateway): Promise<string[]> =>
      (await gateway.rpc("routes.list", {}, token)).map(({ name }: { name: string }) => name);
    const backends: string[] = ["up"];
    const routes: string[] = [];
    for (let round = 0; round < 6; round++) {
      const gateway = all[round % 3]!;
      const name = `n${round}`;
      backends.push(name);
      routes.push(name);
      await registerBackend(gateway, { name, type: "external", url: upstream.url });
      for (const known of await Promise.all(all.map(backendsOf))) expect(known).toEqual(backends);
      await gateway.rpc("routes.set", { name, targets: [{ model: "m" }] }, token);
      for (const known of await Promise.all(all.map(routesOf))) expect(known).toEqual(routes);
      const value = String(1_000 + round);
      await gateway.rpc("settings.update", { name: "SERVICE_API_RATE_LIMIT_RPM", value }, token);
      for (const each of all) {
        const settings = await each.rpc<{ name: string; value: string }[]>("settings.list", {}, token);
        expect(settings.find((setting) => setting.name === "SERVICE_API_RATE_LIMIT_RPM")?.value).toBe(value);
      }
    }
    while (backends.length > 1) {
      const gateway = all[backends.length % 3]!;
      const name = backends.pop()!;
      await gateway.rpc("backends.remove", { name }, token);
      for (const known of await Promise.all(all.map(backendsOf))) expect(known).toEqual(backends);
    }
  });

  test("have metrics that add up: requests, charges and circuits are counted once", async () => {
    const { all, token, upstream, chat } = await openService(sharing);
    await all[0]!.rpc("billing.prices.set", { model: "m", input_usd: 1, output_usd: 1 }, token);
    const known = async () =>
      (await Promise.all(all.map((each) => chat(each)))).every((code) => code === 200);
    await until("all serve", known);
    /** A worker's scrape has the figures of all; an instance's only its own. */
    const sum = async (metric: string, label: string) => {
      const scraped = sharing === "as workers" ? [all[1]!] : all;
      const texts = await Promise.all(scraped.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()));
      return texts
        .flatMap((text) => text.split("\n"))
        .filter((line) => line.startsWith(`${metric}{`) && line.includes(label))
        .reduce((total, line) => total + Number(line.split(" ").at(-1)), 0);
    };
    const ok = () => sum("gateway_inference_requests_total", 'outcome="ok"');
    const before = await ok();
    /** Each instance settles its own requests, a moment after they were answered. */
    const records = async () => (await all[2]!.rpc("usage.list", { limit: 200 }, token)).records;
    for (let i = 0; i < 9; i++) expect(await chat(all[i % 3]!)).toBe(200);
    expect(await ok()).toBe(before + 9);
    await until("all are settled", async () => (await records()).length === before + 9);
    const charged = (await records()).reduce((total: number, { cost }: { cost: number }) => total + cost, 0);
    await until("charges are counted", async () => {
      const counted = await sum("gateway_cost_usd_total", 'model="m"');
      return Math.abs(counted - charged) < 1e-9;
    });
    upstream.answer((_, reply) => reply.json({ error: { message: "broken" } }, 500));
    for (let i = 0; i < 3; i++) await chat(all[i]!, `question ${i}`);
    expect(await sum("gateway_backend_circuit_changes_total", 'to="open"')).toBe(1);
  });

  test("tell a person's memory events newest first, also one that joins later", async () => {
    const server = startRpcSocketServer(() => ({ items: [] }));
    cleanup.push(() => server.stop());
    const { all, start, token, chat } = await openService(sharing, { memoryUrl: server.url });
    interface Event {
      at: string;
      kind: string;
    }
    const events = async (gateway: TestGateway): Promise<Event[]> =>
      (await gateway.rpc("memory.status", {}, token)).events;
    for (let i = 0; i < 6; i++) expect(await chat(all[i % 3]!, `my cat ${i}`)).toBe(200);
    await until("all turns were recalled for", async () => (await events(all[0]!)).length >= 6);
    await until("no more events come", async () => {
      const [first, ...others] = await Promise.all([...all, ...all].map(events));
      return others.every((each) => Bun.deepEquals(each, first));
    });
    const told = await events(all[0]!);
    expect(told.map(({ at }) => at)).toEqual(
      told
        .map(({ at }) => at)
        .toSorted()
        .reverse(),
    );
    expect(await events(await start())).toEqual(told);
  });
});
