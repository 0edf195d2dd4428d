import type { Decoded, JournalEntry } from "./codec.ts";

/** Rows of a segment that are also kept in memory; with its bytes, what bounds them. */
export const RECENT_ROWS_MAX = 2048;

/** Rows that were appended lately and follow one another, so that the usual batch need not be read back. */
export class RecentRows {
  #entries: JournalEntry[] = [];
  /** Position in the file after each of them. */
  #ends: number[] = [];
  /** Position of the first of them. */
  start = 0;

  get isEmpty(): boolean {
    return this.#entries.length === 0;
  }

  add(entry: JournalEntry, start: number, end: number): void {
    const { length } = this.#entries;
    if (length === 0) this.start = start;
    // After one that found no place there would be a gap, so none has until all of these are drained.
    else if (length >= RECENT_ROWS_MAX || this.#ends[length - 1] !== start) return;
    this.#entries.push(entry);
    this.#ends.push(end);
  }

  first(rowsMax: number): Decoded {
    const entries = this.#entries.slice(0, rowsMax);
    return { entries, damaged: [], length: this.#ends[entries.length - 1]! - this.start };
  }

  /** Forgets everything before `position`. */
  dropBefore(position: number): void {
    if (this.#entries.length === 0 || position <= this.start) return;
    const kept = this.#ends.findIndex((end) => end > position);
    const gone = kept === -1 ? this.#entries.length : kept;
    this.#entries = this.#entries.slice(gone);
    this.#ends = this.#ends.slice(gone);
    this.start = position;
  }

  clear(): void {
    this.#entries = [];
    this.#ends = [];
  }
}
