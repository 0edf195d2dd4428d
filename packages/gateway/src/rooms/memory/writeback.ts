import type { Clock } from "../../kernel/clock.ts";
import { sleep } from "../../kernel/clock.ts";

const QUEUE_MAX = 1_000;
const ATTEMPTS_MAX = 5;
const RETRY_FIRST_MS = 1_000;

export interface Turn {
  userId: string;
  messages: { role: string; content: string }[];
  idempotencyKey: string;
}

export interface WritebackOptions {
  clock: Clock;
  /** Stores one turn; a throw means: try again later. Resolves with the number of facts. */
  write(turn: Turn): Promise<number>;
  /** How a turn ended; null when the queue was full and it was never tried. */
  onDone(turn: Turn, outcome: { count: number } | { error: unknown }): void;
}

/** Turns on their way to memory, one at a time and in order, each tried a few times and then given up. */
export class WritebackQueue {
  readonly #queue: Turn[] = [];
  #working = false;
  #closed = false;
  constructor(readonly options: WritebackOptions) {}

  /** Never waits and never throws. */
  push(turn: Turn): void {
    if (this.#closed) return;
    if (this.#queue.length >= QUEUE_MAX) {
      this.options.onDone(turn, { error: new Error("too many turns wait to be written") });
      return;
    }
    this.#queue.push(turn);
    if (!this.#working) void this.#work();
  }

  close(): void {
    this.#closed = true;
    this.#queue.length = 0;
  }

  async #work(): Promise<void> {
    this.#working = true;
    for (let turn = this.#queue.shift(); turn; turn = this.#queue.shift()) await this.#deliver(turn);
    this.#working = false;
  }

  async #deliver(turn: Turn): Promise<void> {
    const { clock, write, onDone } = this.options;
    for (let attempt = 1; !this.#closed; attempt++) {
      try {
        onDone(turn, { count: await write(turn) });
        return;
      } catch (error) {
        if (attempt >= ATTEMPTS_MAX) {
          onDone(turn, { error });
          return;
        }
        await sleep(clock, RETRY_FIRST_MS * 2 ** (attempt - 1));
      }
    }
  }
}
