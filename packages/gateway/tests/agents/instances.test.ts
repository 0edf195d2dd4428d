import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { failure } from "@model-gateway/testing/failure.ts";
import type { TestGateway } from "@model-gateway/testing/gateway.ts";
import { startEngine } from "@model-gateway/testing/http-engine.ts";
import { until } from "@model-gateway/testing/until.ts";
import { BackendError } from "../../src/backends/contract.ts";
import { type Company, company, sharings } from "../instances/support.ts";
import { abortable, readerOf, textOf } from "../support/backends.ts";
import { chat, deployedBefore, dialRaw, follow, serveTunnel } from "./support.ts";

describe.each(sharings)("two instances %s", (sharing) => {
  let together: Company;
  let clock: ManualClock;
  let a: TestGateway;
  let b: TestGateway;
  let admin: string;
  let node: { agent_id: string; token: string };

  beforeEach(async () => {
    together = await company(sharing);
    clock = new ManualClock();
    [a, b] = await Promise.all([boot(clock), boot(clock)]);
    admin = await a.signIn("ada");
    node = await a.rpc("agents.register", { machine_name: "node", version: "1" }, admin);
    await deployedBefore(a, node.agent_id, "tiny", "hidden", "old", "new");
  });
  afterEach(async () => {
    await Promise.all([a.stop(), b.stop()]);
    await together.stop();
  });

  const boot = (time: ManualClock) => together.boot({ overrides: { clock: time } });
  const on = (gateway: TestGateway) => gateway.rpc("agents.status", { agent_id: node.agent_id }, admin);
  const untilSeen = (gateway: TestGateway, online = true) =>
    until(
      `the node is ${online ? "online" : "offline"} there`,
      async () => (await on(gateway)).online === online,
    );

  test("a node is seen, ordered, followed and deregistered from an instance that does not hold it", async () => {
    const raw = await dialRaw(a, node.token);
    await raw.hello();
    await untilSeen(b);
    expect(await b.rpc("system.status")).toMatchObject({ agents_online: 1 });

    const { stream_id } = await b.rpc("agents.deploy", { model_id: "tiny" }, admin);
    expect(raw.received.find(({ method }) => method === "agent.deploy")?.params).toEqual({
      model_id: "tiny",
      stream_id,
    });
    const heard = await follow(b, stream_id);
    raw.notify("agent.progress", { stream_id, model_id: "tiny", status: "queued", progress: 0 });
    await until("b hears of it", () => heard.last()?.status === "queued");
    raw.notify("agent.progress", {
      stream_id,
      model_id: "tiny",
      status: "ready",
      progress: 100,
      port: 20_000,
    });
    await until("b hears that it is ready", () => heard.last()?.status === "ready");
    clock.advance(200);
    await until("b lists it", async () => (await on(b)).models[0]?.status === "ready");

    expect(await b.rpc("agents.stop", { agent_id: node.agent_id, model_id: "tiny" }, admin)).toEqual({
      ok: true,
      stream_id: null,
    });
    expect(a.app.rooms.agents.backend("tiny")).toBeNull();
    await b.rpc("agents.deregister", { agent_id: node.agent_id }, admin);
    expect((await raw.closed).code).toBe(4003);
    await until("b hears that it failed", () => heard.last()?.message === "the node was deregistered");
    heard.stop();
  });

  test("a model is routable on both: dialled where it answers, else through the instance that has the node", async () => {
    const engine = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: (request) =>
        request.headers.get("authorization") !== "Bearer engine-key"
          ? new Response("no key", { status: 401 })
          : request.url.endsWith("/v1/models")
            ? Response.json({ data: [{ id: "tiny" }] })
            : Response.json({ choices: [{ message: { role: "assistant", content: "hello" } }] }),
    });
    const raw = await dialRaw(a, node.token);
    const models = [
      { model_id: "tiny", port: engine.port!, api_key: "engine-key" },
      { model_id: "hidden", port: engine.port!, api_key: "engine-key" },
    ];
    serveTunnel(raw, { baseUrl: `http://127.0.0.1:${engine.port}`, apiKey: "engine-key" });
    await raw.hello({ host: "127.0.0.1", direct: true, models });
    const backend = (gateway: TestGateway, modelId: string) => gateway.app.rooms.agents.backend(modelId);
    const ways = async (gateway: TestGateway) =>
      (await on(gateway)).models.map(({ via }: { via: string }) => via).join();
    // The engine there does not list the other model, so it may be anyone's.
    for (const gateway of [a, b])
      await until("it is decided", async () => (await ways(gateway)) === "direct,tunnel");
    for (const gateway of [a, b])
      for (const modelId of ["tiny", "hidden"])
        expect(await chat(backend(gateway, modelId), modelId)).toContain("hello");
    expect(JSON.stringify(await on(b))).not.toContain("engine-key");

    raw.socket.close();
    await untilSeen(b, false);
    expect([backend(b, "tiny"), backend(b, "hidden")]).toEqual([null, null]);
    engine.stop(true);
  });

  test("through the other instance: large bodies, refusals, a caller that leaves, a node that goes", async () => {
    const engine = await startEngine();
    const raw = await dialRaw(a, node.token);
    const tunnel = serveTunnel(raw, { baseUrl: engine.baseUrl, apiKey: null });
    await raw.hello({ models: [{ model_id: "tiny", port: 20_000 }] });
    const backend = () => b.app.rooms.agents.backend("tiny");
    await until("b can route to it", () => backend() !== null);
    const call = (signal: AbortSignal, bytes = "{}") =>
      backend()!.chat!({
        model: "tiny",
        stream: true,
        requestId: "test",
        ...abortable(signal),
        body: { bytes: () => bytes, object: () => ({}) },
      });

    tunnel.path = "/echo";
    const large = "x".repeat(3_000_000);
    expect(await textOf(await call(AbortSignal.timeout(20_000), large))).toBe(large);

    tunnel.path = "/tokens?n=100000&ms=5";
    const leaving = new AbortController();
    const reader = readerOf(await call(leaving.signal));
    expect((await reader.read()).done).toBe(false);
    leaving.abort(new Error("left"));
    await until("the engine knows", () => engine.open() === 0);

    const last = readerOf(await call(AbortSignal.timeout(20_000)));
    await last.read();
    raw.socket.close();
    const drain = async () => {
      while (!(await last.read()).done);
    };
    expect(await failure(drain())).toMatchObject({ kind: "gone" });
    await until("it is gone", () => backend() === null);
    engine.stop();
  });

  test("an instance that stops: its node moves first, and what runs through the old connection comes to its end", async () => {
    const engine = await startEngine();
    const models = [{ model_id: "tiny", port: 20_000 }];
    const dial = async (gateway: TestGateway, path: string) => {
      const raw = await dialRaw(gateway, node.token);
      serveTunnel(raw, { baseUrl: engine.baseUrl, apiKey: null }).path = path;
      await raw.hello({ models });
      return raw;
    };
    const backend = () => b.app.rooms.agents.backend("tiny");
    const ask = () =>
      backend()!.chat!({
        model: "tiny",
        stream: true,
        requestId: "test",
        ...abortable(AbortSignal.timeout(30_000)),
        body: { bytes: () => "{}", object: () => ({}) },
      });
    const first = await dial(a, "/tokens?n=300&ms=5");
    await until("b can route to it", () => backend() !== null);
    const reader = readerOf(await ask());
    let heard = "";
    const read = async () => {
      const { done, value } = await reader.read();
      if (value) heard += Buffer.from(value).toString();
      return !done;
    };
    await read();

    a.app.rooms.agents.retire({ othersStay: true });
    clock.advance(100);
    await until("the node is told", () => first.received.some(({ method }) => method === "agent.leaving"));
    const second = await dial(b, "/echo");
    await until("a knows that it moved", () => a.app.rooms.agents.backend("tiny") !== null);
    expect(await textOf(await ask())).toBe("{}");
    while (await read());
    expect(heard.match(/data: /g)).toHaveLength(300);
    await until("the old connection is closed", async () => {
      clock.advance(100);
      return (await Promise.race([first.closed, Bun.sleep(1)]))?.code === 1001;
    });
    expect(await textOf(await ask())).toBe("{}");
    second.socket.close();
    engine.stop();
  });

  test("a node that connects to the other instance is that one's; the stale connection is cut", async () => {
    const first = await dialRaw(a, node.token);
    await first.hello({ models: [{ model_id: "old", port: 20_000 }] });
    await untilSeen(b);
    const second = await dialRaw(b, node.token);
    await second.hello({ models: [{ model_id: "new", port: 20_000 }] });
    expect(await first.closed).toEqual({ code: 4001, reason: "replaced by a newer connection" });
    const models = async (gateway: TestGateway) =>
      (await on(gateway)).models.map(({ model_id }: { model_id: string }) => model_id).join();
    await until(
      "both know the new one only",
      async () => (await models(a)) === "new" && (await models(b)) === "new",
    );
    expect(a.app.rooms.agents.backend("old")).toBeNull();
    for (const gateway of [a, b])
      expect(await gateway.rpc("system.status")).toMatchObject({ agents_online: 1, models_deployed: 1 });
  });

  test("nodes of an instance that dies are offline after 30 seconds; one that starts learns of all at once", async () => {
    const raw = await dialRaw(a, node.token);
    await raw.hello({ models: [{ model_id: "tiny", port: 20_000 }] });
    await untilSeen(b);
    const circuit = (gateway: TestGateway) => {
      const tiny = gateway.app.rooms.routing.entries.find(({ config }) => config.name === "agent-tiny");
      return tiny?.circuits.report(clock.now()).state;
    };
    await until("it is a backend", () => circuit(a) === "closed");
    const lost = new BackendError("connect", "refused");
    for (let i = 0; i < 3; i++) a.app.rooms.routing.callEnded("agent-tiny", undefined, lost);
    const late = await boot(clock);
    await untilSeen(late);
    await until("it knows of the circuit", () => circuit(late) === "open");
    await late.stop();

    const alone = new ManualClock();
    const other = await boot(alone);
    await untilSeen(other);
    alone.advance(30_000);
    expect((await on(other)).online).toBe(false);
    clock.advance(200);
    await raw.call("agent.heartbeat", { gpus: [], models: [] });
    await untilSeen(other);
    await other.stop();
  });
});
