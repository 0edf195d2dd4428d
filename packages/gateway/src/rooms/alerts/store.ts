import { type Queryable, upsertRow } from "../../storage/contract.ts";

export interface AlertRow {
  /** What it is about: `backend:rack`. */
  key: string;
  id: string;
  level: number;
  /** The highest balance of a wallet or pool since it was last low. */
  most: number;
  /** Empty: nobody needs to be told. */
  message: string;
  /** Names of the senders that have sent it, separated by commas. */
  told: string;
  since: string;
}

const spent = (kind: string, cost: string) =>
  `SELECT 'key:' || k.id || ':${kind}' AS key, 'The key ' || k.name || ' of ' || u.email AS whose, '${kind}' AS kind,
     u.id AS owner, s.${cost} AS used, k.${kind}_budget_nano_usd AS whole
   FROM api_keys k JOIN key_spend s ON s.key_id = CAST(k.id AS TEXT) JOIN users u ON u.id = k.user_id
   WHERE k.active AND k.${kind}_budget_nano_usd > 0 AND s.${cost} * 5 >= k.${kind}_budget_nano_usd * 4`;

export const store = {
  all: (on: Queryable): Promise<AlertRow[]> =>
    on.all("SELECT key, id, level, most, message, told, since FROM alerts"),

  save: (on: Queryable, row: AlertRow): Promise<void> => upsertRow(on, "alerts", row, { key: "key" }),

  remove: (on: Queryable, key: string): Promise<number> => on.run("DELETE FROM alerts WHERE key = $1", [key]),

  /** Budgets of keys of which four fifths are used. */
  budgets: (on: Queryable, month: string) =>
    on.all<{ key: string; whose: string; owner: string; kind: string; used: number; whole: number }>(
      `${spent("monthly", "month_cost_nano_usd")} AND s.month = $1 UNION ALL ${spent("total", "total_cost_nano_usd")}`,
      [month],
    ),

  /** Wallets and pools that have, or had, points. */
  points: (on: Queryable) =>
    on.all<{ key: string; whose: string; owner: string | null; balance: number }>(
      `SELECT a.id AS key, COALESCE('The wallet of ' || u.email, 'The pool of the group ' || g.name) AS whose,
         COALESCE(u.id, g.owner_id) AS owner, a.balance
       FROM ledger_accounts a
       LEFT JOIN users u ON a.type = 'user' AND a.id = 'user:' || u.id
       LEFT JOIN user_groups g ON a.type = 'group' AND a.id = 'group:' || g.id
       WHERE a.type IN ('user', 'group') AND a.ever_credited AND a.closed_at IS NULL`,
    ),
};
