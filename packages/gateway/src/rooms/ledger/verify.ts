import { countRows, type Queryable } from "../../storage/contract.ts";
import { FEMTO_PER_POINT } from "./charge.ts";

const LISTED_MAX = 100;

export interface LedgerReport {
  ok: boolean;
  accounts: number;
  movements: number;
  entries: number;
  /** Open debts, and the points that are owed by them. */
  debts: { count: number; points: number };
  problems: { check: string; message: string }[];
}

interface Check {
  name: string;
  /** One statement, so that it sees one snapshot. Returns a row per problem, up to the listing limit. */
  sql: string;
  describe(row: Record<string, unknown>): string;
}

/** The fraction column is summed in two parts: a few thousand of its values would overflow 64 bits. */
const FEMTO_SPLIT = 1_000_000;

const checks: readonly Check[] = [
  {
    name: "balance",
    sql: `SELECT a.id, a.balance, CAST(COALESCE(e.total, 0) AS TEXT) AS total
      FROM ledger_accounts a
      LEFT JOIN (SELECT account_id, SUM(points) AS total FROM ledger_entries GROUP BY account_id) e
        ON e.account_id = a.id
      WHERE a.balance <> COALESCE(e.total, 0)`,
    describe: ({ id, balance, total }) => `${id}: the balance is ${balance}, its entries sum to ${total}`,
  },
  {
    name: "entry numbers",
    sql: `SELECT a.id, a.version, COALESCE(e.n, 0) AS n, COALESCE(e.last, 0) AS last
      FROM ledger_accounts a
      LEFT JOIN (SELECT account_id, COUNT(*) AS n, MAX(seq) AS last FROM ledger_entries GROUP BY account_id) e
        ON e.account_id = a.id
      WHERE a.version <> COALESCE(e.n, 0) OR a.version <> COALESCE(e.last, 0)`,
    describe: ({ id, version, n, last }) =>
      `${id}: counts ${version} entries, has ${n}, and the last is number ${last}`,
  },
  {
    name: "running balance",
    sql: `SELECT account_id, seq, points, balance_after, before FROM (
        SELECT account_id, seq, points, balance_after,
          COALESCE(LAG(balance_after) OVER (PARTITION BY account_id ORDER BY seq), 0) AS before
        FROM ledger_entries) chain
      WHERE balance_after <> before + points`,
    describe: ({ account_id, seq, points, balance_after, before }) =>
      `${account_id} entry ${seq}: ${before} and ${points} points do not make ${balance_after}`,
  },
  {
    name: "overdraft",
    sql: "SELECT id, balance FROM ledger_accounts WHERE type IN ('user', 'group') AND balance < 0",
    describe: ({ id, balance }) => `${id}: the balance is ${balance}, below zero`,
  },
  {
    name: "debts",
    sql: `SELECT d.id, d.balance, d.debt_of, a.balance AS held FROM ledger_accounts d
      LEFT JOIN ledger_accounts a ON a.id = d.debt_of AND a.type IN ('user', 'group')
      WHERE d.type = 'debt' AND (d.balance > 0 OR a.id IS NULL OR (d.balance < 0 AND a.balance > 0))`,
    describe: ({ id, balance, debt_of, held }) =>
      held === null
        ? `${id}: owed on ${debt_of}, which does not exist`
        : `${id}: the balance is ${balance} while ${debt_of} holds ${held} points`,
  },
  {
    name: "debt entries",
    sql: `SELECT a.id, a.debt_entries, COALESCE(d.n, 0) AS n FROM ledger_accounts a
      LEFT JOIN (SELECT debt_of, SUM(version) AS n FROM ledger_accounts WHERE debt_of IS NOT NULL GROUP BY debt_of) d
        ON d.debt_of = a.id
      WHERE a.debt_entries <> COALESCE(d.n, 0)`,
    describe: ({ id, debt_entries, n }) =>
      `${id}: counts ${debt_entries} entries of its debts, which have ${n}`,
  },
  {
    name: "debts of requests",
    sql: `SELECT d.id FROM ledger_movements d
      LEFT JOIN ledger_movements s ON s.id = 'request:' || substr(d.id, 6)
      WHERE d.kind = 'debt' AND s.id IS NULL`,
    describe: ({ id }) => `movement ${id} is the debt of a request that was not settled`,
  },
  {
    name: "sum of balances",
    sql: `SELECT CAST(total AS TEXT) AS total FROM (SELECT SUM(balance) AS total FROM ledger_accounts) sums
      WHERE total <> 0`,
    describe: ({ total }) => `all balances together are ${total}, not 0`,
  },
  {
    name: "entry pairs",
    sql: `SELECT m.id, m.points, COALESCE(e.n, 0) AS n
      FROM ledger_movements m
      LEFT JOIN (
        SELECT x.movement_id, COUNT(*) AS n,
          SUM(CASE WHEN x.account_id = y.from_account_id AND x.points = -y.points THEN 1 ELSE 0 END) AS taken,
          SUM(CASE WHEN x.account_id = y.to_account_id AND x.points = y.points THEN 1 ELSE 0 END) AS given
        FROM ledger_entries x JOIN ledger_movements y ON y.id = x.movement_id
        GROUP BY x.movement_id) e ON e.movement_id = m.id
      WHERE CASE WHEN m.points = 0 THEN e.n IS NOT NULL
        ELSE COALESCE(e.n, 0) <> 2 OR e.taken <> 1 OR e.given <> 1 END`,
    describe: ({ id, points, n }) =>
      `movement ${id} of ${points} points has ${n} entries that are not its two sides`,
  },
  {
    name: "orphaned entries",
    sql: `SELECT e.account_id, e.seq FROM ledger_entries e
      LEFT JOIN ledger_movements m ON m.id = e.movement_id WHERE m.id IS NULL`,
    describe: ({ account_id, seq }) => `${account_id} entry ${seq} belongs to no movement`,
  },
  {
    // The primary key prevents settling a request twice; this checks that every settlement has such a key.
    name: "settlements",
    sql: `SELECT id, kind FROM ledger_movements
      WHERE (kind = 'settlement') <> (id LIKE 'request:_%')
        OR (kind = 'settlement') <> (exact_points IS NOT NULL AND exact_femto IS NOT NULL)`,
    describe: ({ id, kind }) => `movement ${id} is a ${kind}, which its key or its exact amount contradicts`,
  },
  {
    name: "remainder range",
    sql: `SELECT id, remainder FROM ledger_accounts
      WHERE remainder < ${-FEMTO_PER_POINT / 2} OR remainder >= ${FEMTO_PER_POINT / 2}
        OR (type IN ('system', 'debt') AND remainder <> 0)`,
    describe: ({ id, remainder }) =>
      `${id}: the remainder ${remainder} is not within half a point (10^-15 points)`,
  },
  {
    // Exact charges minus points taken and owed are the remainder: whole points, high and low part of the fraction.
    name: "remainder",
    sql: `SELECT id, remainder, CAST(difference AS TEXT) AS difference FROM (
        SELECT a.id, a.remainder,
          CAST(COALESCE(s.whole, 0) - COALESCE(d.owed, 0)
            + COALESCE(s.high, 0) / ${FEMTO_PER_POINT / FEMTO_SPLIT} AS {wide}) * ${FEMTO_PER_POINT}
          + (COALESCE(s.high, 0) % ${FEMTO_PER_POINT / FEMTO_SPLIT}) * ${FEMTO_SPLIT} + COALESCE(s.low, 0)
          AS difference
        FROM ledger_accounts a
        LEFT JOIN (
          SELECT from_account_id,
            CAST(SUM(exact_points - points) AS {bigint}) AS whole,
            CAST(SUM(exact_femto / ${FEMTO_SPLIT}) AS {bigint}) AS high,
            CAST(SUM(exact_femto % ${FEMTO_SPLIT}) AS {bigint}) AS low
          FROM ledger_movements WHERE kind = 'settlement' GROUP BY from_account_id) s
          ON s.from_account_id = a.id
        LEFT JOIN (
          SELECT s.from_account_id, CAST(SUM(d.points) AS {bigint}) AS owed
          FROM ledger_movements d JOIN ledger_movements s ON s.id = 'request:' || substr(d.id, 6)
          WHERE d.kind = 'debt' GROUP BY s.from_account_id) d
          ON d.from_account_id = a.id) sums
      WHERE remainder <> difference`,
    describe: ({ id, remainder, difference }) =>
      `${id}: the remainder is ${remainder}, exact charges less points taken or owed are ${difference} (10^-15 points)`,
  },
  {
    name: "closed accounts",
    sql: "SELECT id, balance FROM ledger_accounts WHERE closed_at IS NOT NULL AND balance <> 0",
    describe: ({ id, balance }) => `${id} is closed but holds ${balance} points`,
  },
];

