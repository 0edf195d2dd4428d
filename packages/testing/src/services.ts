/**
 * The real parts that tests and benchmarks stand on: a private Postgres cluster and Redis server on free
 * ports, a Chromium binary, and the shells that completion is for. Each is installed with apt where that is
 * allowed (Debian, root), taken from the machine where it already exists, and otherwise named as missing.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./until.ts";

export interface Services {
  /** Environment for the test processes: TEST_POSTGRES_URL, TEST_REDIS_URL, TEST_CHROMIUM, TEST_CHROMIUM_HEADLESS. */
  env: Record<string, string>;
  /** What could not be had, each with its reason. */
  missing: string[];
  stop(): void;
}

const isRoot = process.getuid?.() === 0;

function postgresBin(name: string): string | null {
  const fromPath = Bun.which(name);
  if (fromPath && name !== "psql") return fromPath;
  const root = "/usr/lib/postgresql";
  if (!existsSync(root)) return null;
  const newestFirst = readdirSync(root).sort((a, b) => Number(b) - Number(a));
  for (const version of newestFirst) {
    const path = join(root, version, "bin", name);
    if (existsSync(path)) return path;
  }
  return null;
}

export function findChromium(): string | null {
  return Bun.which("chromium") ?? Bun.which("chromium-browser") ?? Bun.which("google-chrome");
}

/** The same without a window's machinery, which takes a third of the time; not every distribution has it. */
const headlessShell = () => Bun.which("chromium-headless-shell");

/** Shells that the completion scripts are loaded in. */
const missingShells = () => ["zsh", "fish"].filter((shell) => !Bun.which(shell));

/** Proxies that the guide's examples are run in; Debian keeps them outside of most people's PATH. */
const missingProxies = () =>
  ["nginx", "haproxy", "caddy"].filter(
    (proxy) => !Bun.which(proxy, { PATH: `${process.env.PATH}:/usr/sbin` }),
  );

/** apt packages of what is missing; quiet, and a failure only means that the part stays missing. */
function installMissing(): void {
  const wanted: string[] = [];
  if (!postgresBin("initdb")) wanted.push("postgresql");
  if (!redisServer()) wanted.push("redis-server");
  if (!findChromium()) wanted.push("chromium");
  if (!Bun.which("cc")) wanted.push("gcc", "libc6-dev");
  if (!Bun.which("openssl")) wanted.push("openssl");
  wanted.push(...missingShells(), ...missingProxies());
  const others = headlessShell() ? [] : ["chromium-headless-shell"];
  if (wanted.length + others.length === 0 || !isRoot || !Bun.which("apt-get")) return;
  console.log(`installing for the tests: ${[...wanted, ...others].join(", ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  spawnSync("apt-get", ["update", "-q"], { env, stdio: "ignore" });
  // One name that is not known would keep the others away, too.
  for (const names of [wanted, others])
    spawnSync("apt-get", ["install", "-y", "-q", "--no-install-recommends", ...names], {
      env,
      stdio: "ignore",
    });
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}

/** Postgres refuses to run as root, so there it runs as the `postgres` account of the Debian package. */
function asPostgres(command: string, args: string[]): [string, string[]] {
  return isRoot
    ? ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", command, ...args]]
    : [command, args];
}

export interface PostgresServer {
  url: string;
  child: ChildProcess;
  /** Starts the same cluster again on the same port, once `child` has ended. */
  restart(): Promise<PostgresServer>;
}

/** A cluster of its own in `dir`, on a free port. */
export async function startPostgres(dir: string, settings: readonly string[] = []): Promise<PostgresServer> {
  const initdb = postgresBin("initdb");
  if (!initdb) throw new Error("no Postgres server binaries found");
  const data = join(dir, "pg");
  mkdirSync(data);
  if (isRoot) {
    const uid = Number(spawnSync("id", ["-u", "postgres"]).stdout.toString());
    const gid = Number(spawnSync("id", ["-g", "postgres"]).stdout.toString());
    chownSync(dir, uid, gid);
    chownSync(data, uid, gid);
  }
  const options = ["-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync"];
  const [command, args] = asPostgres(initdb, options);
  const made = spawnSync(command, args, { cwd: dir });
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr?.toString().trim()}`);
  return launchPostgres(data, await freePort(), settings);
}

async function launchPostgres(data: string, port: number, more: readonly string[]): Promise<PostgresServer> {
  const server = postgresBin("postgres");
  if (!server) throw new Error("no Postgres server binaries found");
  const settings = ["listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=64MB", ...more];
  const [command, args] = asPostgres(server, [
    ...["-D", data, "-p", String(port), "-k", data],
    ...settings.flatMap((setting) => ["-c", setting]),
  ]);
  const child = spawn(command, args, { cwd: data, stdio: "ignore" });
  const psql = postgresBin("psql") ?? "psql";
  const login = ["-h", "127.0.0.1", "-p", String(port), "-U", "postgres", "-c", "select 1"];
  await until("Postgres answers", () => spawnSync(psql, login).status === 0);
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    child,
    restart: () => launchPostgres(data, port, more),
  };
}

