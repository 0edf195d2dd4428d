import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { WriteTurn } from "../kernel/write-turn.ts";
import type { Bus, RateLimiter, Reservations } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";
import { InProcessRateLimiter } from "./in-process/rate-limiter.ts";
import { InProcessReservations } from "./in-process/reservations.ts";
import { RedisBus, reach } from "./redis/bus.ts";
import { ClusterScripts, RedisCluster, slotOf } from "./redis/cluster.ts";
import { RedisLimits } from "./redis/limits.ts";
import { RedisPurses } from "./redis/purses.ts";
import { RedisScripts } from "./redis/scripts.ts";
import { LimitGroup, SlicedRateLimiter } from "./slices/limit-group.ts";
import { PurseGroup } from "./slices/purse-group.ts";
import { SlicedReservations } from "./slices/reservations.ts";
import { WorkerBus } from "./workers/bus.ts";
import { WorkerLink } from "./workers/link.ts";
import { WorkerRateLimiter } from "./workers/rate-limiter.ts";
import { WorkerReservations } from "./workers/reservations.ts";

/** How a worker reaches its supervisor, and its id there. */
export interface SupervisorAddress {
  path: string;
  worker: string;
}

/** Into so many groups limits and purses are divided on a cluster; each is in one slot, and so on one of its nodes. */
export const CLUSTER_GROUPS = 32;

interface BusOptions {
  redisUrl: string | null;
  /** Where there is no Redis; null: this process is alone. */
  supervisor?: SupervisorAddress | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** What instances share, over Redis where that is configured, or over the socket of their supervisor. */
export interface Shared {
  bus: Bus;
  limiter: RateLimiter;
  reservations: Reservations;
  /** The order in which workers write to their common database file. */
  writeTurn: WriteTurn | null;
  close(): Promise<void>;
}

export async function openBus(options: BusOptions): Promise<Shared> {
  const { redisUrl, supervisor = null, clock, ids, log } = options;
  const fallback = new InProcessRateLimiter(clock);
  if (redisUrl === null && supervisor !== null) return openWorkerBus(supervisor, fallback, log);
  if (redisUrl === null) {
    const bus = new InProcessBus();
    const reservations = new InProcessReservations();
    return { bus, limiter: fallback, reservations, writeTurn: null, close: () => bus.close() };
  }
  await using half = new AsyncDisposableStack();
  const cluster = (await reach(redisUrl)) ? await RedisCluster.open({ url: redisUrl, clock, log }) : null;
  half.defer(() => cluster?.close());
  const nextUrl = cluster && (() => cluster.nextUrl());
  const bus = await RedisBus.connect({ url: redisUrl, nextUrl, instanceId: ids.uuid(), log });
  half.defer(() => bus.close());
  const scripts = new RedisScripts({ server: bus, clock, log });
  half.defer(() => scripts.close());
  const tags = Array.from({ length: cluster ? CLUSTER_GROUPS : 1 }, (_, group) => String(group));
  const groupOf = cluster ? (name: string) => slotOf(name) % CLUSTER_GROUPS : () => 0;
  const servers = tags.map((tag) => (cluster ? new ClusterScripts(cluster, tag) : scripts));
  const limits = tags.map(
    (tag, group) =>
      new LimitGroup({ server: new RedisLimits(servers[group]!, tag), fallback, bus, clock, log }),
  );
  const purses = tags.map(
    (tag, group) =>
      new PurseGroup({ server: new RedisPurses(servers[group]!, tag), group, bus, clock, ids, log }),
  );
  cluster?.onMoved(() => {
    for (const group of purses) group.enterElsewhere();
  });
  const limiter = new SlicedRateLimiter(limits, groupOf);
  half.defer(() => limiter.close());
  const reservations = new SlicedReservations(purses, groupOf);
  half.defer(() => reservations.close());
  await Promise.all(purses.map((group) => group.enter()));
  const whole = half.move();
  // The server may be gone by then, or go just now; the rest of the stop does not depend on it.
  const close = () =>
    whole.disposeAsync().catch((error) => log.warn("closing the connection to Redis failed", { error }));
  return { bus, limiter, reservations, writeTurn: null, close };
}

async function openWorkerBus(
  { path, worker }: SupervisorAddress,
  fallback: RateLimiter,
  log: Log,
): Promise<Shared> {
  const link = new WorkerLink({ path, log });
  const reservations = new WorkerReservations({ link, worker });
  const bus = new WorkerBus(link);
  try {
    await link.open();
  } catch (error) {
    link.close();
    throw new Error(`the supervisor's socket ${path} cannot be used: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const close = async () => {
    await reservations.close();
    link.close();
    await bus.close();
  };
  const writeTurn = async () => {
    const isOurs = await link
      .ask((id) => ["write", id])
      .then(
        () => true,
        () => false,
      );
    return () => {
      if (isOurs) link.send(["written"]);
    };
  };
  return { bus, limiter: new WorkerRateLimiter({ link, fallback }), reservations, writeTurn, close };
}
