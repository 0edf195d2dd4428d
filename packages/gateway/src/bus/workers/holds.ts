import { BoundedMap } from "../../kernel/bounded.ts";
import { type Asking, grantedChanges, REFUSED, type ReservedChange, type Spent } from "../contract.ts";
import { InProcessReservations } from "../in-process/reservations.ts";
import { ReservedSums } from "./sums.ts";

/** Names whose newest known use is kept; beyond it, what a worker read from the database counts. */
const SPENT_MAX = 100_000;

/** What all workers have reserved together, and each of them. */
export class WorkerHolds {
  readonly #all = new InProcessReservations();
  readonly #byWorker = new Map<string, ReservedSums>();
  readonly #spent = new BoundedMap<string, Spent>(SPENT_MAX);

  /** From now on the worker has reserved this, and nothing else. */
  enter(worker: string, reserved: readonly ReservedChange[]): void {
    this.forget(worker);
    this.#byWorker.set(worker, new ReservedSums());
    this.change(worker, reserved);
  }

  grant(worker: string, asking: Asking): number {
    const purses = asking.purses.map((purse) => {
      const newest = this.#spent.get(purse.name);
      return newest && newest.version > purse.spent.version ? { ...purse, spent: newest } : purse;
    });
    const units = this.#all.grant({ ...asking, purses });
    if (units !== REFUSED) this.#byWorker.get(worker)?.change(grantedChanges(asking, units));
    return units;
  }

  change(worker: string, changes: readonly ReservedChange[]): void {
    this.#all.change(changes);
    this.#byWorker.get(worker)?.change(changes);
    for (const { name, spent } of changes)
      if (spent && spent.version > (this.#spent.get(name)?.version ?? -1)) this.#spent.set(name, spent);
  }

  /** Frees everything that the worker has reserved. */
  forget(worker: string): void {
    this.#all.change(this.#byWorker.get(worker)?.all(-1) ?? []);
    this.#byWorker.delete(worker);
  }
}
