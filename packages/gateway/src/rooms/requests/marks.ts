import { type Database, insertRows, type Queryable, type Transaction } from "../../storage/contract.ts";
import { MINUTE_MS } from "./rows.ts";

/** An instance has a few at a time, and a crash leaves those behind. Of more than this, the oldest become one. */
export const MARKS_MAX = 1_000;

const MARKS = "request_marks (writer_id, from_ms, below_ms)";

/** Minutes of which a writer has stored records that the sums do not count yet. */
export interface Marks {
  writerId: string;
  minutes: readonly number[];
}

export interface MarkedTime {
  from_ms: number;
  below_ms: number;
}

export async function insertMarks(tx: Transaction, marks: readonly Marks[]): Promise<void> {
  const rows = marks.flatMap(({ writerId, minutes }) =>
    minutes.map((minuteMs) => [writerId, minuteMs, minuteMs + MINUTE_MS]),
  );
  await insertRows(tx, MARKS, rows, "ON CONFLICT (writer_id, from_ms) DO NOTHING");
}

export const deleteMarks = (tx: Transaction, writerId: string): Promise<number> =>
  tx.run("DELETE FROM request_marks WHERE writer_id = $1", [writerId]);

/** Of all writers, the dead ones included. They may overlap. */
export const marksIn = (
  on: Queryable,
  { fromMs, belowMs }: { fromMs: number; belowMs: number },
): Promise<MarkedTime[]> =>
  on.all<MarkedTime>(
    "SELECT DISTINCT from_ms, below_ms FROM request_marks WHERE below_ms > $1 AND from_ms < $2",
    [fromMs, belowMs],
  );

/** Deletes marks of old times, and replaces the oldest of too many by one that covers them all. */
export function sweepMarks(
  db: Database,
  { beforeMs, newId }: { beforeMs: number; newId: string },
): Promise<number> {
  return db.transaction(async (tx) => {
    const old = await tx.run("DELETE FROM request_marks WHERE below_ms <= $1", [beforeMs]);
    const last = await tx.get<MarkedTime>(
      "SELECT below_ms FROM request_marks ORDER BY below_ms DESC LIMIT 1 OFFSET $1",
      [MARKS_MAX - 1],
    );
    if (!last) return old;
    const joined = await tx.all<MarkedTime>(
      "DELETE FROM request_marks WHERE below_ms <= $1 RETURNING from_ms, below_ms",
      [last.below_ms],
    );
    const fromMs = joined.reduce((least, { from_ms }) => Math.min(least, from_ms), last.below_ms);
    await insertRows(tx, MARKS, [[newId, fromMs, last.below_ms]]);
    return old + joined.length - 1;
  });
}