/** Redis, or Valkey where it is the one installed or the one that `TEST_REDIS_SERVER` names. */
const redisServer = () =>
  process.env.TEST_REDIS_SERVER ?? Bun.which("redis-server") ?? Bun.which("valkey-server");

/** A server that keeps nothing; on a free port unless one is given. */
export async function startRedis(
  dir: string,
  port?: number,
  settings: readonly string[] = [],
): Promise<{ url: string; port: number; child: ChildProcess }> {
  const binary = redisServer();
  if (!binary) throw new Error("no redis-server binary found");
  port ??= await freePort();
  const nothingKept = ["--save", "", "--appendonly", "no"];
  const child = spawn(
    binary,
    ["--port", String(port), "--bind", "127.0.0.1", ...nothingKept, "--dir", dir, ...settings],
    { stdio: "ignore" },
  );
  const url = `redis://127.0.0.1:${port}`;
  await until("Redis answers", async () => {
    try {
      await redisCommand(url, "PING");
      return true;
    } catch {
      return false;
    }
  });
  return { url, port, child };
}

/** One command on a connection of its own. */
export async function redisCommand(url: string, command: string, ...args: string[]): Promise<unknown> {
  const client = new Bun.RedisClient(url, { autoReconnect: false });
  try {
    return await client.send(command, args);
  } finally {
    client.close();
  }
}

export interface RedisClusterNode {
  url: string;
  port: number;
  child: ChildProcess;
}

const SLOTS = 16_384;

/** A Redis Cluster of three primaries, and a replica for each of the first `replicas`. */
export async function startRedisCluster(
  dir: string,
  replicas: number,
): Promise<{ primaries: RedisClusterNode[]; replicas: RedisClusterNode[]; stop(): void }> {
  const nodes: RedisClusterNode[] = [];
  const busPorts: number[] = [];
  for (let i = 0; i < 3 + replicas; i++) {
    busPorts.push(await freePort());
    const own = join(dir, `node-${i}`);
    mkdirSync(own);
    const settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    settings.push("--cluster-require-full-coverage", "no");
    nodes.push(await startRedis(own, undefined, [...settings, "--cluster-port", String(busPorts[i])]));
  }
  const cluster = (node: RedisClusterNode, ...args: string[]) => redisCommand(node.url, "CLUSTER", ...args);
  const primaries = nodes.slice(0, 3);
  for (const [i, node] of primaries.entries()) {
    const [first, end] = [i, i + 1].map((n) => Math.ceil((n * SLOTS) / 3));
    await cluster(node, "ADDSLOTSRANGE", String(first), String(end! - 1));
  }
  for (const [i, { port }] of nodes.slice(1).entries())
    await cluster(nodes[0]!, "MEET", "127.0.0.1", String(port), String(busPorts[i + 1]));
  const knows = async (node: RedisClusterNode, count: number) => {
    const info = String(await cluster(node, "INFO"));
    return info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${count}`);
  };
  const allKnow = async () =>
    (await Promise.all(nodes.map((node) => knows(node, nodes.length)))).every(Boolean);
  await until("the nodes of the cluster know each other", allKnow, 30_000);
  for (const [i, node] of nodes.slice(3).entries())
    await cluster(node, "REPLICATE", String(await cluster(primaries[i]!, "MYID")));
  await until(
    "the replicas follow their primaries",
    async () => {
      const links = nodes.slice(3).map(({ url }) => redisCommand(url, "INFO", "replication"));
      return (await Promise.all(links)).every((info) => String(info).includes("master_link_status:up"));
    },
    30_000,
  );
  return {
    primaries,
    replicas: nodes.slice(3),
    stop() {
      for (const { child } of nodes) child.kill("SIGKILL");
    },
  };
}

export async function startServices(postgresSettings: readonly string[] = []): Promise<Services> {
  installMissing();
  const dir = mkdtempSync(join(tmpdir(), "model-gateway-services-"));
  const children: ChildProcess[] = [];
  const env: Record<string, string> = {};
  const missing: string[] = [];
  const attempt = async (
    name: string,
    variable: string,
    start: (dir: string) => Promise<{ url: string; child: ChildProcess }>,
  ) => {
    try {
      const { url, child } = await start(dir);
      children.push(child);
      env[variable] = url;
    } catch (error) {
      missing.push(`${name}: ${(error as Error).message}`);
    }
  };
  await attempt("Postgres", "TEST_POSTGRES_URL", (at) => startPostgres(at, postgresSettings));
  await attempt("Redis", "TEST_REDIS_URL", startRedis);
  const chromium = findChromium();
  if (chromium) env.TEST_CHROMIUM = chromium;
  const headless = headlessShell() ?? chromium;
  if (headless) env.TEST_CHROMIUM_HEADLESS = headless;
  if (!chromium) missing.push("Chromium: no binary found and it could not be installed");
  const others = [...missingShells(), ...missingProxies()];
  missing.push(...others.map((name) => `${name}: not installed, and it could not be`));
  return {
    env,
    missing,
    stop() {
      for (const child of children) child.kill("SIGKILL");
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
