import { insertRow, type Queryable } from "../../storage/contract.ts";

export interface AlertRow {
  /** What it is about: `backend:rack`. */
  key: string;
  id: string;
  level: number;
  /** Of a wallet or pool: the most points that it had since it was last low. */
  most: number;
  /** Empty: nobody needs to be told. */
  message: string;
  /** Names of the senders that have told it, with commas between. */
  told: string;
  since: string;
}

interface SpentKey {
  id: string;
  name: string;
  email: string;
  monthly: number | null;
  total: number | null;
  monthSpent: number;
  totalSpent: number;
}

interface Points {
  type: "user" | "group";
  id: string;
  name: string;
  balance: number;
}

export const store = {
  all: (on: Queryable): Promise<AlertRow[]> =>
    on.all("SELECT key, id, level, most, message, told, since FROM alerts"),

  save: (on: Queryable, row: AlertRow): Promise<boolean> =>
    insertRow(
      on,
      "alerts",
      row,
      `ON CONFLICT (key) DO UPDATE SET id = excluded.id, level = excluded.level, most = excluded.most,
         message = excluded.message, told = excluded.told, since = excluded.since`,
    ),

  remove: (on: Queryable, key: string): Promise<number> => on.run("DELETE FROM alerts WHERE key = $1", [key]),

  /** Keys that have used four fifths of a budget. */
  spentKeys: (on: Queryable, month: string): Promise<SpentKey[]> =>
    on.all(
      `SELECT * FROM (SELECT k.id, k.name, u.email, k.monthly_budget_nano_usd AS monthly, k.total_budget_nano_usd AS total,
         CASE WHEN s.month = $1 THEN s.month_cost_nano_usd ELSE 0 END AS "monthSpent", s.total_cost_nano_usd AS "totalSpent"
       FROM api_keys k JOIN key_spend s ON s.key_id = CAST(k.id AS TEXT) JOIN users u ON u.id = k.user_id
       WHERE k.active AND (k.monthly_budget_nano_usd > 0 OR k.total_budget_nano_usd > 0)) AS spent
       WHERE "monthSpent" * 5 >= monthly * 4 OR "totalSpent" * 5 >= total * 4`,
      [month],
    ),

  /** Wallets and pools that have, or had, points. */
  points: (on: Queryable): Promise<Points[]> =>
    on.all(
      `SELECT a.type, COALESCE(u.id, g.id) AS id, COALESCE(u.email, g.name) AS name, a.balance
       FROM ledger_accounts a
       LEFT JOIN users u ON a.type = 'user' AND a.id = 'user:' || u.id
       LEFT JOIN user_groups g ON a.type = 'group' AND a.id = 'group:' || g.id
       WHERE a.type IN ('user', 'group') AND a.ever_credited AND a.closed_at IS NULL`,
    ),
};
