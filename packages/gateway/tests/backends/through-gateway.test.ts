import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, type BootOptions, bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startFakeBridge } from "../support/bridge.ts";
import { startFakeEngine } from "../support/engine.ts";
import { startFakeOllama } from "../support/ollama.ts";

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

async function boot(options: BootOptions = {}) {
  const gateway = await bootGateway(options);
  cleanup.push(() => gateway.stop());
  const token = await gateway.signIn("ana");
  const { key } = await gateway.rpc<{ key: string }>("keys.create", { name: "k" }, token);
  const send = async (path: string, body: unknown, bearer: string) => {
    const response = await fetch(`${gateway.url}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    // biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
    return { status: response.status, body: (await response.json()) as any };
  };
  const models = async () => {
    const { data } = (await (await fetch(`${gateway.url}/v1/models`)).json()) as {
      data: { id: string; owned_by: string }[];
    };
    return data.filter(({ owned_by }) => owned_by === "under-test").map(({ id }) => id);
  };
  return {
    gateway,
    token,
    models,
    register: (backend: object) =>
      send("/api/admin/backends", { name: "under-test", ...backend }, ADMIN_TOKEN),
    chat: (model: string) =>
      send("/v1/chat/completions", { model, messages: [{ role: "user", content: "hello" }] }, key),
  };
}

function ollama() {
  const server = startFakeOllama();
  cleanup.push(() => server.stop());
  return { ...server, port: Number(new URL(server.url).port) };
}

test("an Ollama server is registered by its name for the type, and answers to the bare model name", async () => {
  const { register, models, chat } = await boot();
  expect((await register({ type: "ollama", url: ollama().url })).status).toBe(200);
  await until("the backend is routable", async () => (await models()).length > 0);
  expect(await models()).toEqual(["llama3.2:latest", "nomic-embed-text:v1.5"]);
  expect((await chat("llama3.2")).body.choices[0].message.content).toBe("hello");
  expect((await chat("llama3.2:8b")).status).toBe(404);
});

test("an engine serves chat and engine.invoke; an HTTP backend has no such channel", async () => {
  const { gateway, token, register, models, chat } = await boot();
  const engine = startFakeEngine({ handlers: { "sensor.ingest": ({ params }) => ({ got: params }) } });
  cleanup.push(() => engine.stop());
  await register({ type: "candle", url: engine.url, models: ["static-one"] });
  await until("the engine is routable", async () => (await models()).length > 0);
  expect(await models()).toEqual(["echo", "static-one"]);
  expect((await chat("echo")).body.choices[0].message.content).toBe("hello");
  const invoke = (model: string, method: string) =>
    gateway.call("engine.invoke", { model, method, params: { a: 1 } }, token);
  expect((await invoke("echo", "sensor.ingest")).result).toEqual({ got: { a: 1 } });
  expect((await invoke("echo", "Engine.Chat")).error).toMatchObject({ code: -32000 });
  // However often a control loop gets its method wrong, the engine is there for chats.
  for (let i = 0; i < 4; i++)
    expect((await invoke("echo", "sensor.ingets")).error.message).toContain("Method not found");
  expect((await chat("echo")).status).toBe(200);
  await register({ type: "ollama", url: ollama().url, name: "http" });
  const unsupported = async () => (await invoke("llama3.2", "sensor.ingest")).error?.message;
  await until(
    "it was refused as such",
    async () => (await unsupported())?.includes("generic invocation") ?? false,
  );
});

describe("bridge", () => {
  test("a tunnel that comes back on another port serves on under the same name", async () => {
    const bridge = startFakeBridge();
    cleanup.push(() => bridge.stop());
    const clock = new ManualClock(Date.now());
    const { register, models, chat, gateway } = await boot({
      config: { bridgeUrl: bridge.url },
      overrides: { clock },
    });
    const first = ollama();
    bridge.services.set("gpu-7/ollama", first.port);
    expect((await register({ type: "ollama", url: "bridge://gpu-7/ollama" })).status).toBe(200);
    await until("the backend is routable", async () => (await models()).length > 0);
    await first.stop();

    const second = ollama();
    second.on("/api/tags", () => Response.json({ models: [{ name: "moved:latest" }] }));
    bridge.services.set("gpu-7/ollama", second.port);
    clock.advance(15_000);
    await until("the backend has moved", async () => (await models()).includes("moved:latest"));
    expect((await chat("moved")).body.choices[0].message.content).toBe("hello");
    const listed = await fetch(`${gateway.url}/api/admin/backends`, {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    expect(await listed.json()).toMatchObject({
      backends: { count: 1, health: [{ label: "backend_0:local-server", url: "bridge://gpu-7/ollama" }] },
    });
  });

  test("what the agent cannot reach is refused with bridge_unreachable", async () => {
    const bridge = startFakeBridge();
    cleanup.push(() => bridge.stop());
    const { register, models } = await boot({ config: { bridgeUrl: bridge.url } });
    const refused = await register({ type: "engine", url: "bridge://gpu-7/engine" });
    expect(refused).toMatchObject({ status: 502, body: { error: { code: "bridge_unreachable" } } });
    expect(await models()).toEqual([]);
  });
});
