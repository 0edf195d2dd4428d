import { type Clock, sleep } from "../../kernel/clock.ts";

const QUEUE_MAX = 1_000;
const ATTEMPTS_MAX = 5;
const RETRY_FIRST_MS = 1_000;

export interface Turn {
  userId: string;
  messages: { role: string; content: string }[];
  idempotencyKey: string;
}

export interface MemoryOutcome {
  nodeIds?: string[];
  /** If it differs from the number of ids. */
  count?: number;
  /** Set when it failed. */
  error?: unknown;
}
export type TurnOutcome = MemoryOutcome & { durationMs: number };

interface WritebackOptions {
  clock: Clock;
  /** Stores one turn and returns the ids of its facts; throwing means: try again later. */
  write(turn: Turn): Promise<string[]>;
  /** Called with the outcome of a turn, including one that the full queue rejected. */
  onDone(turn: Turn, outcome: TurnOutcome): void;
}

/** The queue of turns to be remembered: one at a time, in order, with a few attempts each. */
export class WritebackQueue {
  readonly #queue: Turn[] = [];
  #working: Promise<void> | null = null;
  #closed = false;
  constructor(readonly options: WritebackOptions) {}

  /** Never waits and never throws. */
  push(turn: Turn): void {
    if (this.#closed) return;
    if (this.#queue.length >= QUEUE_MAX) {
      this.options.onDone(turn, { error: new Error("too many turns wait to be written"), durationMs: 0 });
      return;
    }
    this.#queue.push(turn);
    this.#working ??= this.#work();
  }

  /** Waits until everything is written, but no longer than `limitMs`. */
  async flush(limitMs: number): Promise<void> {
    if (this.#working) await Promise.race([this.#working, sleep(this.options.clock, limitMs)]);
  }

  close(): void {
    this.#closed = true;
    this.#queue.length = 0;
  }

  async #work(): Promise<void> {
    for (let turn = this.#queue.shift(); turn; turn = this.#queue.shift()) await this.#deliver(turn);
    this.#working = null;
  }

  async #deliver(turn: Turn): Promise<void> {
    const { clock, write, onDone } = this.options;
    const startedAtMs = clock.now();
    for (let attempt = 1; !this.#closed; attempt++) {
      const written = write(turn).then((nodeIds): MemoryOutcome => ({ nodeIds }));
      const outcome = await written.catch((error: unknown): MemoryOutcome => ({ error }));
      if (outcome.error === undefined || attempt >= ATTEMPTS_MAX)
        return onDone(turn, { ...outcome, durationMs: clock.now() - startedAtMs });
      await sleep(clock, RETRY_FIRST_MS * 2 ** (attempt - 1));
    }
  }
}
