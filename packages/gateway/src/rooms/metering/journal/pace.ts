/** Rows that come within this time share a transaction, and within how long when many instances settle. */
export const GATHER_MS = { least: 500, most: 30_000 };
/**
 * Transactions a second that all instances together may settle with. Each one changes rows that all of them share:
 * the account of spent points, the sums of the day, and those of the busiest accounts. They wait for each other there.
 */
const SETTLEMENTS_PER_SECOND = 4;
/** With this many rows a transaction costs next to nothing a row; more would only keep others waiting. */
export const BATCH_ROWS_MAX = 4096;
/** When instances take turns, fewer and larger transactions hold the shared rows for less time in all. */
const SHARED_BATCH_ROWS_MAX = 16_384;

interface Count {
  settlements: number;
  atMs: number;
}

/**
 * How long this instance gathers rows before it settles them. Each settlement tells how many all instances have made
 * so far; when the others leave no room for as many as this one makes, it makes fewer, and more when they do.
 */
export class Pace {
  #gatherMs = GATHER_MS.least;
  #last: Count | null = null;
  /** Settlements of this instance since then. */
  #own = 0;

  get gatherMs(): number {
    return this.#gatherMs;
  }

  /** Other instances want the same rows. */
  get isShared(): boolean {
    return this.#gatherMs > GATHER_MS.least;
  }

  get rowsMax(): number {
    return this.isShared ? SHARED_BATCH_ROWS_MAX : BATCH_ROWS_MAX;
  }

  /** A settlement was made; `settlements`: how many there are by now, over all instances. */
  note(settlements: number, atMs: number): void {
    const last = this.#last;
    const passedMs = last ? atMs - last.atMs : -1;
    this.#own++;
    // Batches of a backlog follow each other quickly; they say nothing about how often there is one.
    if (passedMs >= 0 && passedMs < this.#gatherMs / 2) return;
    const byOthers = Math.max(0, settlements - (last?.settlements ?? 0) - this.#own) / passedMs;
    this.#last = { settlements, atMs };
    this.#own = 0;
    // The first one, or the clock was set back.
    if (passedMs < 0) return;
    const perSecond = 1000 * (byOthers + 1 / this.#gatherMs);
    const change = Math.min(2, Math.max(0.5, perSecond / SETTLEMENTS_PER_SECOND));
    this.#gatherMs = Math.min(GATHER_MS.most, Math.max(GATHER_MS.least, this.#gatherMs * change));
  }
}
