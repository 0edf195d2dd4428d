import { insertAll, insertRow, type Queryable, selectIn, type Transaction } from "../../storage/contract.ts";
import {
  type AccountType,
  accountKey,
  type DebtRef,
  debtId,
  debtKey,
  requestOf,
  settlementId,
} from "./account.ts";

export interface AccountRow {
  id: string;
  type: AccountType;
  balance: number;
  remainder: number;
  ever_credited: boolean;
  version: number;
  closed_at: string | null;
  /** Entries of the debts that are or were owed on it. */
  debt_entries: number;
}

export const MOVEMENT_KINDS = [
  "topup",
  "allocation",
  "settlement",
  "return",
  "debt",
  "repayment",
  "takeover",
] as const;
export type MovementKind = (typeof MOVEMENT_KINDS)[number];

export interface DebtRow {
  id: string;
  debt_of: string;
  debtor_id: string;
  points: number;
}

export interface MovementRow {
  id: string;
  kind: MovementKind;
  from_account_id: string;
  to_account_id: string;
  points: number;
  cost_nano_usd: number | null;
  multiplier_micros: number | null;
  /** The exact amount of a settlement: whole points and femto-points. */
  exact_points: number | null;
  exact_femto: number | null;
  note: string | null;
  actor: string | null;
  created_at: string;
}

/** Only settlements have a cost. */
export const NO_COST = {
  cost_nano_usd: null,
  multiplier_micros: null,
  exact_points: null,
  exact_femto: null,
};

export interface EntryRow {
  account_id: string;
  seq: number;
  movement_id: string;
  points: number;
  balance_after: number;
}

export type StatementRow = Omit<EntryRow, "account_id"> &
  Pick<MovementRow, "kind" | "from_account_id" | "to_account_id" | "note" | "created_at">;
type DebtEntryRow = StatementRow & Pick<EntryRow, "account_id"> & Pick<DebtRow, "debtor_id">;

const STATEMENT_COLUMNS = `e.movement_id, e.seq, m.kind, e.points, e.balance_after, m.from_account_id, m.to_account_id,
  m.note, m.created_at`;
const ACCOUNT_COLUMNS = "id, type, balance, remainder, ever_credited, version, closed_at, debt_entries";

const NEW_ACCOUNT = { balance: 0, remainder: 0, ever_credited: false, version: 0 };
const DEBTS = "SELECT id, debt_of, debtor_id, -balance AS points FROM ledger_accounts WHERE balance < 0";

