import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import { openShell, type Shell } from "./support.ts";

interface Finding {
  check: string;
  state: string;
  message: string;
  remedy?: string;
}

let shell: Shell;
beforeAll(() => {
  shell = openShell();
});
afterAll(() => shell.end());

async function examine(env: Record<string, string>): Promise<{ code: number; findings: Finding[] }> {
  const { code, out } = await shell.run(["doctor", "--json"], { env });
  return { code, findings: (JSON.parse(out) as { findings: Finding[] }).findings };
}
const of = (findings: readonly Finding[], check: string) =>
  findings.filter((finding) => finding.check === check).at(-1);

function listen(): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.listen(0, "127.0.0.1", () => resolve(server));
  });
}
const portOf = (server: Server) => String((server.address() as { port: number }).port);

test("doctor is content with a fresh machine, but for the missing backend", async () => {
  const { code, findings } = await examine({ SERVICE_DATA_DIR: join(shell.dir, "fresh"), SERVICE_PORT: "0" });
  expect(code).toBe(0);
  expect(of(findings, "backends")).toMatchObject({ state: "warning", message: "no backend is registered" });
  expect(findings.filter(({ state }) => state !== "ok")).toHaveLength(1);
});

test("doctor names a port that another program has", async () => {
  const server = await listen();
  const port = portOf(server);
  const { code, findings } = await examine({ SERVICE_DATA_DIR: join(shell.dir, "a"), SERVICE_PORT: port });
  server.close();
  expect(code).toBe(1);
  expect(of(findings, "port")).toMatchObject({
    state: "failed",
    message: `port ${port} is taken by another program`,
  });
  expect(of(findings, "port")?.remedy).toContain("SERVICE_PORT");
});

test("doctor names a data directory that cannot be written", async () => {
  const file = join(shell.dir, "a-file");
  writeFileSync(file, "");
  const { code, findings } = await examine({ SERVICE_DATA_DIR: join(file, "data"), SERVICE_PORT: "0" });
  expect(code).toBe(1);
  expect(of(findings, "data directory")?.message).toContain("cannot be written");
});

test("doctor names a database that cannot be reached, without its password", async () => {
  const { code, findings } = await examine({
    SERVICE_DATA_DIR: join(shell.dir, "b"),
    SERVICE_PORT: "0",
    SERVICE_DATABASE_URL: "postgres://user:hush@127.0.0.1:1/db",
  });
  expect(code).toBe(1);
  expect(of(findings, "database")?.message).toContain("cannot be reached");
  expect(JSON.stringify(findings)).not.toContain("hush");
});

test("doctor names more workers than there are cores, and a directory too long for their socket", async () => {
  const env = { SERVICE_PORT: "0", SERVICE_WORKERS: "64" };
  const many = await examine({ ...env, SERVICE_DATA_DIR: join(shell.dir, "c") });
  if (process.platform !== "linux") return;
  expect(of(many.findings, "workers")).toMatchObject({ state: "warning" });
  const long = await examine({ ...env, SERVICE_DATA_DIR: join(shell.dir, "d".repeat(90)) });
  expect(long.code).toBe(1);
  expect(of(long.findings, "workers")?.message).toContain("too long for the socket");
});

test("doctor names registration that was opened in the console", async () => {
  const gateway = await bootGateway({
    config: { registrationOpen: null, fromEnvironment: [] },
    deployment: null,
  });
  const env = { SERVICE_DATA_DIR: gateway.dataDir, SERVICE_PORT: "0", SERVICE_TRUSTED_PROXIES: "10.0.0.1" };
  const warnings = async (more = {}) =>
    (await examine({ ...env, ...more })).findings.filter(({ message }) => message.includes("registration"));
  const owner = await gateway.signIn("owner");
  expect(await warnings()).toEqual([]);
  await gateway.rpc("settings.update", { name: "SERVICE_REGISTRATION_OPEN", value: "1" }, owner);
  expect(await warnings()).toMatchObject([
    { state: "warning", remedy: expect.stringContaining("in the console") },
  ]);
  expect(await warnings({ SERVICE_REGISTRATION_OPEN: "false" })).toEqual([]);
  await gateway.stop();
});

