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

export function blocksOf(rows: Rows): Block[] {
  const blocks: Block[] = [];
  const filling = new Map<number, number[]>();
  let latest = Number.NaN;
  let places: number[] = [];
  for (let place = 0; place < rows.size; place++) {
    const timeMs = rows.timesMs[place]!;
    const bucket = timeMs - (timeMs % BUCKET_MS);
    // Most came in the same one, long streams earlier.
    if (bucket !== latest) {
      places = filling.get(bucket) ?? [];
      filling.set(bucket, places);
      latest = bucket;
    }
    if (places.push(place) < BLOCK_ROWS_MAX) continue;
    blocks.push(blockOf(rows, places));
    places.length = 0;
  }
  for (const left of filling.values()) if (left.length > 0) blocks.push(blockOf(rows, left));
  return blocks;
}

function blockOf(rows: Rows, places: readonly number[]): Block {
  const requests = places.length;
  const details = detailsOf(rows, places);
  const buffer = new ArrayBuffer(requests * ROW_BYTES + Buffer.byteLength(details));
  const { doubles, counts, bytes, idsAt, detailsAt } = layoutOf(buffer, requests);
  for (let to = 0; to < requests; to++) {
    const from = places[to]!;
    for (let i = 0; i < DOUBLES; i++) doubles[to * DOUBLES + i] = rows.doubles[from * DOUBLES + i]!;
    for (let i = 0; i < COUNTS; i++) counts[to * COUNTS + i] = rows.counts[from * COUNTS + i]!;
  }
  const ids = places.map((place) => rows.ids[place]).join("");
  bytes.write(ids, idsAt, "latin1");
  bytes.write(details, detailsAt);
  return { firstId: rows.ids[places[0]!]!, requests, records: bytes };
}

function detailsOf({ details }: Rows, places: readonly number[]): string {
  if (details.size === 0) return "";
  const found = places.flatMap((from, place) => (details.has(from) ? [[place, details.get(from)]] : []));
  return found.length === 0 ? "" : JSON.stringify(found);
}
