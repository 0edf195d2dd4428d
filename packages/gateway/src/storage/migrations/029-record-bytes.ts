import { insertRows, type Transaction } from "../contract.ts";
import type { Migration } from "../migrate.ts";

/** Blocks that are in memory at once. */
const AT_ONCE = 64;
const DOUBLES = 3;
const COUNTS = 7;
const ID_LENGTH = 36;
const NO_COUNT = 2 ** 32 - 1;
const REASONS = [
  "only_backend",
  "fewest_requests",
  "fastest",
  "conversation",
  "provider_asked_for",
  "model_route",
  "fallback",
];

type Row = [id: string, asker: string, facet: string, ...facts: (number | null)[]];

const countOf = (fact: number | null): number =>
  fact === null ? NO_COUNT : Math.min(NO_COUNT - 1, Math.max(0, fact));

/** Numbers, then ids, then places and details of those that have one. */
function bytesOf(records: string): Uint8Array {
  const rows = JSON.parse(records) as Row[];
  const found = rows.flatMap((row, place) => (row[11] ? [[place, row[11]]] : []));
  const details = found.length === 0 ? "" : JSON.stringify(found);
  const countsAt = rows.length * DOUBLES * 8;
  const idsAt = countsAt + rows.length * COUNTS * 4;
  const detailsAt = idsAt + rows.length * ID_LENGTH;
  const bytes = Buffer.from(new ArrayBuffer(detailsAt + Buffer.byteLength(details)));
  const doubles = new Float64Array(bytes.buffer, 0, rows.length * DOUBLES);
  const counts = new Uint32Array(bytes.buffer, countsAt, rows.length * COUNTS);
  for (const [place, [id, asker, facet, ...facts]] of rows.entries()) {
    doubles.set([Number(asker), Number(facet), facts[6] ?? Number.NaN], place * DOUBLES);
    const reason = REASONS.indexOf(String(facts[7]));
    counts.set([...facts.slice(0, 6).map(countOf), reason < 0 ? NO_COUNT : reason], place * COUNTS);
    bytes.write(id, idsAt + place * ID_LENGTH, "latin1");
  }
  bytes.write(details, detailsAt);
  return bytes;
}

async function toBytes(tx: Transaction): Promise<void> {
  let after = "00000000-0000-0000-0000-000000000000";
  for (;;) {
    const blocks = await tx.all<{ first_id: string; requests: number; records: string }>(
      `SELECT first_id, requests, records FROM request_blocks WHERE first_id > $1 ORDER BY first_id LIMIT ${AT_ONCE}`,
      [after],
    );
    if (blocks.length === 0) return;
    await insertRows(
      tx,
      "record_blocks (first_id, requests, records)",
      blocks.map(({ first_id, requests, records }) => [first_id, requests, bytesOf(records)]),
    );
    after = blocks.at(-1)!.first_id;
  }
}

/** Blocks of request records are bytes: making texts of numbers cost more than storing them. */
export const recordBytes: Migration = {
  id: 29,
  name: "request records as bytes",
  statements: [
    `CREATE TABLE record_blocks (
      first_id {uuid} PRIMARY KEY,
      requests INTEGER NOT NULL,
      records {bytes} NOT NULL
    )`,
    // What an older version writes meanwhile would be dropped with the table.
    { sqlite: [], postgres: ["LOCK TABLE request_blocks IN EXCLUSIVE MODE"] },
  ],
  async work(tx) {
    await toBytes(tx);
    await tx.run("DROP TABLE request_blocks");
  },
};
