import { oneAtATime } from "../../kernel/bounded.ts";
import { sleep } from "../../kernel/clock.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";

const PERIOD_MS = 10 * 60_000;
const FIRST_AFTER_MS = 60_000;
/** Renewed after each step; after this time another instance takes over from a dead one. */
const LEASE_MS = 5 * 60_000;
const LEASE = "housekeeping";
/** Small, so that a step holds its locks for milliseconds only. */
const ROWS_PER_STEP = 1_000;
/** Between steps, so that others get the database. */
const PAUSE_MS = 50;

/** Removes what is no longer needed, in small steps, on one instance at a time. */
export class Housekeeping {
  readonly #ends: (() => void)[];
  #closed = false;

  constructor(
    readonly options: Needs<"clock" | "log" | "bus" | "leases"> & { sweeps: Readonly<Record<string, Sweep>> },
  ) {
    const { clock } = options;
    const sweep = () => void this.sweep();
    this.#ends = [clock.after(FIRST_AFTER_MS, sweep), clock.every(PERIOD_MS, sweep)];
  }

  /** One sweep of everything, unless another instance is doing it. */
  readonly sweep = oneAtATime(() =>
    this.#sweepAll().catch((error) => this.options.log.warn("housekeeping failed; will retry", { error })),
  );

  async #sweepAll(): Promise<void> {
    const { clock, bus, leases, log, sweeps } = this.options;
    // A lone process needs no lease, so that a service at rest writes nothing.
    const isOurs = async () => !this.#closed && (!bus.shared || (await leases.acquire(LEASE, LEASE_MS)));
    if (!(await isOurs())) return;
    for (const [name, sweep] of Object.entries(sweeps)) {
      let removed = 0;
      do {
        // A failure in one table must not stop the others.
        const count = await sweep(clock.now(), ROWS_PER_STEP).catch((error) => {
          log.warn("removing expired rows failed; will retry", { what: name, error });
          return 0;
        });
        removed += count;
        if (count < ROWS_PER_STEP) break;
        await sleep(clock, PAUSE_MS);
      } while (await isOurs());
      if (removed > 0) log.info("removed expired rows", { what: name, rows: removed });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const end of this.#ends) end();
    await this.sweep.running;
  }
}
