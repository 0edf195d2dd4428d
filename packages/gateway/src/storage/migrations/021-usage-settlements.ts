import type { Migration } from "../migrate.ts";

/**
 * For many instances that settle usage: a count of their transactions (a sequence, which nobody waits for), and more
 * rows for the account of spent points, which all of them change.
 */
export const usageSettlements: Migration = {
  id: 21,
  name: "count of settlements, rows for spent points",
  statements: [
    {
      sqlite: [],
      postgres: [
        "CREATE SEQUENCE usage_settlements",
        `INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version)
         SELECT 'system:spent:' || n, 'system', 0, 0, FALSE, 0 FROM generate_series(1, 15) AS n`,
      ],
    },
  ],
};
