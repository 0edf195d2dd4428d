import { systemClock } from "../../kernel/clock.ts";
import type { BusOptions, Shared } from "../index.ts";
import { SharedCounter } from "../shared-counter.ts";
import { RedisBus, reach } from "./bus.ts";
import { RedisCounter } from "./counter.ts";

export const redisPrefix = (service: string): string => `gateway:${service}:`;

/** Uses real time, like the server, even if tests give the rooms another clock. */
export async function openRedisBus(url: string, { service, ids, log }: BusOptions): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  await reach(url);
  const prefix = redisPrefix(service);
  const bus = await RedisBus.connect({ url, prefix, instanceId: ids.uuid(), log });
  half.defer(() => bus.close());
  const server = new RedisCounter({ server: bus, prefix, clock: systemClock, log });
  half.defer(() => server.close());
  const counter = new SharedCounter({ server, bus, clock: systemClock, ids, log });
  half.defer(() => counter.close());
  await counter.open();
  const whole = half.move();
  // The server may be gone by then; the rest of the stop does not depend on it.
  const close = () =>
    whole.disposeAsync().catch((error) => log.warn("closing the connection to Redis failed", { error }));
  return { bus, counter, close };
}
