import { afterEach, describe, expect, test } from "bun:test";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

/** Real time, with a hand on what happens every minute. */
function steppedClock() {
  const minutely: (() => void)[] = [];
  let offsetMs = 0;
  return {
    clock: {
      now: () => systemClock.now() + offsetMs,
      elapsed: () => systemClock.now() + offsetMs,
      after: systemClock.after,
      every(periodMs: number, task: () => void) {
        if (periodMs === 60_000) minutely.push(task);
        return systemClock.every(periodMs, task);
      },
    },
    nextRound: () => {
      for (const task of minutely) task();
    },
    skip: (ms: number) => {
      offsetMs += ms;
    },
  };
}

let bench: InferenceBench;
afterEach(() => bench.stop());
const stateOf = async (name: string) =>
  (await bench.backends()).backends.health.find((entry: { name: string }) => entry.name === name);

describe("health", () => {
  inOneProcess("is probed at registration and every minute, without spending tokens", async () => {
    const { clock, nextRound } = steppedClock();
    bench = await bootInference({ overrides: { clock } });
    expect(bench.upstream.probeCount).toBe(1);
    bench.upstream.listing((_, reply) => reply.json({ error: "down" }, 500));
    nextRound();
    await until("the probe failed", async () => (await stateOf("first")).state === "Unhealthy");
    expect((await stateOf("first")).last_error).toContain("upstream 500: down");
    const refusal = await bench.chat({});
    expect(refusal.status).toBe(500);
    expect((await refusal.json()).error).toMatchObject({ type: "server_error", code: "internal_error" });
    bench.upstream.listing((_, reply) => reply.json({ data: [{ id: "renamed" }] }));
    nextRound();
    await until("it is back", async () => (await stateOf("first")).state === "Healthy");
    expect((await bench.backends()).models).toEqual(["renamed"]);
    expect(bench.upstream.requests.length).toBe(0);
  });

  test("of an API without a listing is that it answers, when its models are given", async () => {
    bench = await bootInference();
    const silent = startUpstream();
    silent.listing((_, reply) => reply.json({ error: "not here" }, 404));
    await bench.addBackend({ name: "listed", type: "external", url: silent.url, models: ["given"] });
    await bench.admin("POST", "/backends", { name: "unlisted", type: "external", url: silent.url });
    await until("it was probed", async () => (await stateOf("unlisted")).state === "Degraded");
    expect((await stateOf("unlisted")).last_error).toContain("models");
    for (const path of ["listing", "answer"] as const)
      silent[path]((_, reply) => reply.json({ error: "who are you" }, 401));
    await bench.admin("POST", "/backends", {
      name: "locked",
      type: "external",
      url: silent.url,
      models: ["x"],
    });
    await until("it was probed", async () => (await stateOf("locked")).last_error?.includes("401"));
    expect((await stateOf("locked")).state).toBe("Unhealthy");
    silent.stop();
  });

  inOneProcess("a list changed in the database is seen in the next round", async () => {
    const { clock, nextRound } = steppedClock();
    bench = await bootInference({ overrides: { clock } });
    const { db } = bench.app.rooms.routing.options;
    await db.run("DELETE FROM backend_configs WHERE name = 'first'");
    nextRound();
    await until("it is gone", async () => (await bench.backends()).backends.health.length === 0);
    expect((await bench.chat({})).status).toBe(404);
  });
});

describe("failover and circuit", () => {
  test("a backend that cannot be reached is replaced by another one, once", async () => {
    bench = await bootInference();
    const doomed = startUpstream();
    await bench.addBackend({ name: "doomed", type: "external", url: doomed.url });
    doomed.stop();
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++) statuses.push((await bench.chat({})).status);
    expect(statuses.every((status) => status === 200)).toBe(true);
    expect((await stateOf("doomed")).circuit.state).toBe("open");
  });

  test("three failures open the circuit for 30 s, then one call tests it", async () => {
    const { clock, skip } = steppedClock();
    bench = await bootInference({ overrides: { clock } });
    bench.upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
    for (const content of ["a", "b", "c"])
      expect((await bench.chat({ messages: [{ role: "user", content }] })).status).toBe(502);
    expect((await stateOf("first")).circuit).toMatchObject({ state: "open", cause: "upstream 500: broken" });
    const asked = bench.upstream.requests.length;
    expect((await bench.chat({})).status).toBe(500);
    expect(bench.upstream.requests.length).toBe(asked);
    skip(30_000);
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    bench.upstream.answer(async (_, reply) => {
      await held;
      await reply.json({ choices: [], usage: null });
    });
    const trial = bench.chat({});
    await until("the test call is out", () => bench.upstream.requests.length === asked + 1);
    const others = await Promise.all(Array.from({ length: 5 }, () => bench.chat({})));
    expect(others.map(({ status }) => status)).toEqual([500, 500, 500, 500, 500]);
    expect(bench.upstream.requests.length).toBe(asked + 1);
    release();
    expect((await trial).status).toBe(200);
    expect((await stateOf("first")).circuit.state).toBe("closed");
  });

  test("conversations stay with their backend", async () => {
    bench = await bootInference();
    const other = startUpstream();
    await bench.addBackend({ name: "second", type: "external", url: other.url });
    const { id } = await bench.rpc("conversations.create", {}, bench.token);
    for (let i = 0; i < 6; i++) await bench.chat({ conversation_id: id });
    expect([bench.upstream.requests.length, other.requests.length].sort()).toEqual([0, 6]);
    other.stop();
  });
});
