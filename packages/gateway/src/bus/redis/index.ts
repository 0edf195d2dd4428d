import type { BusOptions, Shared } from "../index.ts";
import { Sliced } from "../slices/sliced.ts";
import { RedisBus, reach } from "./bus.ts";
import { ClusterScripts, RedisCluster, slotOf } from "./cluster.ts";
import { RedisLimits } from "./limits.ts";
import { RedisPurses } from "./purses.ts";
import { RedisScripts } from "./scripts.ts";

/** Into so many groups limits and purses are divided on a cluster; each is in one slot, and so on one of its nodes. */
export const CLUSTER_GROUPS = 32;

export async function openRedisBus(url: string, { clock, ids, log }: BusOptions): Promise<Shared> {
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
