import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Line } from "@model-gateway/testing/line.ts";
import { prepareWorkplace } from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { ownRssMb, treePids } from "../../bench/lib/processes.ts";
import { openStorage, type StorageOptions } from "../../packages/gateway/src/storage/index.ts";
import { ADMIN_TOKEN, GENEROUS_RPM, Instance } from "../cluster/support/cluster.ts";
import type { Address } from "./clients.ts";
import { Disk } from "./disk.ts";
import type { Temper } from "./plan.ts";
import { FILES, type JournalRecord, Recorder } from "./records.ts";
import type { FaultKind, Targets } from "./schedule.ts";
import { JournalingUpstream } from "./upstream.ts";
import {
  EngineVictim,
  InstanceVictim,
  NodeVictim,
  PostgresVictim,
  RedisVictim,
  UpstreamVictim,
  type Victim,
  WorkerVictim,
} from "./victims.ts";

const PASSWORD = "correct horse battery";
const POOL_POINTS = 100_000_000;
const DISK_MB = 256;
const SERVING_WITHIN_MS = 60_000;
/** By then a process has its caches and buffers. */
const WARM_MS = 10_000;
/** Points are paid for it: the upstream reports 13 tokens. */
const PRICES = { prices: ["m", "a", "b", "tiny"].map((match) => ({ match, input: 1_000, output: 1_000 })) };
const CLOCK_PRELOAD = join(import.meta.dir, "clock-preload.ts");

export interface WorldOptions {
  database: "sqlite" | "postgres";
  instances: number;
  /** Processes of each instance that share its port; 1: it is one process itself. */
  workers: number;
  seed: number;
  temper: Temper;
  /** Where records and logs go. */
  dir: string;
}

/** Words that must never appear where they do not belong. */
export interface Canaries {
  prompt: string;
  upstreamKey: string;
  userKeys: string[];
}

const open = new Set<World>();

/** For a run that is ended from outside: processes and disks would outlive it. */
export async function closeWorlds(): Promise<void> {
  await Promise.all([...open].map((world) => world.close()));
}

/** The service as real processes, everything that it needs, and a hand on each of them. */
export class World {
  readonly victims = new Map<string, Partial<Victim>>();
  readonly lines = new Map<string, Line>();
  readonly disks = new Map<string, Disk>();
  /** What cannot be done to this world, and why. */
  readonly missing: string[] = [];
  instances: Instance[] = [];
  addresses: Address[] = [];
  storage!: StorageOptions;
  redis: RedisVictim | null = null;
  keys!: { pool: string; plan: string };
  groupId = "";
  canaries!: Canaries;
  readonly poolPoints = POOL_POINTS;
  /** Memory of each process once it had worked a little, by its pid. */
  readonly #rssMbBefore = new Map<number, number>();
  readonly #seenMs = new Map<number, number>();
  readonly journal: Recorder<JournalRecord>;
  readonly #clockFile: string;
  readonly #cleanups: (() => unknown)[] = [];

  private constructor(readonly options: WorldOptions) {
    this.journal = new Recorder(join(options.dir, FILES.upstreams));
    this.#clockFile = join(options.dir, "clock");
    writeFileSync(this.#clockFile, "0");
  }

  static async open(options: WorldOptions): Promise<World> {
    const world = new World(options);
    open.add(world);
    try {
      await world.#open();
      return world;
    } catch (error) {
      const logs = world.instances.map(({ log }) => log.slice(-2_000)).join("\n");
      await world.close();
      throw new Error(`the world could not be opened: ${(error as Error).message}\n${logs}`, {
        cause: error,
      });
    }
  }

  async #open(): Promise<void> {
    const { database, instances: count } = this.options;
    const dir = mkdtempSync(join(tmpdir(), "gateway-chaos-"));
    this.#cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
    const shared = database === "postgres" ? await this.#openServers() : null;
    const pricingFile = join(dir, "prices.json");
    writeFileSync(pricingFile, JSON.stringify(PRICES));
    const dataDirs = Array.from({ length: count }, (_, i) => this.#openDisk(dir, i));
    this.storage = { dataDir: dataDirs[0]!, databaseUrl: shared?.direct ?? null };
    const db = await openStorage(this.storage);
    await db.run("UPDATE billing_tiers SET rpm = $1 WHERE name = 'enterprise'", [GENEROUS_RPM]);
    await db.close();
    this.instances = dataDirs.map(
      (dataDir, i) =>
        new Instance({
          databaseUrl: shared?.databaseUrl ?? null,
          redisUrl: shared?.redisUrl ?? null,
          dataDir,
          preload: CLOCK_PRELOAD,
          env: {
            SERVICE_PRICING_FILE: pricingFile,
            SERVICE_WORKERS: String(this.options.workers),
            CHAOS_CLOCK_FILE: this.#clockFile,
          },
          onLog: (text) => appendFileSync(this.logFile(i), text),
        }),
    );
    this.#cleanups.push(() => Promise.all(this.instances.map((instance) => instance.kill())));
    await Promise.all(this.instances.map((instance) => instance.start()));
    for (const [i, instance] of this.instances.entries()) await this.#openInstance(instance, i);
    await this.#populate();
  }

  logFile(index: number): string {
    return join(this.options.dir, `instance-${index}.log`);
  }

  /** Postgres and Redis, each reached by a line. */
  async #openServers() {
    // A folder of their own: Postgres runs under another account, which gets it.
    const dir = mkdtempSync(join(tmpdir(), "gateway-chaos-servers-"));
    this.#cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
    const postgres = await PostgresVictim.open(dir);
    this.#cleanups.push(() => postgres.kill());
    const redis = await RedisVictim.open(dir);
    this.#cleanups.push(() => redis.kill());
    this.redis = redis;
    this.victims.set("postgres", postgres).set("redis", redis);
    const direct = postgres.server.url;
    const database = await Line.to(direct);
    const bus = await Line.to(redis.server.url);
    this.#addLine("line postgres", database.line);
    this.#addLine("line redis", bus.line);
    return { direct, databaseUrl: database.url, redisUrl: bus.url };
  }

