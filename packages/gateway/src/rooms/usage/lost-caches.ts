import { z } from "zod";
import type { Clock } from "../../kernel/clock.ts";
import type { Database } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import { DAY_MS, HOUR_MS } from "./rows.ts";

const RECENT_MS = 6 * HOUR_MS;
const BEFORE_MS = 7 * DAY_MS;
/** Fewer requests say nothing. */
const REQUESTS_MIN = 10;
/** Of a prompt, on average: vendors do not cache shorter ones. */
const PROMPT_TOKENS_MIN = 4_096;
const CACHED_SHARE_MIN = 0.5;
const READ_EVERY_MS = 60_000;

/** By the name of a backend: the share of its prompts that came from its cache, before that fell to 0. */
export type LostCaches = ReadonlyMap<string, number>;

export const LostCacheShare = z
  .number()
  .nullable()
  .describe("Of its prompts: what came from its cache before that fell to 0; null: it did not");

/** Finds backends whose prompts were mostly cached in the last days, and are not at all in the last hours. */
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
      // Pages that show this show more: they must not fail with it.
      this.#lost = this.#read(nowMs).catch(() => new Map());
    }
    return this.#lost;
  }

  async #read(nowMs: number): Promise<LostCaches> {
    const recentMs = nowMs - (nowMs % HOUR_MS) - RECENT_MS + HOUR_MS;
    const sums = (columns: readonly string[], isRecent: boolean) =>
      columns.map(
        (column) =>
          `CAST(SUM(CASE WHEN start_ms ${isRecent ? ">=" : "<"} $1 THEN ${column} ELSE 0 END) AS BIGINT) AS ${isRecent ? "recent" : "before"}_${column}`,
      );
    const columns = ["requests", "prompt_tokens", "cached_tokens"];
    const rows = await this.db.report<{ backend: string } & Record<string, number>>(
      `SELECT backend, ${[...sums(columns, true), ...sums(columns, false)].join(", ")} FROM request_sums
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
