import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { verifyLedger } from "../../../packages/gateway/src/rooms/ledger/index.ts";
import { openStorage } from "../../../packages/gateway/src/storage/index.ts";
import { ADMIN_TOKEN, GENEROUS_RPM, Instance } from "./cluster.ts";
import { startLoad } from "./load.ts";
import { openPool } from "./stage.ts";

/** The upstream reports 9 prompt and 4 completion tokens: 1.3 points at this price. */
const PRICES = { prices: [{ match: "m", input: 1_000, output: 1_000 }] };
const POOL_POINTS = 1_000_000;
const LANES = 8;
const WITHIN_MS = 60_000;

/** Processes that this one has started and that still run. */
export const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);

export function isAlive(pid: number): boolean {
  try {
    // A process that has ended stays in the list until its parent has noticed.
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** A service of several workers on one embedded database, before an upstream. */
export interface WorkersStage {
  service: Instance;
  upstream: FakeUpstream;
  admin: string;
  groupKey: string;
  /** Process ids of the workers, by number. */
  workers(): number[];
  /** Waits until as many workers as there should be take requests, none of them one of these. */
  whole(except?: readonly number[]): Promise<void>;
  /** A figure of each worker, by number. */
  figure(name: string): Promise<Map<number, number>>;
  end(): Promise<void>;
}

/** `env` is read at each start. */
export async function openWorkers(
  count: number,
  env: Record<string, string> = {},
  preload?: string,
): Promise<WorkersStage> {
  const dir = mkdtempSync(join(tmpdir(), "gateway-workers-"));
  const upstream = startUpstream();
  const pricingFile = join(dir, "prices.json");
  await Bun.write(pricingFile, JSON.stringify(PRICES));
  const service = new Instance({
    databaseUrl: null,
    redisUrl: null,
    dataDir: join(dir, "data"),
    env: Object.assign(env, { SERVICE_WORKERS: String(count), SERVICE_PRICING_FILE: pricingFile }),
    ...(preload && { preload }),
  });
  const end = async () => {
    const pids = service.pid > 0 && isAlive(service.pid) ? childrenOf(service.pid) : [];
    await service.kill();
    for (const pid of pids) if (isAlive(pid)) process.kill(pid, "SIGKILL");
    upstream.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  const figure = async (name: string) => {
    const text = await (await fetch(`${service.url}/metrics`)).text();
    const lines = text.matchAll(new RegExp(`^${name}\\{worker="(\\d+)"\\} (\\S+)$`, "gm"));
    return new Map(Array.from(lines, ([, worker, value]) => [Number(worker), Number(value)]));
  };
  const workers = () => childrenOf(service.pid);
  const whole = (except: readonly number[] = []) =>
    until(
      "every worker takes requests",
      async () => {
        const pids = workers();
        if (pids.length < count || pids.some((pid) => except.includes(pid))) return false;
        const up = await figure("gateway_worker_up").catch(() => new Map());
        return up.size === count && [...up.values()].every((value) => value === 1);
      },
      WITHIN_MS,
    );
  try {
    const prepared = await openStorage({ dataDir: service.dataDir, databaseUrl: null });
    await prepared.run("UPDATE billing_tiers SET rpm = $1", [GENEROUS_RPM]);
    await prepared.close();
    await service.start();
    const admin = await service.signUp("ada");
    await service.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    await service.admin("POST", "/api/admin/backends", {
      type: "external_api",
      name: "up",
      url: `${upstream.url}/v1`,
    });
    const { groupKey } = await openPool(service, { admin, owner: admin, points: POOL_POINTS });
    await until("every worker routes to the backend", async () => {
      const lists = await Promise.all(Array.from({ length: count * 4 }, () => service.models()));
      return lists.every((models) => models.includes("m"));
    });
    return { service, upstream, admin, groupKey, workers, whole, figure, end };
  } catch (error) {
    await end();
    throw error;
  }
}

export interface KillReport {
  kills: number;
  answered: number;
  rows: number;
  /** What is wrong, in words; empty when all is well. */
  problems: string[];
}

/** Kills one process after the other under load, every third time the supervisor, then looks for anything lost or doubled. */
export async function killWorkers(stage: WorkersStage, kills: number): Promise<KillReport> {
  const { service, groupKey } = stage;
  const answered: string[] = [];
  const load = startLoad(LANES, async (sequence) => {
    const response = await fetch(`${service.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${groupKey}`,
        // The kernel chooses a worker for each new connection.
        ...(sequence % 3 === 0 && { connection: "close" }),
      },
      body: JSON.stringify({
        model: "m",
        max_tokens: 8,
        stream: sequence % 2 === 0,
        messages: [{ role: "user", content: "hi" }],
      }),
    });
    const text = await response.text();
    // One whose end did not arrive may have been cut off before it was settled.
    const isWhole = sequence % 2 === 0 ? text.endsWith("data: [DONE]\n\n") : text.endsWith("}");
    if (response.ok && isWhole) answered.push(response.headers.get("x-request-id")!);
    return new Response(text, { status: response.status });
  });
  const underLoad = async () => {
    const before = answered.length;
    await until("requests are answered", () => answered.length >= before + LANES * 2, WITHIN_MS);
    await Bun.sleep(Math.random() * 100);
  };
  const problems: string[] = [];
  for (let kill = 1; kill <= kills; kill++) {
    await underLoad();
    const workers = stage.workers();
    if (kill % 3 === 0) {
      await service.kill();
      await until("no worker outlives its supervisor", () => !workers.some(isAlive), WITHIN_MS);
      await service.start();
    } else {
      const victim = workers[kill % workers.length]!;
      process.kill(victim, "SIGKILL");
      await stage.whole([victim]);
    }
  }
  await underLoad();
  await load.stop();
  const code = await service.drain();
  if (code !== 0) problems.push(`the service ended with ${code}`);
  for (const status of load.statuses.keys())
    if (status !== 200 && status !== 0) problems.push(`status ${status}: ${load.failures.join("; ")}`);
  const losses = await lossesOf(stage, answered);
  problems.push(...losses.problems);
  return { kills, answered: answered.length, rows: losses.rows, problems };
}

/** Compares the rows of a service that has ended with the requests that were answered, and with the pool. */
export async function lossesOf(
  { service }: WorkersStage,
  answered: readonly string[],
): Promise<Pick<KillReport, "rows" | "problems">> {
  const problems: string[] = [];
  const db = await openStorage({ dataDir: service.dataDir, databaseUrl: null });
  const rows = (await db.all<{ id: string }>("SELECT id FROM usage_records")).map(({ id }) => id);
  const known = new Set(rows);
  const lost = answered.filter((id) => !known.has(id));
  if (lost.length > 0) problems.push(`${lost.length} answered requests have no row, e.g. ${lost[0]}`);
  const books = await verifyLedger(db);
  problems.push(...books.problems.map(({ message }) => message));
  const paid = await db.get<{ points: number }>(
    "SELECT CAST(COALESCE(SUM(points), 0) AS INTEGER) AS points FROM usage_records",
  );
  const left = await db.get<{ points: number }>(
    "SELECT CAST(SUM(balance) AS INTEGER) AS points FROM ledger_accounts WHERE id LIKE 'group:%'",
  );
  if (paid!.points + left!.points !== POOL_POINTS)
    problems.push(`${paid!.points} points were paid and ${left!.points} are left of ${POOL_POINTS}`);
  await db.close();
  return { rows: rows.length, problems };
}
