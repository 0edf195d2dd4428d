import { type Clock, isoTime } from "../kernel/clock.ts";
import type { Database, Leases } from "./contract.ts";

/** Uses the instances' clocks, which should agree within a few seconds. */
export class DatabaseLeases implements Leases {
  constructor(readonly options: { db: Database; clock: Clock; instance: string }) {}

  /** Reads first, because writing takes the write lock and wakes the disk. An own lease is extended after half its time. */
  async acquire(name: string, durationMs: number): Promise<boolean> {
    const { db, clock, instance } = this.options;
    const nowMs = clock.now();
    // A lease that ends much later than this was taken before the clock was set back.
    const farMs = 10 * durationMs;
    const held = await db.get("SELECT owner, held_until FROM leases WHERE name = $1", [name]);
    const leftMs = held ? Date.parse(String(held.held_until)) - nowMs : 0;
    const isOwn = held?.owner === instance;
    if (leftMs > (isOwn ? durationMs / 2 : 0) && leftMs <= farMs) return isOwn;
    const changed = await db.run(
      `INSERT INTO leases (name, owner, held_until) VALUES ($1, $2, $3)
       ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
       WHERE leases.owner = excluded.owner OR leases.held_until < $4 OR leases.held_until > $5`,
      [name, instance, isoTime(nowMs + durationMs), isoTime(nowMs), isoTime(nowMs + farMs)],
    );
    return changed > 0;
  }

  release(name: string): Promise<unknown> {
    const { db, instance } = this.options;
    return db.run("DELETE FROM leases WHERE name = $1 AND owner = $2", [name, instance]);
  }

  async releaseAll(): Promise<void> {
    await this.options.db.run("DELETE FROM leases WHERE owner = $1", [this.options.instance]);
  }
}
