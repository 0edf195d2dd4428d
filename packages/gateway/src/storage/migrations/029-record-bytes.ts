import { insertRows, type Transaction } from "../contract.ts";
import type { Migration } from "../migrate.ts";

/** Blocks that are in memory at once. */
const AT_ONCE = 64;
const NUMBERS = 10;
const ID_LENGTH = 36;
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

/** Texts of JSON become numbers, then ids, then details. */
function bytesOf(records: string): Uint8Array {
  const rows = JSON.parse(records) as unknown[][];
  const found = rows.flatMap((row, place) => (row[11] ? [[place, row[11]]] : []));
  const details = found.length === 0 ? "" : JSON.stringify(found);
  const idsAt = rows.length * NUMBERS * 8;
  const detailsAt = idsAt + rows.length * ID_LENGTH;
  const bytes = Buffer.from(new ArrayBuffer(detailsAt + Buffer.byteLength(details)));
  const numbers = new Float64Array(bytes.buffer, 0, rows.length * NUMBERS);
  for (const [place, [id, asker, facet, ...facts]] of (rows as Row[]).entries()) {
    const shown = facts.slice(0, 7).map((fact) => fact ?? Number.NaN);
    const reason = REASONS.indexOf(String(facts[7]));
    numbers.set([Number(asker), Number(facet), ...shown, reason], place * NUMBERS);
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