test("doctor names settings that are not understood", async () => {
  const { code, findings } = await examine({ SERVICE_PROT: "1" });
  expect(code).toBe(1);
  expect(findings[0]?.message).toContain("SERVICE_PROT");
});

test("doctor names a clock that is behind what the database remembers", async () => {
  const dataDir = join(shell.dir, "clock");
  mkdirSync(dataDir);
  await (await bootGateway({ dataDir })).stop();
  const db = new Database(join(dataDir, "gateway.sqlite"));
  db.run("UPDATE schema_migrations SET applied_at = '2999-01-01T00:00:00.000Z'");
  db.close();
  const { code, findings } = await examine({ SERVICE_DATA_DIR: dataDir, SERVICE_PORT: "0" });
  expect(code).toBe(1);
  expect(of(findings, "clock")?.message).toContain("the clock is wrong");
});

test("doctor knows the running service and that it has no backend", async () => {
  const gateway = await bootGateway();
  const { code, findings } = await examine({
    SERVICE_DATA_DIR: gateway.dataDir,
    SERVICE_PORT: new URL(gateway.url).port,
  });
  await gateway.stop();
  expect(code).toBe(0);
  expect(of(findings, "port")?.message).toContain("is running");
  expect(of(findings, "backends")?.message).toContain("no backend is healthy");
});

test("migrate, backup and ledger verify work on the service's data", async () => {
  const env = { SERVICE_DATA_DIR: join(shell.dir, "data") };
  const first = JSON.parse((await shell.run(["migrate", "--json"], { env })).out) as { applied: unknown[] };
  expect(first.applied.length).toBeGreaterThan(0);
  expect((await shell.run(["migrate"], { env })).out).toBe("The schema is up to date\n");

  const verified = await shell.run(["ledger", "verify", "--json"], { env });
  expect(JSON.parse(verified.out)).toMatchObject({ ok: true, problems: [] });

  const target = join(shell.dir, "backup");
  expect((await shell.run(["backup", target], { env })).code).toBe(0);
  const copy = new Database(join(target, "gateway.sqlite"), { readonly: true });
  expect(copy.query("SELECT COUNT(*) AS n FROM schema_migrations").get()).toEqual({
    n: first.applied.length,
  });
  copy.close();
  expect((await shell.run(["backup", target], { env })).err).toContain("not empty");
});

test("ledger verify makes no database where there is none", async () => {
  const dataDir = join(shell.dir, "nothing");
  const missing = await shell.run(["ledger", "verify"], { env: { SERVICE_DATA_DIR: dataDir } });
  expect([missing.code, missing.err]).toEqual([
    1,
    `model-gateway ledger: no service has used ${join(dataDir, "gateway.sqlite")}; set SERVICE_DATA_DIR or SERVICE_DATABASE_URL as it has them\n`,
  ]);
  expect(existsSync(dataDir)).toBe(false);
});

test("serve runs the service and ends it on a signal", async () => {
  const cli = join(import.meta.dir, "../src/main.ts");
  const child = Bun.spawn([process.execPath, cli, "serve"], {
    env: {
      PATH: process.env.PATH ?? "",
      HOME: shell.dir,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: join(shell.dir, "served"),
      SERVICE_DRAIN_GRACE_MS: "0",
      SERVICE_WARM_UP: "0",
    },
    stdout: "pipe",
    stderr: "ignore",
  });
  let out = "";
  for await (const chunk of child.stdout) {
    out += new TextDecoder().decode(chunk);
    const url = /listening on (http:\S+)/.exec(out)?.[1];
    if (!url) continue;
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    child.kill("SIGTERM");
    break;
  }
  expect(await child.exited).toBe(0);
});
