import { fail } from "../../kernel/errors.ts";
import type { Transaction } from "../../storage/contract.ts";
import { type AccountRow, type EntryRow, type MovementRow, store } from "./store.ts";

/** The entries of `movements` on one account, which has just been posted and stands at `after`. */
export function entriesOf(after: AccountRow, movements: readonly MovementRow[]): EntryRow[] {
  const signed = movements.map(({ from_account_id, points }) =>
    from_account_id === after.id ? -points : points,
  );
  let seq = after.version - movements.length;
  let balance = after.balance - signed.reduce((sum, points) => sum + points, 0);
  return movements.map((movement, index) => {
    const points = signed[index]!;
    balance += points;
    return { account_id: after.id, seq: ++seq, movement_id: movement.id, points, balance_after: balance };
  });
}

/** Wallets and pools cannot go below zero; debts and the ledger's own accounts may. */
const holdsPoints = (id: string) => id.startsWith("user:") || id.startsWith("group:");

/** Moves points, whole or not at all; null when `from` cannot cover them. Locks in the order of all transactions. */
export async function moveBetween(
  tx: Transaction,
  movement: MovementRow,
): Promise<{ from: AccountRow; to: AccountRow } | null> {
  const { from_account_id, to_account_id, points } = movement;
  const locked = await store.lockAccounts(tx, [from_account_id, to_account_id].filter(holdsPoints));
  if (holdsPoints(from_account_id) && (locked.get(from_account_id)?.balance ?? 0) < points) return null;

  const from = await store.post(tx, { id: from_account_id, points: -points, entryCount: 1 });
  const to = await store.post(tx, { id: to_account_id, points, entryCount: 1 });
  if (!from || !to) {
    fail("conflict", "The account is closed, or would hold more points than can be counted exactly");
  }
  await store.insertMovements(tx, [movement]);
  await store.insertEntries(tx, [...entriesOf(from, [movement]), ...entriesOf(to, [movement])]);
  return { from, to };
}
