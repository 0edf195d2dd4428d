import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Result } from "@model-gateway/client";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { startFakeBridge } from "../support/bridge.ts";
import { startFakeEngine } from "../support/engine.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

const errorOf = async (response: Response) => ({ status: response.status, ...(await response.json()).error });

describe("admin access", () => {
  const routes: [string, string][] = [
    ["POST", "/backends"],
    ["GET", "/backends"],
    ["DELETE", "/backends"],
    ["POST", "/aliases"],
    ["GET", "/aliases"],
    ["DELETE", "/aliases"],
  ];
  for (const [method, path] of routes) {
    test(`${method} ${path} takes the admin token and nothing else`, async () => {
      for (const bearer of [bench.key, bench.token, "", `${ADMIN_TOKEN}x`, ADMIN_TOKEN.slice(1)])
        expect((await bench.admin(method, path, method === "GET" ? undefined : {}, bearer)).status).toBe(401);
    });
  }

  test("without a configured token everything is refused", async () => {
    const closed = await bootGateway({ config: { adminToken: null } });
    try {
      const response = await fetch(`${closed.url}/api/admin/backends`, {
        headers: { authorization: "Bearer " },
      });
      expect(response.status).toBe(401);
    } finally {
      await closed.stop();
    }
  });
});

describe("backends", () => {
  test("are listed with label, state, circuit and models, and without their keys", async () => {
    await bench.addBackend({
      name: "secretive",
      type: "vllm",
      url: bench.upstream.url,
      api_key: "sk-upstream-secret",
      models: ["fixed"],
    });
    const response = await bench.admin("GET", "/backends");
    const text = await response.text();
    expect(text).not.toContain("sk-upstream-secret");
    const { backends, models } = JSON.parse(text);
    expect(backends.count).toBe(2);
    expect(backends.health[1]).toMatchObject({
      label: "backend_1:external",
      state: "Healthy",
      name: "secretive",
      type: "vllm",
      url: bench.upstream.url,
      circuit: { state: "closed", consecutive_failures: 0, cause: null, retry_at: null },
      last_error: null,
    });
    // The static id goes before the discovered ones.
    expect(models).toEqual(["m", "fixed"]);
    await bench.chat({ model: "fixed" });
    expect(bench.upstream.requests.at(-1)!.headers.authorization).toBe("Bearer sk-upstream-secret");
    const removed = await bench.admin("DELETE", "/backends", { index: 1 });
    expect(await removed.json()).toEqual({ status: "ok", message: "backend removed" });
    expect((await bench.chat({ model: "fixed" })).status).toBe(404);
  });

  test("of unknown, removed or ill-formed kinds are refused", async () => {
    const add = async (body: unknown) => errorOf(await bench.admin("POST", "/backends", body));
    expect(await add({ type: "abacus" })).toMatchObject({
      status: 400,
      type: "invalid_request",
      code: "unknown_type",
    });
    const removed = await add({ type: "comfyui" });
    expect(removed.status).toBe(400);
    expect(removed.message).toContain("removed");
    expect(await add({ type: "external", url: "not a url" })).toMatchObject({
      status: 400,
      code: "missing_fields",
    });
    expect(await add({ type: "engine", url: "http://127.0.0.1:1" })).toMatchObject({ status: 400 });
    expect(await add({ type: "external", url: "file:///etc/passwd" })).toMatchObject({ status: 400 });
    expect(await add({ models: "all" })).toMatchObject({ status: 400, code: "missing_fields" });
    expect(await add([])).toMatchObject({ status: 400 });
  });

  test("default to the local server kind on its usual port", async () => {
    const answer = await (await bench.admin("POST", "/backends", {})).json();
    expect(answer).toMatchObject({ status: "ok", name: "local-server" });
    const { backends } = await bench.backends();
    expect(backends.health.at(-1)).toMatchObject({
      label: `backend_${answer.index}:local-server`,
      index: answer.index,
      url: "http://localhost:11434",
      type: "local-server",
    });
    await bench.removeBackend("local-server");
  });

  test("of an existing name are replaced in their place", async () => {
    await bench.addBackend({ name: "twin", type: "external", url: bench.upstream.url, models: ["one"] });
    await bench.addBackend({ name: "twin", type: "external", url: bench.upstream.url, models: ["two"] });
    const { backends, models } = await bench.backends();
    expect(backends.health.length).toBe(2);
    expect(models).toContain("two");
    expect(models).not.toContain("one");
    await bench.removeBackend("twin");
  });

  test("are removed by an index that exists", async () => {
    const remove = async (body: unknown) => errorOf(await bench.admin("DELETE", "/backends", body));
    expect(await remove({})).toMatchObject({
      status: 400,
      code: "missing_index",
      message: "Missing 'index' field",
    });
    for (const index of [1, 99, -1])
      expect(await remove({ index })).toMatchObject({
        status: 404,
        type: "invalid_request",
        code: "not_found",
        message: "Backend not found at given index",
      });
  });

  inOneProcess("that cannot be saved serve all the same, under an index of their own", async () => {
    const { db } = bench.app.rooms.usage.store;
    const before = (await bench.backends()).backends.health;
    await db.run("ALTER TABLE backend_indexes RENAME TO away");
    const unsaved = { type: "external", url: bench.upstream.url, models: ["unsaved-model"] };
    await bench.addBackend({ ...unsaved, name: "unsaved" });
    await bench.addBackend({ ...unsaved, name: "unsaved-too" });
    await db.run("ALTER TABLE away RENAME TO backend_indexes");
    const indexes = (await bench.backends()).backends.health.map(({ index }: { index: number }) => index);
    expect(indexes.slice(-2)).toEqual([1_000_000, 1_000_001]);
    expect((await bench.chat({ model: "unsaved-model" })).status).toBe(200);
    for (const name of ["unsaved", "unsaved-too"]) expect((await bench.removeBackend(name)).status).toBe(200);
    expect((await bench.backends()).backends.health.length).toBe(before.length);
    expect((await bench.chat({ model: "unsaved-model" })).status).toBe(404);
  });

  test("that redirect are not followed", async () => {
    const trap = startUpstream();
    const hop = startUpstream({ models: ["hop"] });
    hop.answer((_, reply) => reply.json({}, 302, { location: `${trap.url}/v1/chat/completions` }));
    await bench.addBackend({ name: "hop", type: "external", url: hop.url });
    expect((await bench.chat({ model: "hop" })).status).toBe(502);
    expect(trap.requests.length).toBe(0);
    await bench.removeBackend("hop");
    trap.stop();
    hop.stop();
  });

  test("survive a restart, fail-closed until probed", async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "gateway-restart-"));
    const first = await bootInference({ dataDir });
    await first.app.stop();
    const second = await bootGateway({ dataDir });
    try {
      const health = async () =>
        (
          await (
            await fetch(`${second.url}/api/admin/backends`, {
              headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
            })
          ).json()
        ).backends;
      expect((await health()).health[0]).toMatchObject({ name: "first", url: first.upstream.url });
      await until("the restored backend is healthy", async () => (await health()).count === 1);
    } finally {
      await second.stop();
      first.upstream.stop();
      rmSync(dataDir, { recursive: true, force: true });
    }
  });
});

