import { insertRows, type Queryable, type SqlValue } from "../../storage/contract.ts";
import type { KeySpend } from "./rows.ts";

const SPEND = `key_id AS "keyId", month, month_cost_nano_usd AS "monthNanoUsd", total_cost_nano_usd AS "totalNanoUsd"`;
const INTO = "key_spend (key_id, month, month_cost_nano_usd, total_cost_nano_usd, requests, last_used_ms)";
/** Rows of an earlier month, written late, count in the total only: the month that is limited is over. */
const ADDING = `ON CONFLICT (key_id) DO UPDATE SET
  month_cost_nano_usd = CASE
    WHEN excluded.month = key_spend.month THEN key_spend.month_cost_nano_usd + excluded.month_cost_nano_usd
    WHEN excluded.month > key_spend.month THEN excluded.month_cost_nano_usd
    ELSE key_spend.month_cost_nano_usd END,
  month = CASE WHEN excluded.month > key_spend.month THEN excluded.month ELSE key_spend.month END,
  total_cost_nano_usd = key_spend.total_cost_nano_usd + excluded.total_cost_nano_usd,
  requests = key_spend.requests + excluded.requests,
  last_used_ms = CASE
    WHEN excluded.last_used_ms > key_spend.last_used_ms THEN excluded.last_used_ms ELSE key_spend.last_used_ms END
  RETURNING ${SPEND}`;

interface KeySum {
  month: string;
  monthNanoUsd: number;
  totalNanoUsd: number;
  requests: number;
  lastUsedMs: number;
}

/** What the rows of a batch add to their keys: one sum a key, or Postgres would refuse to change a row twice. */
export class KeySums {
  readonly #sums = new Map<string, KeySum>();

  add(
    keyId: string,
    { month, nanoUsd, lastUsedMs }: { month: string; nanoUsd: number; lastUsedMs: number },
  ): void {
    const sum = this.#sums.get(keyId);
    if (!sum) {
      const first = { month, monthNanoUsd: nanoUsd, totalNanoUsd: nanoUsd, requests: 1, lastUsedMs };
      this.#sums.set(keyId, first);
      return;
    }
    if (month > sum.month) {
      sum.month = month;
      sum.monthNanoUsd = 0;
    }
    if (month === sum.month) sum.monthNanoUsd += nanoUsd;
    sum.totalNanoUsd += nanoUsd;
    sum.requests++;
    if (lastUsedMs > sum.lastUsedMs) sum.lastUsedMs = lastUsedMs;
  }

  async write(on: Queryable): Promise<KeySpend[]> {
    const rows = Array.from(this.#sums, ([keyId, sum]): SqlValue[] => [
      keyId,
      sum.month,
      sum.monthNanoUsd,
      sum.totalNanoUsd,
      sum.requests,
      sum.lastUsedMs,
    ]);
    // In the order of the keys: two writers then lock rows in the same order.
    rows.sort(([a], [b]) => (a! < b! ? -1 : 1));
    return insertRows<KeySpend>(on, INTO, rows, ADDING);
  }
}

export async function readKeySpend(on: Queryable, keyId: string): Promise<KeySpend> {
  const row = await on.get<KeySpend>(`SELECT ${SPEND} FROM key_spend WHERE key_id = $1`, [keyId]);
  return row ?? { keyId, month: "", monthNanoUsd: 0, totalNanoUsd: 0 };
}
