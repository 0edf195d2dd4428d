import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres, startRedis } from "@model-gateway/testing/services.ts";
import type { Bench, Row } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { launchGateway, signUp } from "../lib/gateway.ts";
import { rssMb, stop } from "../lib/processes.ts";

const CONNECTIONS = 4_000;
/** Opened first and not counted: what the first connections of a process cost once is not theirs. */
const FIRST_CONNECTIONS = 1_000;
const BATCH = 100;
const SETTLED_MS = 2_000;
/** By then every event stream was sent a keep-alive, which takes some memory once. */
const KEPT_ALIVE_MS = 16_000;

const get = (path: string, rest = "") => `GET ${path} HTTP/1.1\r\nhost: bench\r\n${rest}\r\n`;
const UPGRADE =
  "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const CALL = '{"jsonrpc":"2.0","id":1,"method":"auth.me"}';

const EVENT_STREAM = "idle event stream";
/** The first bytes of a connection of each kind; signed in, since anonymous ones together get a part of the connections. */
export const kinds: Record<string, (accessToken: string) => string> = {
  [EVENT_STREAM]: (accessToken) => get(`/api/rpc/events?session=${crypto.randomUUID()}&token=${accessToken}`),
  "idle WebSocket": (accessToken) => get(`/api/rpc?token=${accessToken}`, UPGRADE),
  "idle HTTP connection": (accessToken) =>
    `POST /api/rpc HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer ${accessToken}\r\ncontent-type: application/json\r\ncontent-length: ${CALL.length}\r\n\r\n${CALL}`,
};

async function open(port: number, head: string): Promise<() => void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      data: (_, bytes) =>
        /^HTTP\/1.1 (101|200)/.test(bytes.toString("latin1")) ? resolve() : reject(new Error("refused")),
      error: (_, error) => reject(error),
    },
  });
  socket.write(head);
  await promise;
  return () => socket.terminate();
}

export async function openMany(port: number, count: number, head: () => string): Promise<(() => void)[]> {
  const closers: (() => void)[] = [];
  while (closers.length < count)
    closers.push(...(await Promise.all(Array.from({ length: BATCH }, () => open(port, head())))));
  await Bun.sleep(SETTLED_MS);
  return closers;
}

/** What the warm-up needed is given back while connections are opened. */
const NOT_WARMED = { SERVICE_WARM_UP: "0" };

/** A fresh process for each kind, since what another kind has left behind would be used again. */
async function measureOn(bench: Bench, shared: { databaseUrl: string; redisUrl: string } | undefined) {
  const samples = new Samples("idle");
  for (const [kind, head] of Object.entries(kinds)) {
    for (let round = 0; round < (bench.quick ? 1 : 2); round++) {
      const name = `idle-${crypto.randomUUID()}`;
      const { pid, port, url } = await launchGateway({ name, shared, settings: NOT_WARMED });
      const { accessToken } = await signUp(url);
      const closers = await openMany(port, FIRST_CONNECTIONS, () => head(accessToken));
      const before = rssMb(pid);
      closers.push(...(await openMany(port, CONNECTIONS, () => head(accessToken))));
      if (kind === EVENT_STREAM && !bench.quick) await Bun.sleep(KEPT_ALIVE_MS);
      const kilobytes = ((rssMb(pid) - before) * 1024) / CONNECTIONS;
      samples.add("gateway", `${kind}${shared ? " with Redis" : ""}`, "KB", kilobytes);
      for (const close of closers) close();
      await stop(pid);
    }
  }
  return samples.figures;
}

async function measureShared(bench: Bench) {
  const dir = mkdtempSync(join(tmpdir(), "gateway-bench-idle-"));
  const postgres = await startPostgres(dir);
  const redis = await startRedis(dir);
  try {
    return await measureOn(bench, { databaseUrl: postgres.url, redisUrl: redis.url });
  } finally {
    redis.child.kill("SIGKILL");
    postgres.child.kill("SIGKILL");
    rmSync(dir, { recursive: true, force: true });
  }
}

export const rows: Row[] = [
  {
    group: "idle",
    measure: async (bench) => [...(await measureOn(bench, undefined)), ...(await measureShared(bench))],
  },
];
