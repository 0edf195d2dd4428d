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
import type { LimitServer, PurseServer } from "./slices/contract.ts";
import { LimitGroup, SlicedRateLimiter } from "./slices/limit-group.ts";
import { PurseGroup } from "./slices/purse-group.ts";
import { SlicedReservations } from "./slices/reservations.ts";
import { WorkerBus } from "./workers/bus.ts";
import { WorkerLink } from "./workers/link.ts";
import { WorkerLimits, WorkerPurses } from "./workers/servers.ts";

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
  const { redisUrl, supervisor = null, clock } = options;
  if (redisUrl !== null) return openRedisBus(redisUrl, options);
  if (supervisor !== null) return openWorkerBus(supervisor, options);
  const bus = new InProcessBus();
  const limiter = new InProcessRateLimiter(clock);
  const reservations = new InProcessReservations();
  return { bus, limiter, reservations, writeTurn: null, close: () => bus.close() };
}

async function openRedisBus(url: string, { clock, ids, log }: BusOptions): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  const cluster = (await reach(url)) ? await RedisCluster.open({ url, clock, log }) : null;
  half.defer(() => cluster?.close());
  const nextUrl = cluster && (() => cluster.nextUrl());
  const bus = await RedisBus.connect({ url, nextUrl, instanceId: ids.uuid(), log });
  half.defer(() => bus.close());
  const scripts = new RedisScripts({ server: bus, clock, log });
  half.defer(() => scripts.close());
  const tags = Array.from({ length: cluster ? CLUSTER_GROUPS : 1 }, (_, group) => String(group));
  const groupOf = cluster ? (name: string) => slotOf(name) % CLUSTER_GROUPS : () => 0;
  const servers = tags.map((tag) => {
    const server = cluster ? new ClusterScripts(cluster, tag) : scripts;
    return { limits: new RedisLimits(server, tag), purses: new RedisPurses(server, tag) };
  });
  const sliced = new Sliced({ servers, groupOf, bus, clock, ids, log });
  half.defer(() => sliced.close());
  cluster?.onMoved(() => {
    for (const group of sliced.reservations.groups) group.enterElsewhere();
  });
  await sliced.enter();
  const whole = half.move();
  // The server may be gone by then, or go just now; the rest of the stop does not depend on it.
  const close = () =>
    whole.disposeAsync().catch((error) => log.warn("closing the connection to Redis failed", { error }));
  const { limiter, reservations } = sliced;
  return { bus, limiter, reservations, writeTurn: null, close };
}

async function openWorkerBus(
  { path, worker }: SupervisorAddress,
  { clock, ids, log }: BusOptions,
): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  const link = new WorkerLink({ path, log });
  half.defer(() => link.close());
  const bus = new WorkerBus(link);
  half.defer(() => bus.close());
  const servers = [{ limits: new WorkerLimits(link), purses: new WorkerPurses(link, worker) }];
  const sliced = new Sliced({ servers, groupOf: () => 0, bus, clock, ids, log });
  half.defer(() => sliced.close());
  await link.open().catch((error: Error) => {
    throw new Error(`the supervisor's socket ${path} cannot be used: ${error.message}`, { cause: error });
  });
  await sliced.enter();
  const writeTurn = async () => {
    const isOurs = await link.ask("write").catch(() => false);
    return () => {
      if (isOurs) link.send(["written"]);
    };
  };
  const whole = half.move();
  const { limiter, reservations } = sliced;
  return { bus, limiter, reservations, writeTurn, close: () => whole.disposeAsync() };
}

interface SlicedOptions extends Pick<BusOptions, "clock" | "ids" | "log"> {
  /** Each counts a group of the names. */
  servers: readonly { limits: LimitServer; purses: PurseServer }[];
  groupOf: (name: string) => number;
  bus: Bus;
}

/** Limits and holds in slices of what servers count for all instances. */
class Sliced {
  readonly limiter: SlicedRateLimiter;
  readonly reservations: SlicedReservations;

  constructor({ servers, groupOf, bus, clock, ids, log }: SlicedOptions) {
    const fallback = new InProcessRateLimiter(clock);
    this.limiter = new SlicedRateLimiter(
      servers.map(({ limits: server }) => new LimitGroup({ server, fallback, bus, clock, log })),
      groupOf,
    );
    this.reservations = new SlicedReservations(
      servers.map(({ purses: server }, group) => new PurseGroup({ server, group, bus, clock, ids, log })),
      groupOf,
    );
  }

  async enter(): Promise<void> {
    await Promise.all(this.reservations.groups.map((group) => group.enter()));
  }

  async close(): Promise<void> {
    await this.reservations.close();
    await this.limiter.close();
  }
}