describe("the types that a form offers", () => {
  test("each has the fields of a registration, and each can be registered", async () => {
    expect((await bench.call("backends.types", {})).error.code).toBe(-32005);
    const { default_type, types } = await bench.rpc<Result<"backends.types">>(
      "backends.types",
      {},
      bench.token,
    );
    const byType = new Map(types.map((each) => [each.type, each]));
    expect(byType.size).toBe(types.length);
    for (const type of ["cloud-realtime", "cloud-video", "engine", "external", "local-server", "llama_cpp"])
      expect(byType.has(type)).toBe(true);
    expect(byType.get("vllm")).toMatchObject({ kind: "external", label: "vLLM" });
    const namesOf = (type: string) => byType.get(type)!.fields.map(({ name }) => name);
    expect(default_type).toBe("local-server");
    expect(namesOf("local-server")).toEqual(["url", "name", "api_key"]);
    expect(namesOf("engine")).toEqual(["url", "name", "api_key", "models"]);
    for (const [type, { kind, fields }] of byType) {
      // What the form suggests as the address is one that the kind takes.
      const url = fields.find(({ name }) => name === "url")!.placeholder;
      const added = await bench.admin("POST", "/backends", { type, url, name: "from-the-form" });
      expect({ type, status: added.status }).toEqual({ type, status: 200 });
      const { index } = await added.json();
      const { backends } = await bench.backends();
      expect(backends.health.at(-1)).toMatchObject({ label: `backend_${index}:${kind}`, type });
      expect((await bench.admin("DELETE", "/backends", { index })).status).toBe(200);
    }
  });
});

