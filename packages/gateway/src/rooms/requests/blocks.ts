import { firstIdAt, type RecordRow, type StoredRow, storedRow, timeOfId } from "./rows.ts";

/** Requests that came within this time lie together: the last 8 bits of an id's time tell them apart. */
const BUCKET_MS = 256;
/** The part of an id that those have in common. */
const BUCKET_ID_LENGTH = 11;
/** Few enough that reading one takes a fraction of a millisecond. */
export const BLOCK_ROWS_MAX = 256;

/** Requests that came within `BUCKET_MS`, in the order in which they ended. */
export interface Block {
  /** Of any one of them: it says when they came, and no other block has it. */
  firstId: string;
  requests: number;
  /** `StoredRow`s as JSON. */
  records: string;
}

export const requestsIn = (blocks: readonly Block[]): number =>
  blocks.reduce((sum, { requests }) => sum + requests, 0);

export const rowsIn = ({ records }: Pick<Block, "records">): StoredRow[] =>
  JSON.parse(records) as StoredRow[];

/** Ids of blocks that may hold requests with ids from `fromId` on and below `belowId`; the upper end is exclusive. */
export function blockIdsFor({ fromId, belowId }: IdRange): IdRange {
  const first = firstIdAt(0).slice(BUCKET_ID_LENGTH);
  return { fromId: fromId.slice(0, BUCKET_ID_LENGTH) + first, belowId: endOfBucket(belowId) };
}

/** The smallest id after those that share a block with this one. */
export function endOfBucket(id: string): string {
  const ms = timeOfId(id);
  return firstIdAt(ms - (ms % BUCKET_MS) + BUCKET_MS);
}

/** From the first, inclusive, and below the second. */
export interface IdRange {
  fromId: string;
  belowId: string;
}

interface Filling {
  bucket: string;
  firstId: string;
  rows: StoredRow[];
}

/** Gathers requests into blocks. */
export class Blocks {
  /** By bucket: most requests came in the latest one, long streams earlier. */
  readonly #filling = new Map<string, Filling>();
  #latest: Filling | null = null;
  readonly #full: Block[] = [];
  #size = 0;

  /** Requests in them. */
  get size(): number {
    return this.#size;
  }

  add(row: StoredRow): void {
    const [id] = row;
    let filling = this.#latest;
    if (filling === null || !id.startsWith(filling.bucket)) filling = this.#bucketOf(id);
    filling.rows.push(row);
    this.#size++;
    if (filling.rows.length === BLOCK_ROWS_MAX) this.#close(filling);
  }

  #bucketOf(id: string): Filling {
    const bucket = id.slice(0, BUCKET_ID_LENGTH);
    let filling = this.#filling.get(bucket);
    if (!filling) {
      filling = { bucket, firstId: id, rows: [] };
      this.#filling.set(bucket, filling);
    }
    this.#latest = filling;
    return filling;
  }

  #close({ bucket, firstId, rows }: Filling): void {
    this.#full.push({ firstId, requests: rows.length, records: JSON.stringify(rows) });
    this.#filling.delete(bucket);
    this.#latest = null;
  }

  /** The oldest, at most so many; the last ones may have room for more. */
  take(blocksMax: number): Block[] {
    for (const filling of [...this.#filling.values()]) this.#close(filling);
    const blocks = this.#full.splice(0, blocksMax);
    this.#size -= requestsIn(blocks);
    return blocks;
  }
}

export function blocksOf(rows: readonly RecordRow[]): Block[] {
  const blocks = new Blocks();
  for (const row of rows) blocks.add(storedRow(row, `${row.askerId}`, `${row.facetId}`));
  return blocks.take(rows.length);
}
