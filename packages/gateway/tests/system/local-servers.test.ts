import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { checkBackends } from "../../../cli/src/service/doctor/checks.ts";
import { openShell } from "../../../cli/tests/support.ts";
import { readConfig } from "../../src/config.ts";
import type { LocalServer } from "../../src/rooms/system/index.ts";

let gateway: TestGateway;
let vllm: FakeUpstream;
let silent: ReturnType<typeof Bun.serve>;
let servers: LocalServer[];
let admin: string;
const at = (id: string, port: number): LocalServer => ({
  id,
  label: id,
  type: "vllm",
  kind: "external",
  port,
});

beforeAll(async () => {
  vllm = startUpstream({ models: ["qwen3-8b", "bge-m3"] });
  silent = Bun.serve({ port: 0, idleTimeout: 0, fetch: () => new Promise<Response>(() => {}) });
  servers = [at("vllm", vllm.port), at("silent", silent.port!), at("nobody", 1)];
  gateway = await bootGateway({ overrides: { localServers: servers } });
  servers.push(at("itself", gateway.app.port));
  admin = await gateway.signIn("admin");
});
afterAll(async () => {
  await gateway.stop();
  vllm.stop();
  await silent.stop(true);
});

test("only administrators may look, and only at the list", async () => {
  const member = await gateway.signIn("member");
  expect((await gateway.call("backends.detect", {}, member)).error.code).toBe(-32007);
  expect((await gateway.call("backends.adopt", { server: "vllm" }, member)).error.code).toBe(-32007);
  const elsewhere = await gateway.call("backends.adopt", { server: "http://169.254.169.254" }, admin);
  expect(elsewhere.error.message).toContain("must be one of vllm, silent, nobody");
  expect(gateway.app.rooms.routing.entries.length).toBe(0);
});

test("doctor names what it found where no backend is registered", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "doctor-"));
  const read = readConfig({ SERVICE_DATA_DIR: join(dataDir, "none"), SERVICE_PORT: "1" });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  const finding = await checkBackends({
    config: read.config,
    now: Date.now,
    localServers: servers.slice(0, 1),
  });
  rmSync(dataDir, { recursive: true });
  expect(finding.remedy).toContain(`vllm at http://127.0.0.1:${vllm.port} answered here`);
});

inOneProcess(
  "what answers is told with its models; silence, refusal and the service itself are not mistaken for one",
  async () => {
    const { servers: seen } = await gateway.rpc("backends.detect", {}, admin);
    const [found, ...rest] = seen;
    expect(found).toEqual({
      id: "vllm",
      label: "vllm",
      url: `http://127.0.0.1:${vllm.port}`,
      found: true,
      models: ["qwen3-8b", "bge-m3"],
      models_total: 2,
      detail: null,
      registered_as: null,
    });
    expect(rest.map(({ found }: { found: boolean }) => found)).toEqual([false, false, false]);
    expect(rest.at(-1).detail).toContain("this service itself");
  },
);

inOneProcess("the command line finds and registers it; once is enough", async () => {
  const shell = openShell({ MODEL_GATEWAY_URL: gateway.url });
  try {
    await shell.run(["login", "--email", "admin@example.com"], { stdin: PASSWORD });
    const added = await shell.run(["backends", "detect", "--add"]);
    expect(added.out).toMatch(/vllm\s+http:\/\/127\.0\.0\.1:\d+\s+yes\s+qwen3-8b, bge-m3/);
    expect(added.err).toContain("Registered vllm");
    await until("its models can be called", () => gateway.app.rooms.routing.modelCount === 2);
    const again = await shell.run(["backends", "detect", "--add", "--json"]);
    expect(JSON.parse(again.out)).toMatchObject({
      servers: [{ registered_as: "vllm" }, {}, {}, {}],
      added: [],
    });
    expect(await gateway.rpc("backends.adopt", { server: "vllm" }, admin)).toEqual({ name: "vllm" });
    expect(gateway.app.rooms.routing.entries.length).toBe(1);
    expect(gateway.app.rooms.routing.entries[0]!.config.seen).toMatchObject({ dialects: ["chat"] });
  } finally {
    shell.end();
  }
});