  #addLine(name: string, line: Line): void {
    this.lines.set(name, line);
    this.#cleanups.push(() => line.close());
  }

  #openDisk(dir: string, index: number): string {
    const path = join(dir, `data-${index}`);
    const disk = Disk.mount(path, DISK_MB);
    if (disk) {
      this.disks.set(`disk ${index}`, disk);
      this.#cleanups.push(() => disk.unmount());
    } else if (index === 0) this.missing.push("a disk that fills: mounting a tmpfs needs root");
    return path;
  }

  async #openInstance(instance: Instance, index: number): Promise<void> {
    const port = () => Number(new URL(instance.url).port);
    const line = await Line.open({ targetPort: port() });
    const name = `instance ${index}`;
    this.#addLine(`line ${name}`, line);
    this.addresses.push({ name, url: `http://127.0.0.1:${line.port}` });
    const victim = new InstanceVictim(instance, () => {
      line.targetPort = port();
    });
    this.victims.set(name, victim);
    const { workers } = this.options;
    if (workers > 1) this.victims.set(`worker of ${name}`, new WorkerVictim(instance, workers));
  }

  /** An administrator's token, as long as it lasts. */
  async signIn(): Promise<string> {
    const login = { email: "ada@example.com", password: PASSWORD };
    return (await this.instances[0]!.rpc("auth.login", login)).access_token;
  }

  /** Upstreams, a route over them, an administrator, a pool and two keys, and a node. */
  async #populate(): Promise<void> {
    const first = this.instances[0]!;
    const upstreamKey = `sk-canary-${crypto.randomUUID()}`;
    const admin = await first.signUp("ada");
    await first.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    for (const name of ["a", "b"]) await this.#addUpstream(name, upstreamKey);
    const targets = ["a", "b"].map((model) => ({ model }));
    await first.rpc("routes.set", { name: "route", targets, begin_within_seconds: 5 }, admin);
    const { id: groupId } = await first.rpc("group.create", { name: "team" }, admin);
    await first.rpc("group.credits.topup", { group_id: groupId, points: POOL_POINTS }, admin);
    const { key: pool } = await first.rpc("keys.create", { name: "pool", group_id: groupId }, admin);
    const { key: plan } = await first.rpc("keys.create", { name: "plan" }, admin);
    this.groupId = groupId;
    this.keys = { pool, plan };
    this.canaries = {
      prompt: `canary-${crypto.randomUUID()}`,
      upstreamKey,
      userKeys: [pool, plan],
    };
    await this.#addNode(admin);
    for (const instance of this.instances)
      await until("every instance routes to everything", async () => {
        const models = await instance.models();
        return ["m", "a", "b", "tiny", "route"].every((model) => models.includes(model));
      });
  }

  async #addUpstream(name: string, apiKey: string): Promise<void> {
    const { seed, temper } = this.options;
    const { journal } = this;
    const upstream = new JournalingUpstream({ name, models: ["m", name], seed, temper, apiKey, journal });
    this.#cleanups.push(() => upstream.stop());
    this.victims.set(`upstream ${name}`, new UpstreamVictim(upstream));
    const line = await Line.open({ targetPort: upstream.port });
    this.#addLine(`line upstream ${name}`, line);
    // Each under two names, so that one open circuit leaves the other.
    for (const number of [1, 2])
      await this.instances[0]!.admin("POST", "/api/admin/backends", {
        type: "external_api",
        name: `${name}${number}`,
        url: `http://127.0.0.1:${line.port}/v1`,
        api_key: apiKey,
      });
  }

  async #addNode(admin: string): Promise<void> {
    const [first] = this.instances as [Instance];
    const weights = join(this.options.dir, "tiny.gguf");
    writeFileSync(weights, "weights");
    // Its engine listens on 127.0.0.1 only, so with this address it can be reached by the tunnel alone.
    const top = 'host = "127.0.0.2"';
    const workplace = prepareWorkplace({ top, models: `[models.tiny]\npath = "${weights}"` });
    this.#cleanups.push(() => workplace.remove());
    const machine = { machine_name: "node", version: "1" };
    const { agent_id, token } = await first.rpc("agents.register", machine, admin);
    const isServing = async () => (await first.models()).includes("tiny");
    /** A node gives an engine up that dies too often; then it is deployed again, as an operator would. */
    const deploy = async () => {
      await first.rpc("agents.deploy", { agent_id, model_id: "tiny" }, await this.signIn());
    };
    let deployedMs = Date.now();
    const untilServing = () =>
      until(
        "the node serves its model",
        async () => {
          if (await isServing().catch(() => false)) return true;
          if (Date.now() - deployedMs > SERVING_WITHIN_MS / 4) {
            deployedMs = Date.now();
            await deploy().catch(() => {});
          }
          await Bun.sleep(50);
          return false;
        },
        SERVING_WITHIN_MS,
      );
    const options = { gateway: this.addresses[0]!.url, workplace, token, untilServing };
    const node = new NodeVictim(options);
    this.#cleanups.push(async () => {
      node.resume();
      node.node?.kill("SIGTERM");
      await node.node?.exited;
    });
    await node.launch();
    await until(
      "the node is online",
      async () => (await first.rpc("agents.status", { agent_id }, admin)).online,
    );
    await first.rpc("agents.deploy", { agent_id, model_id: "tiny" }, admin);
    this.victims.set("node", node).set("engine", new EngineVictim(options));
    this.nodeLog = () => node.node?.output() ?? "";
  }

  nodeLog: () => string = () => "";

  /** What can happen to processes, disks and the clock here, one at a time. */
  get processTargets(): Targets {
    const kindsOf = (victim: Partial<Victim>): FaultKind[] => [
      "kill",
      ...(victim.freeze ? (["freeze"] as const) : []),
      ...(victim.restart ? (["restart"] as const) : []),
    ];
    return {
      ...Object.fromEntries([...this.victims].map(([name, victim]) => [name, kindsOf(victim)])),
      ...Object.fromEntries([...this.disks.keys()].map((name) => [name, ["fill"] as const])),
      clock: ["jump"],
    };
  }

  /** What can happen to the network here. */
  get lineTargets(): Targets {
    const kinds = ["cut", "stall", "slow", "half-open"] as const;
    return Object.fromEntries([...this.lines.keys()].map((name) => [name, kinds]));
  }

  /** Sets every instance's clock, as when the machine's is set. */
  jump(offsetMs: number): void {
    writeFileSync(this.#clockFile, String(offsetMs));
    for (const { pids } of this.instances) for (const pid of pids) process.kill(pid, "SIGUSR2");
  }

  /** Notes what each process takes once it has worked for a while. */
  noteMemory(): void {
    for (const pid of this.instances.flatMap((instance) => treePids(instance.pid))) {
      const seenMs = this.#seenMs.get(pid) ?? Date.now();
      this.#seenMs.set(pid, seenMs);
      if (Date.now() - seenMs > WARM_MS && !this.#rssMbBefore.has(pid))
        this.#rssMbBefore.set(pid, ownRssMb(pid));
    }
  }

  /** Of this process or of its worker, whichever has grown more: a sum would tell of workers that came later. */
  memoryOf(root: number): { rssMbBefore: number | null; rssMbAfter: number } {
    const all = treePids(root).map((pid) => ({
      rssMbBefore: this.#rssMbBefore.get(pid) ?? null,
      rssMbAfter: ownRssMb(pid),
    }));
    const grown = ({ rssMbBefore, rssMbAfter }: (typeof all)[number]) =>
      rssMbBefore === null ? Number.NEGATIVE_INFINITY : rssMbAfter - rssMbBefore;
    return all.sort((a, b) => grown(b) - grown(a))[0]!;
  }

  log(index: number): string {
    try {
      return readFileSync(this.logFile(index), "utf8");
    } catch {
      return "";
    }
  }

  async close(): Promise<void> {
    open.delete(this);
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
  }
}