/** `{wide}` is a type for sums of broken books: beyond 64 bits Postgres fails and SQLite switches to doubles. */
const inDialect = (sql: string, dialect: Queryable["dialect"]) =>
  sql
    .replaceAll("{bigint}", dialect === "postgres" ? "BIGINT" : "INTEGER")
    .replaceAll("{wide}", dialect === "postgres" ? "NUMERIC" : "INTEGER");

/** Recomputes every balance and every remainder from the entries and says what does not match. */
export async function verifyLedger(db: Queryable): Promise<LedgerReport> {
  const problems: LedgerReport["problems"] = [];
  for (const { name, sql, describe } of checks) {
    const rows = await db.all(`${inDialect(sql, db.dialect)} LIMIT ${LISTED_MAX + 1}`);
    for (const row of rows.slice(0, LISTED_MAX)) problems.push({ check: name, message: describe(row) });
    if (rows.length > LISTED_MAX)
      problems.push({ check: name, message: `and more than ${LISTED_MAX} in all` });
  }
  return {
    ok: problems.length === 0,
    accounts: await countRows(db, "ledger_accounts WHERE id NOT LIKE 'system:spent:%'"),
    movements: await countRows(db, "ledger_movements"),
    entries: await countRows(db, "ledger_entries"),
    debts: (await db.get<{ count: number; points: number }>(
      `SELECT COUNT(*) AS count, CAST(COALESCE(-SUM(balance), 0) AS BIGINT) AS points
       FROM ledger_accounts WHERE type = 'debt' AND balance < 0`,
    )) ?? { count: 0, points: 0 },
    problems,
  };
}
