import { blocksOf, rowsIn } from "../../src/rooms/requests/blocks.ts";
import {
  type Asker,
  type Facet,
  firstIdAt,
  numberFor,
  type RecordRow,
  Rows,
} from "../../src/rooms/requests/rows.ts";
import { RequestStore } from "../../src/rooms/requests/store.ts";
import { Sums } from "../../src/rooms/requests/sums.ts";
import type { Database } from "../../src/storage/contract.ts";

const BATCH_ROWS = 2_000;
const MODELS = ["gpt-5", "claude", "llama", "qwen", "rare"];
const BACKENDS = ["openai", "anthropic", "local-1", "local-2", "local-2"];

export interface SeededRequest {
  id: string;
  atMs: number;
  model: string;
  status: number;
  userId: string;
  keyId: string;
  durationMs: number;
}

/** The same numbers in every run. */
function repeatable(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

const uuid = (n: number) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;

/** Writes a past of requests, evenly spread over the days. */
export async function seedRequests(
  db: Database,
  { count, untilMs, days, keys }: { count: number; untilMs: number; days: number; keys: number },
): Promise<SeededRequest[]> {
  const store = new RequestStore(db);
  const random = repeatable(7);
  const facets = new Map<number, Facet>();
  const askers = Array.from({ length: keys }, (_, i): Asker => {
    const userId = uuid(1_000 + Math.floor(i / 4));
    const keyId = uuid(100_000 + i);
    const id = numberFor("asker", userId, keyId);
    return { id, userId, keyId, groupId: null, project: "default", keyPrefix: keyId.slice(-8) };
  });
  const seeded: SeededRequest[] = [];
  const rows = new Rows(BATCH_ROWS);
  const stepMs = (days * 86_400_000) / count;
  const write = async () => {
    await store.insert({
      blocks: blocksOf(rows),
      facets: [...facets.values()],
      askers: seeded.length <= BATCH_ROWS ? askers : [],
    });
    const sums = new Sums();
    sums.add(rows);
    await store.addSums(sums);
    rows.clear();
  };
  for (let i = 0; i < count; i++) {
    const atMs = Math.floor(untilMs - (count - i) * stepMs);
    const chance = random();
    const at = chance < 0.002 ? 4 : Math.floor(random() * 4);
    const status = random() < 0.97 ? 200 : random() < 0.5 ? 429 : 502;
    const code = status === 200 ? "" : status === 429 ? "rate_limit_exceeded" : "bad_gateway";
    const [model, backend] = [MODELS[at]!, BACKENDS[at]!];
    const surface = "/v1/chat/completions";
    const facetId = numberFor("facet", surface, model, backend, status, code);
    facets.set(facetId, { id: facetId, surface, model, backend, status, code });
    const asker = askers[Math.floor(random() * keys)]!;
    const durationMs = Math.floor(200 + random() ** 4 * 20_000);
    const row: RecordRow = {
      id: `${firstIdAt(atMs).slice(0, 13)}-7000-8000-${i.toString(16).padStart(12, "0")}`,
      askerId: asker.id,
      facetId,
      attempts: 1,
      queueMs: 1,
      firstTokenMs: status === 200 ? Math.floor(durationMs / 4) : null,
      durationMs,
      promptTokens: 100,
      completionTokens: status === 200 ? 200 : 0,
      costNanoUsd: 1_000,
      reason: "fewest_requests",
      detail: null,
    };
    rows.add(row, status);
    seeded.push({ id: row.id, atMs, model, status, userId: asker.userId!, keyId: asker.keyId!, durationMs });
    if (rows.size === BATCH_ROWS) await write();
  }
  if (rows.size > 0) await write();
  return seeded;
}

/** Every stored request, newest first. */
export async function storedRows(db: Database): Promise<RecordRow[]> {
  const blocks = await db.all<{ requests: number; records: Uint8Array }>(
    "SELECT requests, records FROM record_blocks",
  );
  return blocks.flatMap(rowsIn).sort((a, b) => (a.id < b.id ? 1 : -1));
}
