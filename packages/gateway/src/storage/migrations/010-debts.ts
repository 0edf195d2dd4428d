import type { Migration } from "../migrate.ts";

const ACCOUNT_TYPES = "type IN ('user', 'group', 'debt', 'system')";
/** What is owed is a balance below zero; wallets and pools have none. */
const SIGNS = "CASE type WHEN 'system' THEN TRUE WHEN 'debt' THEN balance <= 0 ELSE balance >= 0 END";
const KINDS = "kind IN ('topup', 'allocation', 'settlement', 'return', 'debt', 'repayment', 'takeover')";
const SETTLEMENT_IDS = "(kind = 'settlement') = (id LIKE 'request:%')";
/** A request leaves at most one debt, whose id is made from the request's. */
const DEBT_IDS = "(kind = 'debt') = (id LIKE 'debt:%')";
const DEBT_ACCOUNTS = "(type = 'debt') = (debt_of IS NOT NULL) AND (type = 'debt') = (debtor_id IS NOT NULL)";

/** SQLite cannot change a CHECK, so the three tables are copied; they refer to each other. */
const rebuild = [
  `CREATE TABLE ledger_accounts_new (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL CHECK (${ACCOUNT_TYPES}),
    balance {bigint} NOT NULL,
    remainder {bigint} NOT NULL,
    ever_credited {boolean} NOT NULL,
    version {bigint} NOT NULL,
    closed_at {timestamp},
    debt_of TEXT,
    debtor_id {uuid},
    debt_entries {bigint} NOT NULL DEFAULT 0,
    CHECK (${SIGNS}),
    CHECK (remainder >= -500000000000000 AND remainder < 500000000000000),
    CHECK (closed_at IS NULL OR balance = 0),
    CHECK (${DEBT_ACCOUNTS})
  )`,
  `CREATE TABLE ledger_movements_new (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (${KINDS}),
    from_account_id TEXT NOT NULL REFERENCES ledger_accounts_new (id),
    to_account_id TEXT NOT NULL REFERENCES ledger_accounts_new (id),
    points {bigint} NOT NULL,
    cost_nano_usd {bigint},
    multiplier_micros {bigint},
    exact_points {bigint},
    exact_femto {bigint},
    note TEXT,
    actor TEXT,
    created_at {timestamp} NOT NULL,
    CHECK (points > 0 OR (points = 0 AND kind = 'settlement')),
    CHECK (${SETTLEMENT_IDS}),
    CHECK (${DEBT_IDS}),
    CHECK (from_account_id <> to_account_id)
  )`,
  `CREATE TABLE ledger_entries_new (
    account_id TEXT NOT NULL REFERENCES ledger_accounts_new (id),
    seq {bigint} NOT NULL,
    movement_id TEXT NOT NULL REFERENCES ledger_movements_new (id),
    points {bigint} NOT NULL CHECK (points <> 0),
    balance_after {bigint} NOT NULL,
    PRIMARY KEY (account_id, seq)
  )`,
  `INSERT INTO ledger_accounts_new (id, type, balance, remainder, ever_credited, version, closed_at)
   SELECT id, type, balance, remainder, ever_credited, version, closed_at FROM ledger_accounts`,
  `INSERT INTO ledger_movements_new (id, kind, from_account_id, to_account_id, points, cost_nano_usd,
     multiplier_micros, exact_points, exact_femto, note, actor, created_at)
   SELECT id, kind, from_account_id, to_account_id, points, cost_nano_usd,
     multiplier_micros, exact_points, exact_femto, note, actor, created_at FROM ledger_movements`,
  `INSERT INTO ledger_entries_new (account_id, seq, movement_id, points, balance_after)
   SELECT account_id, seq, movement_id, points, balance_after FROM ledger_entries`,
  "DROP TABLE ledger_entries",
  "DROP TABLE ledger_movements",
  "DROP TABLE ledger_accounts",
  "ALTER TABLE ledger_accounts_new RENAME TO ledger_accounts",
  "ALTER TABLE ledger_movements_new RENAME TO ledger_movements",
  "ALTER TABLE ledger_entries_new RENAME TO ledger_entries",
];

/** Postgres changes the constraints in place; the old ones have the names that it gave them. */
const alter = [
  "ALTER TABLE ledger_accounts ADD COLUMN debt_of TEXT",
  "ALTER TABLE ledger_accounts ADD COLUMN debtor_id {uuid}",
  "ALTER TABLE ledger_accounts ADD COLUMN debt_entries {bigint} NOT NULL DEFAULT 0",
  "ALTER TABLE ledger_accounts DROP CONSTRAINT ledger_accounts_type_check",
  "ALTER TABLE ledger_accounts DROP CONSTRAINT ledger_accounts_check",
  `ALTER TABLE ledger_accounts ADD CONSTRAINT ledger_accounts_type_check CHECK (${ACCOUNT_TYPES})`,
  `ALTER TABLE ledger_accounts ADD CONSTRAINT ledger_accounts_sign_check CHECK (${SIGNS})`,
  `ALTER TABLE ledger_accounts ADD CONSTRAINT ledger_accounts_debt_check CHECK (${DEBT_ACCOUNTS})`,
  "ALTER TABLE ledger_movements DROP CONSTRAINT ledger_movements_kind_check",
  `ALTER TABLE ledger_movements ADD CONSTRAINT ledger_movements_kind_check CHECK (${KINDS})`,
  `ALTER TABLE ledger_movements ADD CONSTRAINT ledger_movements_debt_check CHECK (${DEBT_IDS})`,
];

export const debts: Migration = {
  id: 10,
  name: "debts, and the quota of all keys together",
  statements: [
    { sqlite: rebuild, postgres: alter },
    // `debt_of` is the wallet or pool that the debt is owed on, `debtor_id` whose requests made it. An account's
    // `debt_entries` counts the entries of its debts, as `version` counts its own.
    "CREATE INDEX ledger_debts ON ledger_accounts (debt_of) WHERE debt_of IS NOT NULL",
    "CREATE INDEX ledger_debtors ON ledger_accounts (debtor_id) WHERE debtor_id IS NOT NULL",
    // What the tiers' quotas paid of debts comes from here.
    `INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version)
     VALUES ('system:quota', 'system', 0, 0, FALSE, 0)`,
    // The part of the quota sums that keys used. The row of the whole user (project '') so has the sums of all keys
    // together, in columns that no project label can reach.
    "ALTER TABLE usage_months ADD COLUMN key_quota_tokens {bigint} NOT NULL DEFAULT 0",
    "ALTER TABLE usage_months ADD COLUMN key_quota_cost_nano_usd {bigint} NOT NULL DEFAULT 0",
    `UPDATE usage_months SET key_quota_tokens = quota_tokens, key_quota_cost_nano_usd = quota_cost_nano_usd
     WHERE project <> ''`,
    `UPDATE usage_months SET
       key_quota_tokens = COALESCE((SELECT SUM(p.quota_tokens) FROM usage_months p
         WHERE p.user_id = usage_months.user_id AND p.month = usage_months.month AND p.project <> ''), 0),
       key_quota_cost_nano_usd = COALESCE((SELECT SUM(p.quota_cost_nano_usd) FROM usage_months p
         WHERE p.user_id = usage_months.user_id AND p.month = usage_months.month AND p.project <> ''), 0)
     WHERE project = ''`,
  ],
};
