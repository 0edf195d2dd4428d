import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { Bus } from "../contract.ts";
import { InProcessRateLimiter } from "../in-process/rate-limiter.ts";
import type { LimitServer, PurseServer } from "./contract.ts";
import { LimitGroup, SlicedRateLimiter } from "./limit-group.ts";
import { PurseGroup } from "./purse-group.ts";
import { SlicedReservations } from "./reservations.ts";

interface SlicedOptions {
  /** Each counts a group of the names. */
  servers: readonly { limits: LimitServer; purses: PurseServer }[];
  groupOf: (name: string) => number;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** Limits and holds in slices of what servers count for all instances. */
export class Sliced {
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
    // One that fails does not keep the other open.
    const closed = await Promise.allSettled([this.reservations.close(), this.limiter.close()]);
    for (const each of closed) if (each.status === "rejected") throw each.reason;
  }
}
