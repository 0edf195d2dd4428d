import type { Clock } from "../../kernel/clock.ts";
import type { Holding } from "../slices/contract.ts";
import { MemoryPurses } from "../slices/memory-purses.ts";

/** How long the holds of a worker that has lost its connection stay: it may come back, or be replaced. */
export const LOST_MS = 15_000;

/**
 * What the workers hold. A worker lives as long as its connection. What it held then stays for a while, because nobody
 * knows how much of it requests had used.
 */
export class WorkerHolds {
  /** The id under which each worker holds what it holds. */
  readonly #instances = new Map<string, string>();
  /** How to keep a lost worker's holds after all. */
  readonly #lost = new Map<string, () => void>();

  constructor(
    readonly clock: Clock,
    readonly purses = new MemoryPurses(clock),
  ) {}

  /** From now on the worker has this id, and nothing counts that it held under another one. */
  enter(worker: string, instance: string, holdings: readonly Holding[]): string {
    this.#found(worker);
    const before = this.#instances.get(worker) ?? "";
    this.#instances.set(worker, instance);
    return this.purses.enter(instance, before, holdings);
  }

  /** The worker's connection is gone. */
  lost(worker: string): void {
    this.#found(worker);
    this.#lost.set(
      worker,
      this.clock.after(LOST_MS, () => this.forget(worker)),
    );
  }

  #found(worker: string): void {
    this.#lost.get(worker)?.();
    this.#lost.delete(worker);
  }

  /** Frees what a worker held: it is dead, and what it had spent is in the database. */
  forget(worker: string): void {
    this.#found(worker);
    this.purses.leave(this.#instances.get(worker) ?? "");
    this.#instances.delete(worker);
  }

  close(): void {
    for (const cancel of this.#lost.values()) cancel();
  }
}
