import { isoTime } from "../../kernel/clock.ts";
import type { Database, Transaction } from "../../storage/contract.ts";
import { accountOf, type Settlement, type Settling } from "../ledger/index.ts";
import type { KeySpend, UsageRow, UsageStore, WrittenSums } from "../usage/index.ts";
import { type JournalEntry, takesPoints } from "./journal/codec.ts";
import { TierQuota, type TierQuotaOptions } from "./tier-quota.ts";

interface SettlementOptions extends TierQuotaOptions {
  db: Database;
  ledger: Settling;
  /**
   * Whether some of the rows may be in the database already: they were left by an earlier run, or an attempt
   * failed whose outcome is unknown. Rows that cannot be there need no look-up.
   */
  mayExist: boolean;
}

const toSettlement = (entry: JournalEntry): Settlement => ({
  account: accountOf(entry),
  userId: entry.userId,
  requestId: entry.requestId,
  costNanoUsd: BigInt(entry.costNanoUsd ?? 0),
  multiplierMicros: entry.costMultiplierMicros,
  now: isoTime(entry.atMs),
});

const toRow = (entry: JournalEntry, points: number | null): UsageRow => ({
  id: entry.requestId,
  userId: entry.userId,
  keyId: entry.keyId,
  project: entry.project,
  apiKeyId: entry.attribution,
  model: entry.model,
  backend: entry.backend,
  promptTokens: entry.promptTokens,
  completionTokens: entry.completionTokens,
  costNanoUsd: entry.costNanoUsd,
  createdAtMs: entry.atMs,
  refId: entry.refId,
  points,
  accountType: points === null ? null : accountOf(entry).type,
  estimated: entry.estimated,
});

/**
 * Brings journaled requests into the database, each exactly once: in one transaction points are settled, rows
 * inserted and rollups bumped, and a request whose row exists is passed over. Returns the sums it changed.
 */
export async function settleEntries(
  { db, ledger, store, billing, mayExist }: SettlementOptions,
  entries: readonly JournalEntry[],
): Promise<WrittenSums> {
  const byId = new Map(entries.map((entry) => [entry.requestId, entry]));
  let used: Transaction | undefined;
  const written = await db.transaction(async (tx) => {
    used = tx;
    for (const id of mayExist ? await store.existing(tx, [...byId.keys()]) : []) byId.delete(id);
    const fresh = [...byId.values()];
    if (fresh.length === 0) return { months: [], keys: await spendOfBudgets(store, entries, tx) };
    const priced = fresh.filter(takesPoints);
    const quota = new TierQuota({ store, billing }, fresh);
    const settled = await ledger.settleBatch(tx, priced.map(toSettlement), { mayExist, quota });
    const points = new Map(priced.map(({ requestId }, i) => [requestId, settled[i]?.points ?? null]));
    const inserted = await store.insert(
      tx,
      fresh.map((entry) => toRow(entry, points.get(entry.requestId) ?? null)),
    );
    if (fresh.length === entries.length) return inserted;
    return { ...inserted, keys: await spendOfBudgets(store, entries, tx) };
  });
  if (used) ledger.committed(used);
  return written;
}

/** Of rows that were there already nobody was told what they left: an attempt wrote them and did not live to say so. */
async function spendOfBudgets(
  store: UsageStore,
  entries: readonly JournalEntry[],
  tx: Transaction,
): Promise<KeySpend[]> {
  const keyIds = new Set(entries.flatMap(({ keyId, budgets }) => (budgets > 0 && keyId ? [keyId] : [])));
  const spends: KeySpend[] = [];
  for (const keyId of keyIds) spends.push(await store.keySpend(keyId, tx));
  return spends;
}
