/** The index of a backend is its own: on every instance, before and after a restart, whatever else changes. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { deployedBefore, dialRaw, serveTunnel } from "../agents/support.ts";
import { type Company, company, sharings } from "../instances/support.ts";

type Listed = readonly (readonly [index: number, name: string])[];

async function admin(gateway: TestGateway, method: string, body?: unknown): Promise<Response> {
  return fetch(`${gateway.url}/api/admin/backends`, {
    method,
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
}

/** As the labels say it. */
async function listed(gateway: TestGateway): Promise<Listed> {
  const { backends } = (await (await admin(gateway, "GET")).json()) as {
    backends: { health: { label: string; index: number; name: string }[] };
  };
  return backends.health.map(({ label, index, name }) => {
    expect(label).toStartWith(`backend_${index}:`);
    return [index, name] as const;
  });
}

describe.each(sharings)("two instances %s", (sharing) => {
  let together: Company;
  let upstream: FakeUpstream;
  let a: TestGateway;
  let b: TestGateway;
  const started: TestGateway[] = [];
  const boot = async () => {
    const gateway = await together.boot();
    started.push(gateway);
    return gateway;
  };
  beforeEach(async () => {
    together = await company(sharing);
    upstream = startUpstream();
    [a, b] = await Promise.all([boot(), boot()]);
  });
  afterEach(async () => {
    await Promise.all(started.splice(0).map((gateway) => gateway.stop()));
    upstream.stop();
    await together.stop();
  });

  const register = async (gateway: TestGateway, name: string): Promise<number> => {
    const answer = await admin(gateway, "POST", { name, type: "external", url: upstream.url });
    return ((await answer.json()) as { index: number }).index;
  };
  const untilAgreed = async (names: readonly string[]): Promise<Listed> => {
    const wanted = names.toSorted().join();
    const agrees = async (gateway: TestGateway) =>
      (await listed(gateway))
        .map(([, name]) => name)
        .toSorted()
        .join() === wanted;
    await until("both know them all", async () => (await agrees(a)) && (await agrees(b)));
    const list = await listed(a);
    expect(await listed(b)).toEqual(list);
    return list;
  };
  const remove = async (gateway: TestGateway, index: number): Promise<number> =>
    (await admin(gateway, "DELETE", { index })).status;

  test("eight registered at once have one order, which a restart and changes do not change", async () => {
    const names = Array.from({ length: 8 }, (_, at) => `p${at}`);
    const told = await Promise.all(names.map((name, at) => register(at % 2 ? a : b, name)));
    const list = await untilAgreed(names);
    expect(list.map(([index]) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    // One that a busy database did not take in time was told a number for the time being.
    const kept = told.map((index, at) => [index, names[at]!] as const).filter(([index]) => index < 1_000_000);
    expect(list).toEqual(expect.arrayContaining(kept.map(([index, name]) => [index, name])));
    const late = await boot();
    expect(await listed(late)).toEqual(list);

    // The same name again keeps its place; on whichever instance it comes.
    expect(await register(b, "p3")).toBe(list.find((each) => each[1] === "p3")![0]);
    expect(await untilAgreed(names)).toEqual(list);
  });

  test("DELETE by an index that was shown removes that one, though others came and went since", async () => {
    for (const name of ["p0", "p1", "p2", "p3"]) await register(a, name);
    const shown = await untilAgreed(["p0", "p1", "p2", "p3"]);
    const at = (name: string) => shown.find((each) => each[1] === name)![0];
    expect(await remove(b, at("p1"))).toBe(200);
    expect(await remove(a, at("p3"))).toBe(200);
    await register(b, "p4");
    await register(a, "p1");
    // Both were removed, and neither index is another backend's now.
    expect(await remove(a, at("p1"))).toBe(404);
    expect(await remove(b, at("p3"))).toBe(404);
    expect(await remove(a, at("p2"))).toBe(200);
    const left = await untilAgreed(["p0", "p1", "p4"]);
    expect(left).toEqual([
      [0, "p0"],
      [4, "p4"],
      [5, "p1"],
    ]);
  });

  test("an instance that has not heard of a change yet removes the right one", async () => {
    const stale = b.app.rooms.routing;
    for (const name of ["p0", "p1"]) await register(a, name);
    const shown = await untilAgreed(["p0", "p1"]);
    // As if what the other one says were still on its way.
    const heard = stale.reload;
    stale.reload = async () => {};
    expect(await register(a, "p2")).toBe(2);
    expect(await listed(b)).toEqual(shown);
    expect(await remove(b, 2)).toBe(200);
    expect(await remove(a, 0)).toBe(200);
    expect(await register(a, "p0")).toBe(3);
    expect(await listed(b)).toEqual(shown);
    expect(await remove(b, 0)).toBe(404);
    stale.reload = heard;
    await stale.reload();
    expect(await untilAgreed(["p0", "p1"])).toEqual([
      [1, "p1"],
      [3, "p0"],
    ]);
  });

  test("models on nodes have an index like all others, and keep it while the node is away", async () => {
    const token = await a.signIn("ada");
    await register(a, "p0");
    const node = await a.rpc("agents.register", { machine_name: "n", version: "1" }, token);
    await deployedBefore(a, node.agent_id, "tiny", "small");
    const dial = async (models: string[]) => {
      const raw = await dialRaw(a, node.token);
      serveTunnel(raw, { baseUrl: upstream.url, apiKey: null });
      await raw.hello({ models: models.map((model_id, at) => ({ model_id, port: 20_000 + at })) });
      return raw;
    };
    const first = await dial(["tiny"]);
    await untilAgreed(["p0", "agent-tiny"]);
    await register(b, "p1");
    const shown = await untilAgreed(["p0", "agent-tiny", "p1"]);
    expect(shown).toEqual([
      [0, "p0"],
      [1, "agent-tiny"],
      [2, "p1"],
    ]);
    first.socket.close();
    await untilAgreed(["p0", "p1"]);
    expect(await remove(b, 1)).toBe(404);
    const second = await dial(["small", "tiny"]);
    const again = await untilAgreed(["p0", "agent-tiny", "p1", "agent-small"]);
    expect(again).toEqual([...shown, [3, "agent-small"]]);
    const refused = await admin(b, "DELETE", { index: 1 });
    expect(refused.status).toBe(409);
    expect(await refused.text()).toContain("agents.stop");
    expect(await untilAgreed(["p0", "agent-tiny", "p1", "agent-small"])).toEqual(again);
    second.socket.close();
  });
});
