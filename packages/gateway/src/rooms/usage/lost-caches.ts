import { z } from "zod";
import type { Clock } from "../../kernel/clock.ts";
import type { Database } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import { DAY_MS, HOUR_MS } from "./rows.ts";

const RECENT_MS = 6 * HOUR_MS;
const BEFORE_MS = 7 * DAY_MS;
/** Fewer requests prove nothing. */
const REQUESTS_MIN = 10;
/** Average prompt length: vendors do not cache shorter ones. */
const PROMPT_TOKENS_MIN = 4_096;
const CACHED_SHARE_MIN = 0.5;
const READ_EVERY_MS = 60_000;

/** By backend: the share of its prompts that came from its cache before that fell to 0. */
export type LostCaches = ReadonlyMap<string, number>;

export const LostCacheShare = z
  .number()
  .nullable()
  .describe("Of its prompts: what came from its cache before that fell to 0; null: it did not");

/** Finds backends whose prompts were mostly cached over the last days, but not at all in the last hours. */
export class CacheWatch {
  #readAtMs = Number.NEGATIVE_INFINITY;
  #lost: Promise<LostCaches> = Promise.resolve(new Map());

  constructor(
    readonly db: Database,
    readonly clock: Clock,
  ) {}

  lost(): Promise<LostCaches> {
    const nowMs = this.clock.now();
    if (nowMs - this.#readAtMs >= READ_EVERY_MS) {
      this.#readAtMs = nowMs;
      // This is a detail of the pages that show it; they must not fail because of it.
      this.#lost = this.#read(nowMs).catch(() => new Map());
    }
    return this.#lost;
  }

  async #read(nowMs: number): Promise<LostCaches> {
    const recentMs = nowMs - (nowMs % HOUR_MS) - RECENT_MS + HOUR_MS;
    const sumOf = (column: string, comparison: string) =>
      `CAST(SUM(CASE WHEN start_ms ${comparison} $1 THEN ${column} ELSE 0 END) AS BIGINT)`;
    const sums = ["requests", "prompt_tokens", "cached_tokens"].flatMap((column) => [
      `${sumOf(column, ">=")} AS recent_${column}`,
      `${sumOf(column, "<")} AS before_${column}`,
    ]);
    const rows = await this.db.report<{ backend: string } & Record<string, number>>(
      `SELECT backend, ${sums.join(", ")} FROM request_sums
       WHERE grain_ms = ${HOUR_MS} AND user_id = '${NO_ID}' AND start_ms >= $2 AND backend <> '' AND channel <> ''
       GROUP BY backend`,
      [recentMs, recentMs - BEFORE_MS],
    );
    const lost = rows.filter(
      (row) =>
        row.recent_cached_tokens === 0 &&
        Math.min(row.recent_requests!, row.before_requests!) >= REQUESTS_MIN &&
        row.recent_prompt_tokens! >= row.recent_requests! * PROMPT_TOKENS_MIN &&
        row.before_cached_tokens! > row.before_prompt_tokens! * CACHED_SHARE_MIN,
    );
    return new Map(lost.map((row) => [row.backend, row.before_cached_tokens! / row.before_prompt_tokens!]));
  }
}
