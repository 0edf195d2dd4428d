import type { Migration } from "../migrate.ts";

export const ledger: Migration = {
  id: 5,
  name: "points ledger",
  statements: [
    // `version` counts the account's entries; `remainder` is in 10^-15 points (docs/ledger.md).
    `CREATE TABLE ledger_accounts (
      id TEXT PRIMARY KEY,
      type TEXT NOT NULL CHECK (type IN ('user', 'group', 'system')),
      balance {bigint} NOT NULL,
      remainder {bigint} NOT NULL,
      ever_credited {boolean} NOT NULL,
      version {bigint} NOT NULL,
      closed_at {timestamp},
      CHECK (type = 'system' OR balance >= 0),
      CHECK (remainder >= -500000000000000 AND remainder < 500000000000000),
      CHECK (closed_at IS NULL OR balance = 0)
    )`,
    // The two sides of the world outside: where points come from and where they go.
    `INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version)
     VALUES ('system:issued', 'system', 0, 0, FALSE, 0), ('system:spent', 'system', 0, 0, FALSE, 0)`,
    // Accounts are not tied to users or groups by a foreign key: the books outlive both.
    // The id of a settlement is `request:` and the request's id: one index serves both, and settles it once.
    `CREATE TABLE ledger_movements (
      id TEXT PRIMARY KEY,
      kind TEXT NOT NULL CHECK (kind IN ('topup', 'allocation', 'settlement', 'return')),
      from_account_id TEXT NOT NULL REFERENCES ledger_accounts (id),
      to_account_id TEXT NOT NULL REFERENCES ledger_accounts (id),
      points {bigint} NOT NULL,
      cost_nano_usd {bigint},
      multiplier_micros {bigint},
      exact_points {bigint},
      exact_femto {bigint},
      note TEXT,
      actor TEXT,
      created_at {timestamp} NOT NULL,
      CHECK (points > 0 OR (points = 0 AND kind = 'settlement')),
      CHECK ((kind = 'settlement') = (id LIKE 'request:%')),
      CHECK (from_account_id <> to_account_id)
    )`,
    `CREATE TABLE ledger_entries (
      account_id TEXT NOT NULL REFERENCES ledger_accounts (id),
      seq {bigint} NOT NULL,
      movement_id TEXT NOT NULL REFERENCES ledger_movements (id),
      points {bigint} NOT NULL CHECK (points <> 0),
      balance_after {bigint} NOT NULL,
      PRIMARY KEY (account_id, seq)
    )`,
  ],
};
