import { firstIdAt } from "../../src/kernel/ids.ts";
import { UsageStore } from "../../src/rooms/usage/for-thread.ts";
import type { RequestRow } from "../../src/rooms/usage/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { requestRow } from "../support/request-lines.ts";

const BATCH_ROWS = 2_000;
/** Of the user with the most requests. */
const HEAVY_KEYS = 500;
const MODELS = ["gpt-5", "claude", "llama", "qwen", "rare"];
const BACKENDS = ["openai", "anthropic", "local-1", "local-2", "local-2"];

/** The same numbers in every run. */
function repeatable(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

const uuid = (n: number) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;
/** The id of the `n`th request, which came then. */
export const idAt = (ms: number, n: number) =>
  `${firstIdAt(ms).slice(0, 13)}-7000-8000-${n.toString(16).padStart(12, "0")}`;

/** Writes rows as the settling thread does. */
export async function writeRows(db: Database, rows: readonly RequestRow[]): Promise<void> {
  const store = new UsageStore(db);
  for (let at = 0; at < rows.length; at += BATCH_ROWS)
    await db.transaction(async (tx) => void (await store.insert(tx, rows.slice(at, at + BATCH_ROWS))));
}

interface Past {
  count: number;
  untilMs: number;
  days: number;
  keys: number;
  /** Every such request is tagged; none unless given. */
  refEvery?: number;
  /** Has every fifth request; nobody unless given. */
  heavyUser?: string;
}

/** Writes a past of requests, evenly spread over the days: those of it that were written last are returned. */
export async function seedRequests(
  db: Database,
  { count, untilMs, days, keys, refEvery, heavyUser }: Past,
): Promise<RequestRow[]> {
  const random = repeatable(7);
  const stepMs = (days * 86_400_000) / count;
  const seeded: RequestRow[] = [];
  let batch: RequestRow[] = [];
  for (let i = 0; i < count; i++) {
    const atMs = Math.floor(untilMs - (count - i) * stepMs);
    const at = random() < 0.002 ? 4 : Math.floor(random() * 4);
    const status = random() < 0.97 ? 200 : random() < 0.5 ? 429 : 502;
    const isHeavy = heavyUser !== undefined && i % 5 === 0;
    const key = Math.floor(random() * (isHeavy ? Math.min(keys, HEAVY_KEYS) : keys));
    const durationMs = Math.floor(200 + random() ** 4 * 20_000);
    const isAnswered = status === 200;
    const keyId = uuid(100_000 + key);
    batch.push(
      requestRow({
        requestId: idAt(atMs - durationMs, i),
        atMs,
        userId: isHeavy ? heavyUser : uuid(1_000 + Math.floor(key / 4)),
        keyId,
        attribution: keyId.slice(-8),
        project: i % 1_000 === 0 ? "rare" : "default",
        model: MODELS[at]!,
        backend: BACKENDS[at]!,
        reason: "fewest_requests",
        status,
        code: isAnswered ? null : status === 429 ? "rate_limit_exceeded" : "bad_gateway",
        firstTokenMs: isAnswered ? Math.floor(durationMs / 4) : null,
        durationMs,
        promptTokens: isAnswered ? 100 : 0,
        completionTokens: isAnswered ? 200 : 0,
        costNanoUsd: isAnswered ? 1_000 : null,
        channel: isAnswered ? "gateway" : null,
        refId: isAnswered && refEvery && i % refEvery === 0 ? `ref-${i % 400}` : null,
      }),
    );
    if (batch.length < BATCH_ROWS && i < count - 1) continue;
    await writeRows(db, batch);
    seeded.push(...batch);
    batch = [];
  }
  return seeded;
}
