import type { Transaction } from "../../storage/contract.ts";
import { accountKey, SPENT, settlementId } from "./account.ts";
import { charge, exactPoints } from "./charge.ts";
import { entriesOf } from "./movement.ts";
import { type AccountRow, type EntryRow, type MovementRow, store } from "./store.ts";
import type { Settled, Settlement } from "./types.ts";

/** One account's part of a batch, charged in memory while its row is locked. */
interface Drawing {
  account: AccountRow;
  movements: MovementRow[];
}

export interface SettleOptions {
  pointsPerUsd: number;
  /** Whether some of the items may have been settled before. */
  mayExist: boolean;
}

/** Charges the batch in memory; what could not be covered is null and leaves no movement. */
async function chargeAll(
  tx: Transaction,
  items: readonly Settlement[],
  { pointsPerUsd, mayExist }: SettleOptions,
): Promise<{ settled: Settled[]; drawings: Drawing[] }> {
  const keys = items.map(({ account }) => accountKey(account));
  const ids = items.map(({ requestId }) => settlementId(requestId));
  const accounts = await store.lockAccounts(tx, [...new Set(keys)]);
  // Read after the rows are locked: another transaction that settled the same request has committed by now.
  const known = mayExist ? await store.pointsOf(tx, [...new Set(ids)]) : new Map<string, number>();
  const drawings = new Map<string, Drawing>();

  const settled = items.map((item, index): Settled => {
    const id = ids[index]!;
    const before = known.get(id);
    if (before !== undefined) return { points: before };
    const account = accounts.get(keys[index]!);
    const { costNanoUsd, multiplierMicros } = item;
    const exact = account && exactPoints({ costNanoUsd, pointsPerUsd, multiplierMicros });
    const charged = exact && charge(account, exact);
    if (!charged) return null;
    account.balance = charged.balance;
    account.remainder = charged.remainder;
    known.set(id, charged.points);
    const drawing = drawings.get(account.id) ?? { account, movements: [] };
    drawings.set(account.id, drawing);
    drawing.movements.push({
      id,
      kind: "settlement",
      from_account_id: account.id,
      to_account_id: SPENT,
      points: charged.points,
      cost_nano_usd: Number(costNanoUsd),
      multiplier_micros: multiplierMicros,
      exact_points: exact.points,
      exact_femto: exact.femto,
      note: item.note ?? null,
      actor: null,
      created_at: item.now,
    });
    return { points: charged.points };
  });
  return { settled, drawings: [...drawings.values()].sort((a, b) => (a.account.id < b.account.id ? -1 : 1)) };
}

const pointsOf = (movements: readonly MovementRow[]) =>
  movements.reduce((sum, { points }) => sum + points, 0);

/** Settles a batch inside `tx`; also returns the accounts whose balance changed. */
export async function settleBatch(
  tx: Transaction,
  items: readonly Settlement[],
  options: SettleOptions,
): Promise<{ settled: Settled[]; changed: AccountRow[] }> {
  const { settled, drawings } = await chargeAll(tx, items, options);
  const changed: AccountRow[] = [];
  const entries: EntryRow[] = [];
  const paid: MovementRow[] = [];
  for (const { account, movements } of drawings) {
    const withPoints = movements.filter(({ points }) => points > 0);
    const after = await store.draw(tx, {
      id: account.id,
      points: pointsOf(withPoints),
      remainder: account.remainder,
      entryCount: withPoints.length,
    });
    if (!after || after.balance !== account.balance)
      throw new Error(`ledger: ${account.id} changed while its row was locked`);
    if (withPoints.length === 0) continue;
    changed.push(after);
    entries.push(...entriesOf(after, withPoints));
    paid.push(...withPoints);
  }
  if (paid.length > 0) entries.push(...(await postSpent(tx, paid)));
  await store.insertMovements(
    tx,
    drawings.flatMap(({ movements }) => movements),
  );
  await store.insertEntries(tx, entries);
  return { settled, changed };
}

/** The counter-entries. This row is every batch's, so it comes last and is held for the shortest time. */
async function postSpent(tx: Transaction, paid: readonly MovementRow[]): Promise<EntryRow[]> {
  const spent = await store.post(tx, { id: SPENT, points: pointsOf(paid), entryCount: paid.length });
  if (!spent) throw new Error("ledger: the account of spent points is full");
  return entriesOf(spent, paid);
}
