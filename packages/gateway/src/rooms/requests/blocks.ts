import { timeOfId } from "../../kernel/ids.ts";
import { COUNTS, type Detail, DOUBLES, firstIdAt, type RecordRow, type Rows, rowAt } from "./rows.ts";

/** Requests that came within this time lie together: the last 8 bits of an id's time tell them apart. */
export const BUCKET_MS = 256;
/** The part of an id that those have in common. */
const BUCKET_ID_LENGTH = 11;
/** Few enough that reading one takes a fraction of a millisecond. */
export const BLOCK_ROWS_MAX = 256;

/** Requests that came within `BUCKET_MS`, in the order in which they ended. */
export interface Block {
  /** Of any one of them: it says when they came, and no other block has it. */
  firstId: string;
  requests: number;
  /** `layoutOf` says what stands where. */
  records: Uint8Array;
}

const ID_LENGTH = 36;

/**
 * What a block's bytes are: doubles and counts as `Rows` has them, ids, then places and details of those that have one,
 * as JSON.
 */
function layoutOf(buffer: ArrayBuffer, requests: number) {
  const doubles = new Float64Array(buffer, 0, requests * DOUBLES);
  const counts = new Uint32Array(buffer, doubles.byteLength, requests * COUNTS);
  const idsAt = doubles.byteLength + counts.byteLength;
  const detailsAt = idsAt + requests * ID_LENGTH;
  return { doubles, counts, idsAt, detailsAt, bytes: Buffer.from(buffer) };
}
const ROW_BYTES = layoutOf(new ArrayBuffer(256), 1).detailsAt;

export const requestsIn = (blocks: readonly Block[]): number =>
  blocks.reduce((sum, { requests }) => sum + requests, 0);

export function rowsIn({ requests, records }: Pick<Block, "requests" | "records">): RecordRow[] {
  // A copy, which begins where numbers may.
  const layout = layoutOf(new Uint8Array(records).buffer, requests);
  const { bytes, idsAt, detailsAt } = layout;
  const ids = bytes.toString("latin1", idsAt, detailsAt);
  const details = detailsAt === bytes.length ? [] : JSON.parse(bytes.toString("utf8", detailsAt));
  const byPlace = new Map(details as [number, Detail][]);
  return Array.from({ length: requests }, (_, place) =>
    rowAt(layout, place, {
      id: ids.slice(place * ID_LENGTH, (place + 1) * ID_LENGTH),
      detail: byPlace.get(place) ?? null,
    }),
  );
}

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

/** Rows that follow each other, the second place exclusive. */
interface Run {
  from: number;
  to: number;
}

/** Rows of a block. */
interface Runs {
  list: Run[];
  /** Rows in all of them. */
  size: number;
}

/** Most came in the same bucket, long streams earlier. */
export function blocksOf(rows: Rows): Block[] {
  const blocks: Block[] = [];
  const filling = new Map<number, Runs>();
  const bucketAt = (place: number) => Math.floor(rows.timesMs[place]! / BUCKET_MS);
  for (let from = 0, to = 0; from < rows.size; from = to) {
    const bucket = bucketAt(from);
    const runs = filling.get(bucket) ?? { list: [], size: 0 };
    const toMax = Math.min(rows.size, from + BLOCK_ROWS_MAX - runs.size);
    for (to = from + 1; to < toMax && bucketAt(to) === bucket; ) to++;
    runs.list.push({ from, to });
    runs.size += to - from;
    if (runs.size < BLOCK_ROWS_MAX) filling.set(bucket, runs);
    else {
      blocks.push(blockOf(rows, runs));
      filling.delete(bucket);
    }
  }
  for (const runs of filling.values()) blocks.push(blockOf(rows, runs));
  return blocks;
}

/** Copied one by one: of runs of one row, which are many when streams end at random, views would cost more. */
function blockOf(rows: Rows, { list: runs, size: requests }: Runs): Block {
  const details = detailsOf(rows, runs);
  const buffer = new ArrayBuffer(requests * ROW_BYTES + Buffer.byteLength(details));
  const { doubles, counts, bytes, idsAt, detailsAt } = layoutOf(buffer, requests);
  const ids: string[] = [];
  let [double, count] = [0, 0];
  for (const { from, to } of runs) {
    for (let i = from * DOUBLES; i < to * DOUBLES; i++) doubles[double++] = rows.doubles[i]!;
    for (let i = from * COUNTS; i < to * COUNTS; i++) counts[count++] = rows.counts[i]!;
    for (let i = from; i < to; i++) ids.push(rows.ids[i]!);
  }
  bytes.write(ids.join(""), idsAt, "latin1");
  bytes.write(details, detailsAt);
  return { firstId: ids[0]!, requests, records: bytes };
}

/** With their places in the block. */
function detailsOf({ details }: Rows, runs: readonly Run[]): string {
  if (details.size === 0) return "";
  const found: [number, Detail][] = [];
  let place = 0;
  for (const { from, to } of runs)
    for (let row = from; row < to; row++, place++) {
      const detail = details.get(row);
      if (detail) found.push([place, detail]);
    }
  return found.length === 0 ? "" : JSON.stringify(found);
}
