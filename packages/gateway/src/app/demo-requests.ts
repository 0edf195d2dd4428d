import { type Asker, type Facet, numberFor, type RecordRow, RequestStore } from "../rooms/requests/index.ts";
import type { UsageRow } from "../rooms/usage/index.ts";
import type { Database } from "../storage/contract.ts";

const BATCH_ROWS = 500;
const BACKEND = "demo";
/** Every so many requests one failed, which left no usage. */
const FAILED_EVERY = 17;
const FAILURE = { status: 502, code: "bad_gateway", message: "upstream 500: demo-500 always fails" };
const MS_PER_TOKEN = 12;
const FIRST_TOKEN_MS = 180;
const FIRST_TOKEN_SPREAD_MS = 700;

interface Told {
  row: RecordRow;
  facet: Facet;
  asker: Asker;
}

function told(usage: UsageRow, index: number): Told {
  const { userId, keyId, project, apiKeyId, model, createdAtMs } = usage;
  const isFailed = index % FAILED_EVERY === FAILED_EVERY - 1;
  const surface = keyId === null ? "chat.send" : "/v1/chat/completions";
  const { status, code } = isFailed ? FAILURE : { status: 200, code: "" };
  const facet = {
    id: numberFor("facet", surface, model, BACKEND, status, code),
    surface,
    model,
    backend: BACKEND,
    status,
    code,
  };
  const asker = {
    id: numberFor("asker", userId, keyId, null, project),
    userId,
    keyId,
    groupId: null,
    project,
    keyPrefix: keyId === null ? null : apiKeyId,
  };
  const firstTokenMs = FIRST_TOKEN_MS + ((index * 97) % FIRST_TOKEN_SPREAD_MS);
  const completionTokens = isFailed ? 0 : usage.completionTokens;
  const row: RecordRow = {
    id: Bun.randomUUIDv7(undefined, createdAtMs),
    atMs: createdAtMs,
    askerId: asker.id,
    facetId: facet.id,
    attempts: 1,
    queueMs: 1,
    firstTokenMs: isFailed ? null : firstTokenMs,
    durationMs: firstTokenMs + completionTokens * MS_PER_TOKEN,
    promptTokens: isFailed ? 0 : usage.promptTokens,
    completionTokens,
    costNanoUsd: isFailed ? null : usage.costNanoUsd,
    reason: null,
    detail: isFailed ? { message: FAILURE.message } : null,
  };
  return { row, facet, asker };
}

const unique = <T extends { id: number }>(items: readonly T[]): T[] => [
  ...new Map(items.map((item) => [item.id, item])).values(),
];

/** Records of the demonstration's past requests, and of some that failed between them. */
export async function writePastRequests(db: Database, usage: readonly UsageRow[]): Promise<void> {
  const store = new RequestStore(db);
  for (let start = 0; start < usage.length; start += BATCH_ROWS) {
    const batch = usage.slice(start, start + BATCH_ROWS).map((row, i) => told(row, start + i));
    await store.insert({
      rows: batch.map(({ row }) => row),
      facets: unique(batch.map(({ facet }) => facet)),
      askers: unique(batch.map(({ asker }) => asker)),
      mayExist: false,
    });
  }
}