describe("bridges", () => {
  test("are resolved at registration, kept as registered, or refused as unreachable", async () => {
    const tunnelled = startUpstream({ models: ["far"] });
    const bridge = startFakeBridge();
    bridge.services.set("node-1/vllm", tunnelled.port);
    const engine = startFakeEngine({ models: [{ id: "far-engine" }] });
    bridge.services.set("node-1/engine", Number(new URL(engine.url).port));
    const gateway = await bootInference({ config: { bridgeUrl: bridge.url } });
    try {
      await gateway.addBackend({ name: "far", type: "external", url: "bridge://node-1/vllm" });
      expect((await gateway.backends()).backends.health[1].url).toBe("bridge://node-1/vllm");
      expect((await gateway.chat({ model: "far" })).status).toBe(200);
      // An engine is spoken to by WebSocket, also at the end of a tunnel.
      await gateway.addBackend({ name: "far-engine", type: "engine", url: "bridge://node-1/engine" });
      expect((await gateway.chat({ model: "far-engine" })).status).toBe(200);
      bridge.stop();
      const refusal = await gateway.admin("POST", "/backends", {
        type: "external",
        url: "bridge://node-2/vllm",
      });
      expect(await errorOf(refusal)).toMatchObject({ status: 502, code: "bridge_unreachable" });
    } finally {
      await gateway.stop();
      bridge.stop();
      engine.stop();
      tunnelled.stop();
    }
  });
});

describe("aliases", () => {
  test("are added, replaced, listed in order, resolved and removed", async () => {
    const call = async (method: string, body?: unknown) =>
      (await bench.admin(method, "/aliases", body)).json();
    expect(await call("POST", { alias: "zeta", target: "x" })).toEqual({
      status: "ok",
      message: "alias added",
    });
    await call("POST", { alias: "zeta", target: "m" });
    await call("POST", { alias: "alpha", target: "m" });
    expect(await call("GET")).toEqual([
      { alias: "alpha", target: "m" },
      { alias: "zeta", target: "m" },
    ]);
    expect((await bench.chat({ model: "zeta" })).status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.json.model).toBe("m");
    expect((await bench.post("/v1/embeddings", { model: "alpha", input: "x" })).status).toBe(200);
    for (const alias of ["alpha", "zeta", "never-was"])
      expect(await call("DELETE", { alias })).toEqual({ status: "ok", message: "alias removed" });
    expect(await call("GET")).toEqual([]);
    expect((await bench.chat({ model: "zeta" })).status).toBe(404);
  });

  test("need both names", async () => {
    const refusal = async (method: string, body: unknown) =>
      (await errorOf(await bench.admin(method, "/aliases", body))).code;
    expect(await refusal("POST", { target: "m" })).toBe("missing_alias");
    expect(await refusal("POST", { alias: "a" })).toBe("missing_target");
    expect(await refusal("POST", { alias: " ", target: "m" })).toBe("missing_alias");
    expect(await refusal("DELETE", {})).toBe("missing_alias");
    // Cut to the length of a model id, it would be a name that nobody can ask for.
    expect(await refusal("POST", { alias: "a".repeat(257), target: "m" })).toBe("missing_alias");
    expect(await refusal("POST", { alias: "a", target: "m".repeat(257) })).toBe("missing_target");
  });
});
