import { afterEach, describe, expect, test } from "bun:test";
import { hurriedClock } from "@model-gateway/testing/clock.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion, startUpstream, wholeStream } from "@model-gateway/testing/upstream.ts";
import type { Log, LogFields } from "../../src/kernel/log.ts";
import { startFakeBridge } from "../support/bridge.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

interface Line extends LogFields {
  message: string;
}

/** A log that keeps what it is told. */
function keptLog(): { log: Log; lines: Line[] } {
  const lines: Line[] = [];
  const write = (message: string, fields: LogFields = {}) => void lines.push({ ...fields, message });
  const log: Log = { debug: write, info: write, warn: write, error: write, with: () => log };
  return { log, lines };
}

let bench: InferenceBench;
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  await bench.stop();
  for (const undo of cleanup.splice(0)) await undo();
});

const entryOf = async (name: string) =>
  (await bench.backends()).backends.health.find((entry: { name: string }) => entry.name === name);
/** The key of someone else. */
const otherKey = async () => {
  const token = await bench.signIn("bob");
  await bench.rpc("billing.plan.set", { user_email: "bob@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const { key } = await bench.rpc("keys.create", { name: "other" }, token);
  return { headers: { authorization: `Bearer ${key}` } };
};
const say = (content: string) => bench.chat({ messages: [{ role: "user", content }] });

describe("what counts against a backend", () => {
  inOneProcess(
    "three failures in a row keep their payer away from the model; the log and metrics say so",
    async () => {
      const { log, lines } = keptLog();
      bench = await bootInference({ overrides: { log }, upstream: { models: ["m", "n"] } });
      const other = await otherKey();
      bench.upstream.answer((_, reply) => reply.json({ error: "tools are not supported" }, 500));
      for (let i = 0; i < 3; i++) expect((await say("a mistake")).status).toBe(502);
      const refused = await say("anything");
      expect(refused.status).toBe(500);
      expect(Number(refused.headers.get("retry-after"))).toBeWithin(1, 31);
      expect((await entryOf("first")).circuit).toMatchObject({ state: "open", model: "m", for_all: false });
      const opened = () => lines.filter(({ message }) => message === "a backend's circuit opened");
      expect(opened()).toMatchObject([
        { backend: "first", model: "m", payer: bench.userId, cause: "upstream 500: tools are not supported" },
      ]);
      const metrics = await (await fetch(`${bench.url}/metrics`)).text();
      expect(metrics).toContain('gateway_backend_circuit_changes_total{backend="first",to="open"} 1');

      expect((await bench.chat({ model: "n" })).status).toBe(502);
      expect((await bench.chat({}, other)).status).toBe(502);
      expect((await bench.chat({}, other)).status).toBe(500);
      expect((await entryOf("first")).circuit).toMatchObject({ state: "open", model: "m", for_all: true });
      bench.upstream.answer((_, reply) => reply.json(completion("well")));
      expect((await bench.chat({ model: "n" })).status).toBe(200);
      expect((await say("still kept away")).status).toBe(500);
    },
  );

  test("one payer's failures do not take the model from others", async () => {
    bench = await bootInference();
    const other = await otherKey();
    bench.upstream.answer(({ json }, reply) =>
      JSON.stringify(json).includes("poison")
        ? reply.json({ error: "broken" }, 500)
        : reply.json(completion("well")),
    );
    for (let i = 0; i < 5; i++) {
      await say("poison");
      expect((await bench.chat({}, other)).status).toBe(200);
    }
    expect((await say("hi")).status).toBe(500);
    expect((await bench.chat({}, other)).status).toBe(200);
  });

  test("501, a conflict and a stream where none was asked for do not", async () => {
    bench = await bootInference();
    bench.upstream.answer((_, reply) => reply.json({ error: "another request changes it" }, 409));
    for (const text of ["a", "b", "c", "d"]) {
      const answer = await say(text);
      expect(answer.status).toBe(502);
      expect(answer.headers.get("x-should-retry")).toBeNull();
    }
    expect((await entryOf("first")).circuit).toMatchObject({ state: "closed", consecutive_failures: 0 });
    bench.upstream.answer((_, reply) => reply.json({ error: "no such feature" }, 501));
    for (const text of ["a", "b", "c", "d"]) {
      const answer = await say(text);
      expect(answer.status).toBe(502);
      expect(answer.headers.get("x-should-retry")).toBe("false");
    }
    expect((await entryOf("first")).circuit).toMatchObject({ state: "closed", consecutive_failures: 0 });
    bench.upstream.answer((_, reply) => reply.stream(wholeStream(["hi"])));
    for (const text of ["a", "b", "c", "d"]) {
      const answer = await say(text);
      expect(answer.status).toBe(502);
      expect((await answer.json()).error.message).toContain("a stream where none was asked for");
    }
    expect((await entryOf("first")).circuit).toMatchObject({ state: "closed", consecutive_failures: 0 });
  });
});

inOneProcess(
  "a bridge backend that comes back on another port starts with a closed circuit",
  async () => {
    const agent = startFakeBridge();
    const [old, next] = [startUpstream({ models: ["far"] }), startUpstream({ models: ["far"] })];
    cleanup.push(
      () => agent.stop(),
      () => old.stop(),
      () => next.stop(),
    );
    agent.services.set("gpu/llm", old.port);
    bench = await bootInference({ config: { bridgeUrl: agent.url }, overrides: { clock: hurriedClock } });
    await bench.addBackend({ name: "far", type: "external", url: "bridge://gpu/llm" });
    old.answer((_, reply) => reply.json({ error: "broken" }, 500));
    for (const content of ["a", "b", "c"])
      expect((await bench.chat({ model: "far", messages: [{ role: "user", content }] })).status).toBe(502);
    expect((await entryOf("far")).circuit.state).toBe("open");
    const entry = bench.app.rooms.routing.entries.find(({ config }) => config.name === "far")!;
    const { circuits } = entry;
    agent.services.set("gpu/llm", next.port);
    old.stop();
    const hasMoved = () => entry.circuits !== circuits && entry.state === "Healthy";
    await until("it is reached at its new port", hasMoved);
    expect((await bench.chat({ model: "far" })).status).toBe(200);
    expect(entry.removed).toBe(false);
    expect((await entryOf("far")).circuit.state).toBe("closed");
  },
  60_000,
);

describe("recovery", () => {
  test("a backend that was restarted serves as soon as a probe finds it", async () => {
    const { log, lines } = keptLog();
    bench = await bootInference({ overrides: { log } });
    const { port } = bench.upstream;
    bench.upstream.stop();
    for (const text of ["a", "b", "c"]) expect((await say(text)).status).toBe(502);
    expect((await say("d")).status).toBe(500);
    await until("a probe has missed it", async () => (await entryOf("first")).state === "Unhealthy");
    const again = startUpstream({ port });
    cleanup.push(() => again.stop());
    await until("it is back", async () => (await entryOf("first")).circuit.state === "half_open");
    expect((await say("e")).status).toBe(200);
    const changes = lines.filter(({ message }) => message.startsWith("a backend's circuit"));
    expect(changes.map(({ message }) => message)).toEqual([
      "a backend's circuit opened",
      "a backend's circuit closed",
    ]);
  });

  test("so does one that froze and goes on; one that answers calls with errors keeps its 30 s", async () => {
    bench = await bootInference({ overrides: { deadlines: { firstByteMs: 1_000 } } });
    bench.upstream.answer(() => {});
    bench.upstream.listing(() => {});
    for (const text of ["a", "b", "c"]) expect((await say(text)).status).toBe(502);
    expect((await entryOf("first")).circuit.state).toBe("open");
    await until("a probe has missed it", async () => (await entryOf("first")).state === "Unhealthy");
    bench.upstream.listing((_, reply) => reply.json({ data: [{ id: "m" }] }));
    bench.upstream.answer((_, reply) => reply.json(completion("well")));
    await until("it is back", async () => (await entryOf("first")).circuit.state === "half_open");
    expect((await say("d")).status).toBe(200);

    bench.upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
    for (const text of ["e", "f", "g"]) expect((await say(text)).status).toBe(502);
    for (let i = 0; i < 3; i++) await bench.rpc("backends.probe", { name: "first" }, bench.token);
    expect((await entryOf("first")).circuit.state).toBe("open");
    expect((await say("h")).status).toBe(500);
  });
});

inOneProcess(
  "calls of a service that has just started wait for the first probes of its backends",
  async () => {
    bench = await bootInference();
    const { dataDir, key, upstream } = bench;
    await bench.rpc("routes.set", { name: "fast", targets: [{ model: "m" }] }, bench.token);
    await bench.app.stop();
    upstream.listing(async (_, reply) => {
      await Bun.sleep(300);
      reply.json({ data: [{ id: "m" }] });
    });
    const again = await bootGateway({ dataDir });
    cleanup.push(() => again.stop());
    const statuses = await Promise.all(
      ["m", "fast", "nobody has it"].map(async (model) => {
        const answer = await fetch(`${again.url}/v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
          body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }] }),
        });
        return answer.status;
      }),
    );
    expect(statuses).toEqual([200, 200, 404]);
  },
);