export const store = {
  account(on: Queryable, id: string): Promise<AccountRow | null> {
    return on.get<AccountRow>(`SELECT ${ACCOUNT_COLUMNS} FROM ledger_accounts WHERE id = $1`, [id]);
  },

  /** Opens the account unless it exists; safe under concurrency. */
  async openAccount(tx: Transaction, id: string, type: "user" | "group"): Promise<void> {
    await insertRow(tx, "ledger_accounts", { id, type, ...NEW_ACCOUNT }, "ON CONFLICT (id) DO NOTHING");
  },

  /** Locks the open accounts among `ids` until the end of the transaction, always in order of id. */
  async lockAccounts(tx: Transaction, ids: readonly string[]): Promise<Map<string, AccountRow>> {
    // SQLite's transactions are exclusive already and its grammar has no row locks.
    const locking = tx.dialect === "postgres" ? ' ORDER BY id COLLATE "C" FOR NO KEY UPDATE' : "";
    const rows = await selectIn<AccountRow>(
      tx,
      (list) =>
        `SELECT ${ACCOUNT_COLUMNS} FROM ledger_accounts WHERE id IN ${list} AND closed_at IS NULL${locking}`,
      [...ids].sort(),
    );
    return new Map(rows.map((row) => [row.id, row]));
  },

  /** Adds `points` as `entryCount` entries. Null if that would overdraw the account or exceed exact integers. */
  post(tx: Transaction, { id, points, entryCount }: { id: string; points: number; entryCount: number }) {
    const max = Number.MAX_SAFE_INTEGER;
    return tx.get<AccountRow>(
      `UPDATE ledger_accounts
       SET balance = balance + $2, version = version + $3, ever_credited = ever_credited OR $4
       WHERE id = $1 AND closed_at IS NULL AND (type IN ('system', 'debt') OR balance >= $5)
         AND balance BETWEEN $6 AND $7
       RETURNING ${ACCOUNT_COLUMNS}`,
      [id, points, entryCount, points > 0, -points, -max - Math.min(points, 0), max - Math.max(points, 0)],
    );
  },

  /** Takes settled points and notes the remainder; null when the balance does not cover them. */
  draw(
    tx: Transaction,
    draw: { id: string; points: number; remainder: number; entryCount: number; debtEntryCount: number },
  ): Promise<AccountRow | null> {
    return tx.get<AccountRow>(
      `UPDATE ledger_accounts SET balance = balance - $2, remainder = $3, version = version + $4,
         debt_entries = debt_entries + $5
       WHERE id = $1 AND balance >= $2 RETURNING ${ACCOUNT_COLUMNS}`,
      [draw.id, draw.points, draw.remainder, draw.entryCount, draw.debtEntryCount],
    );
  },

  async closeAccount(tx: Transaction, id: string, now: string): Promise<void> {
    await tx.run("UPDATE ledger_accounts SET closed_at = $2 WHERE id = $1", [id, now]);
  },

  /** What was settled of those among the requests that were settled before. */
  async settledBefore(tx: Transaction, requestIds: readonly string[]): Promise<Map<string, number>> {
    const ids = [...new Set(requestIds)];
    const rows = await selectIn<{ id: string; points: number }>(
      tx,
      (list) => `SELECT id, points FROM ledger_movements WHERE id IN ${list}`,
      ids.flatMap((id) => [settlementId(id), debtId(id)]),
    );
    // Debts count as settled: each debt movement has a settlement movement.
    const settled = new Map<string, number>();
    for (const { id, points } of rows) {
      const request = requestOf(id)!;
      settled.set(request, (settled.get(request) ?? 0) + points);
    }
    return settled;
  },

  async openDebt(tx: Transaction, debt: DebtRef): Promise<void> {
    const of = { debt_of: accountKey(debt.account), debtor_id: debt.userId };
    const row = { id: debtKey(debt), type: "debt", ...NEW_ACCOUNT, ...of };
    await insertRow(tx, "ledger_accounts", row, "ON CONFLICT (id) DO NOTHING");
  },

  /** The open debts of accounts. They change only while the account itself is locked. */
  debtsOn(on: Queryable, accountIds: readonly string[]): Promise<DebtRow[]> {
    return selectIn<DebtRow>(on, (list) => `${DEBTS} AND debt_of IN ${list} ORDER BY id`, accountIds);
  },

  debtsOf(on: Queryable, userId: string): Promise<DebtRow[]> {
    return on.all<DebtRow>(`${DEBTS} AND debtor_id = $1 ORDER BY id`, [userId]);
  },

  /** Notes that a debt of the account got an entry. */
  async countDebtEntry(tx: Transaction, id: string): Promise<AccountRow> {
    const sql = `UPDATE ledger_accounts SET debt_entries = debt_entries + 1 WHERE id = $1 RETURNING ${ACCOUNT_COLUMNS}`;
    const row = await tx.get<AccountRow>(sql, [id]);
    if (!row) throw new Error(`ledger: ${id} has debts and is not there`);
    return row;
  },

  async insertMovements(tx: Transaction, movements: readonly MovementRow[]): Promise<void> {
    await insertAll(tx, "ledger_movements", movements);
  },

  async insertEntries(tx: Transaction, entries: readonly EntryRow[]): Promise<void> {
    await insertAll(tx, "ledger_entries", entries);
  },

  /** The newest entries of the debts of an account, newest first. */
  recentDebtEntries(on: Queryable, accountId: string, limit: number): Promise<DebtEntryRow[]> {
    return on.all<DebtEntryRow>(
      `SELECT ${STATEMENT_COLUMNS}, a.id AS account_id, a.debtor_id
       FROM ledger_accounts a JOIN ledger_entries e ON e.account_id = a.id
         JOIN ledger_movements m ON m.id = e.movement_id
       WHERE a.debt_of = $1 ORDER BY m.created_at DESC, e.seq DESC LIMIT $2`,
      [accountId, limit],
    );
  },

  recentEntries(on: Queryable, accountId: string, limit: number): Promise<StatementRow[]> {
    return on.all<StatementRow>(
      `SELECT ${STATEMENT_COLUMNS} FROM ledger_entries e JOIN ledger_movements m ON m.id = e.movement_id
       WHERE e.account_id = $1 ORDER BY e.seq DESC LIMIT $2`,
      [accountId, limit],
    );
  },
};
