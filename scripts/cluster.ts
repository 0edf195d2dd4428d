/**
 * Several instances as one service, on one port of this machine, over a private Postgres and Redis: for trying
 * and testing what holds across instances.
 *
 *   npm run cluster -- --instances 3 --port 8080
 */
import "./lib/help.ts";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startServices } from "@model-gateway/testing/services.ts";
import { parseArgs } from "./lib/args.ts";

const MAIN = join(import.meta.dir, "../packages/gateway/src/main.ts");
const INSTANCES_MAX = 16;
const STOP_WITHIN_MS = 40_000;

const { values } = parseArgs({
  options: { instances: { type: "string", default: "3" }, port: { type: "string", default: "8080" } },
});
const count = Number(values.instances);
if (!Number.isInteger(count) || count < 1 || count > INSTANCES_MAX) {
  console.error(`--instances: a whole number from 1 to ${INSTANCES_MAX}`);
  process.exit(1);
}

const services = await startServices();
const { TEST_POSTGRES_URL, TEST_REDIS_URL } = services.env;
if (!TEST_POSTGRES_URL || !TEST_REDIS_URL) {
  console.error(`Postgres and Redis are needed: ${services.missing.join("; ")}`);
  services.stop();
  process.exit(1);
}

const dir = mkdtempSync(join(tmpdir(), "model-gateway-cluster-"));
const shared = {
  SERVICE_PORT: values.port,
  SERVICE_REUSE_PORT: "true",
  SERVICE_DATABASE_URL: TEST_POSTGRES_URL,
  SERVICE_REDIS_URL: TEST_REDIS_URL,
  SERVICE_ADMIN_TOKEN: process.env.SERVICE_ADMIN_TOKEN ?? crypto.randomUUID(),
  SERVICE_JWT_SECRET: process.env.SERVICE_JWT_SECRET ?? crypto.randomUUID() + crypto.randomUUID(),
  BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
};

const children: ChildProcess[] = [];
for (let i = 0; i < count; i++) {
  const env = { ...process.env, ...shared, SERVICE_DATA_DIR: join(dir, `instance-${i}`) };
  const child = spawn(process.execPath, [MAIN], { env, stdio: ["ignore", "ignore", "inherit"] });
  children.push(child);
  console.log(`instance ${i}: pid ${child.pid}`);
}
console.log(
  `http://127.0.0.1:${values.port}  admin token ${shared.SERVICE_ADMIN_TOKEN}  (Ctrl-C stops everything)`,
);

let stopping = false;
async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  const ended = children.map((child) =>
    child.exitCode !== null || child.signalCode !== null
      ? null
      : new Promise((resolve) => child.once("exit", resolve)),
  );
  for (const child of children) child.kill("SIGTERM");
  await Promise.race([Promise.all(ended), Bun.sleep(STOP_WITHIN_MS)]);
  services.stop();
  process.exit(0);
}
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, stop);
for (const child of children) {
  child.once("exit", () => {
    if (children.every(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null)) void stop();
  });
}
