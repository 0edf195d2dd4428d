import { isOrderedId } from "../../kernel/ids.ts";
import { isCharged } from "../../kernel/request-row.ts";
import type { Database, Transaction } from "../../storage/contract.ts";
import { accountOf } from "../ledger/for-thread.ts";
import type { BalanceChange, Ledger, Settled, Settlement } from "../ledger/index.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { KeySpend, MonthKey, RequestRow, UsageStore, WrittenSums } from "../usage/index.ts";
import { type ChargedEntry, type JournalEntry, takesPoints } from "./journal/codec.ts";
import { spendersOf } from "./key-budgets.ts";
import { TierQuota, type TierQuotaOptions } from "./tier-quota.ts";

export interface SettlementOptions extends TierQuotaOptions {
  db: Database;
  ledger: Pick<Ledger, "settleBatch" | "takeChanges" | "noteBalances">;
}

/** What a committed batch left: sums of months and keys, and balances, as they are now. */
export interface Settlements extends WrittenSums {
  balances: BalanceChange[];
}

const toSettlement = (entry: ChargedEntry): Settlement => ({
  account: accountOf(entry),
  userId: entry.userId,
  requestId: entry.requestId,
  costNanoUsd: BigInt(entry.costNanoUsd ?? 0),
  multiplierMicros: entry.costMultiplierMicros,
  atMs: entry.atMs,
});

const toRow = (entry: JournalEntry, settled: Settled): RequestRow => ({
  ...entry,
  points: settled === null ? null : settled.points,
  accountType: settled === null || !isCharged(entry) ? null : accountOf(entry).type,
});

/** Brings journaled requests into the database, each once, in one transaction. `mayExist`: some may be there; `reserved`: here. */
export async function settleEntries(
  { db, ledger, store, tiers }: SettlementOptions,
  entries: readonly JournalEntry[],
  { mayExist, reserved }: { mayExist: boolean; reserved: boolean },
): Promise<Settlements> {
  const byId = new Map<string, JournalEntry>();
  for (const entry of entries) byId.set(entry.requestId, entry);
  let used: Transaction | undefined;
  const written = await db.transaction(async (tx) => {
    used = tx;
    const existing = await existingOf(tx, [...byId.keys()], { store, mayExist });
    const known = [...existing].map((id) => byId.get(id)!).filter(isCharged);
    for (const id of existing) byId.delete(id);
    const fresh = [...byId.values()];
    const priced = fresh.filter(takesPoints);
    const quota = new TierQuota({ store, tiers }, fresh.filter(isCharged));
    let { sums, ...inserted } = NOTHING_WRITTEN;
    const meanwhile = async (settled: readonly Settled[]) => {
      let next = 0;
      const rows = fresh.map((entry) => toRow(entry, takesPoints(entry) ? settled[next++]! : null));
      if (rows.length > 0) ({ sums, ...inserted } = await store.insertExceptSums(tx, rows));
    };
    await ledger.settleBatch(tx, priced.map(toSettlement), { mayExist, quota, meanwhile });
    await store.addSums(tx, sums);
    if (known.length === 0) return inserted;
    // An attempt that committed these did not live to report what it left.
    const keys = [...inserted.keys, ...(await spendOfBudgets(store, known, tx))];
    if (!reserved) return { ...inserted, keys };
    await ledger.noteBalances(tx, known.map(accountOf));
    return { months: [...inserted.months, ...(await store.months(tx, known.flatMap(monthsOf)))], keys };
  });
  return { ...written, balances: used ? ledger.takeChanges(used) : [] };
}

/** Which of these have their row. A job's cost may be recorded again later, so its id is always looked up. */
async function existingOf(
  tx: Transaction,
  ids: readonly string[],
  { store, mayExist }: { store: UsageStore; mayExist: boolean },
): Promise<ReadonlySet<string>> {
  const recurring = ids.filter((id) => !isOrderedId(id)).sort();
  for (const id of recurring) await tx.lock(`usage ${id}`);
  const wanted = mayExist ? ids : recurring;
  return wanted.length === 0 ? NONE : store.existing(tx, wanted);
}

const NONE: ReadonlySet<string> = new Set();
const NOTHING_WRITTEN: Awaited<ReturnType<UsageStore["insertExceptSums"]>> = {
  months: [],
  keys: [],
  sums: [],
};

function monthsOf({ userId, project, atMs }: ChargedEntry): MonthKey[] {
  const month = utcMonth(atMs);
  const whole = { userId, month, project: WHOLE_USER };
  return project === null ? [whole] : [whole, { userId, month, project }];
}

async function spendOfBudgets(
  store: UsageStore,
  entries: readonly ChargedEntry[],
  tx: Transaction,
): Promise<KeySpend[]> {
  const ids = new Set(entries.flatMap((entry) => spendersOf(entry, entry.budgets).map(({ id }) => id)));
  const spends: KeySpend[] = [];
  for (const id of ids) spends.push(await store.keySpend(id, tx));
  return spends;
}
