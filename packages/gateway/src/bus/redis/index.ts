import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { RateLimiter } from "../contract.ts";
import type { Shared } from "../index.ts";
import { LimitGroup, SlicedRateLimiter } from "../slices/limit-group.ts";
import { PurseGroup } from "../slices/purse-group.ts";
import { SlicedReservations } from "../slices/reservations.ts";
import { RedisBus, reach } from "./bus.ts";
import { ClusterScripts, RedisCluster, slotOf } from "./cluster.ts";
import { RedisLimits } from "./limits.ts";
import { RedisPurses } from "./purses.ts";
import { RedisScripts } from "./scripts.ts";

/** Into so many groups limits and purses are divided on a cluster; each is in one slot, and so on one of its nodes. */
export const CLUSTER_GROUPS = 32;

interface RedisOptions {
  redisUrl: string;
  /** Limits while the server cannot be reached. */
  fallback: RateLimiter;
  clock: Clock;
  ids: Ids;
  log: Log;
}

export async function openRedis({ redisUrl, fallback, clock, ids, log }: RedisOptions): Promise<Shared> {
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
