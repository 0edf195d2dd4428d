import type { Statement } from "../migrate.ts";

/** Times are counted in so many buckets, so that quantiles can be read from sums. */
const BUCKET_COUNT = 15;
const buckets = (name: string): string =>
  Array.from({ length: BUCKET_COUNT }, (_, i) => `${name}${i} INTEGER NOT NULL`).join(", ");

const sumColumns = (by: string): string => `grain_ms {bigint} NOT NULL,
  start_ms {bigint} NOT NULL,
  facet_id {bigint} NOT NULL,
  requests {bigint} NOT NULL,
  prompt_tokens {bigint} NOT NULL,
  completion_tokens {bigint} NOT NULL,
  cost_nano_usd {bigint} NOT NULL,
  ${buckets("first_token_")}, ${buckets("duration_")},
  PRIMARY KEY (grain_ms, start_ms, ${by})`;

const askerDayColumns = `start_ms {bigint} NOT NULL,
  asker_id {bigint} NOT NULL,
  requests {bigint} NOT NULL,
  unanswered {bigint} NOT NULL,
  prompt_tokens {bigint} NOT NULL,
  completion_tokens {bigint} NOT NULL,
  cost_nano_usd {bigint} NOT NULL,
  PRIMARY KEY (start_ms, asker_id)`;

const askerSumColumns = `asker_id {bigint} NOT NULL, first_ms {bigint}, last_ms {bigint},
  ${sumColumns("asker_id, facet_id")}`;

/** Points, prices, and what was used. Rows outlive the users and keys that they name: nothing references those. */
export const money: readonly Statement[] = [
  // `version` counts the account's entries; `remainder` is in 10^-15 points (docs/ledger.md). What is owed is a balance
  // below zero; wallets and pools have none. `debt_of` is the wallet or pool that a debt is owed on, `debtor_id` whose
  // requests made it. An account's `debt_entries` counts the entries of its debts, as `version` counts its own.
  `CREATE TABLE ledger_accounts (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL CHECK (type IN ('user', 'group', 'debt', 'system')),
    balance {bigint} NOT NULL,
    remainder {bigint} NOT NULL,
    ever_credited {boolean} NOT NULL,
    version {bigint} NOT NULL,
    closed_at {timestamp},
    debt_of TEXT,
    debtor_id {uuid},
    debt_entries {bigint} NOT NULL DEFAULT 0,
    CHECK (CASE type WHEN 'system' THEN TRUE WHEN 'debt' THEN balance <= 0 ELSE balance >= 0 END),
    CHECK (remainder >= -500000000000000 AND remainder < 500000000000000),
    CHECK (closed_at IS NULL OR balance = 0),
    CHECK ((type = 'debt') = (debt_of IS NOT NULL) AND (type = 'debt') = (debtor_id IS NOT NULL))
  )`,
  "CREATE INDEX ledger_debts ON ledger_accounts (debt_of) WHERE debt_of IS NOT NULL",
  "CREATE INDEX ledger_debtors ON ledger_accounts (debtor_id) WHERE debtor_id IS NOT NULL",
  // Where points come from and go to, and what the tiers' quotas paid of debts.
  `INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version) VALUES
    ('system:issued', 'system', 0, 0, FALSE, 0), ('system:spent', 'system', 0, 0, FALSE, 0),
    ('system:quota', 'system', 0, 0, FALSE, 0)`,
  // On Postgres the spent account is sharded into 16 rows, to avoid lock contention between instances.
  {
    sqlite: [],
    postgres: [
      `INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version)
       SELECT 'system:spent:' || n, 'system', 0, 0, FALSE, 0 FROM generate_series(1, 15) AS n`,
    ],
  },
  // The id of a settlement is `request:` and the request's id: one index serves both, and settles it once. A request
  // leaves at most one debt, whose id is made from the request's.
  `CREATE TABLE ledger_movements (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL
      CHECK (kind IN ('topup', 'allocation', 'settlement', 'return', 'debt', 'repayment', 'takeover')),
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
    CHECK ((kind = 'debt') = (id LIKE 'debt:%')),
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

  `CREATE TABLE billing_tiers (
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    monthly_usd_quota {double},
    monthly_token_quota {bigint},
    rpm INTEGER NOT NULL
  )`,
  `INSERT INTO billing_tiers (name, position, monthly_usd_quota, monthly_token_quota, rpm) VALUES
    ('free', 1, 1.0, 100000, 10),
    ('pro', 2, 20.0, 5000000, 120),
    ('enterprise', 3, NULL, NULL, 1000)`,
  `CREATE TABLE video_pricing (
    model TEXT PRIMARY KEY,
    mode TEXT NOT NULL CHECK (mode IN ('per_call', 'per_second_resolution', 'per_frame')),
    base_price {double} NOT NULL,
    price_per_second {double} NOT NULL,
    price_per_frame {double} NOT NULL,
    resolution_coeff TEXT NOT NULL,
    currency TEXT NOT NULL,
    enabled {boolean} NOT NULL
  )`,
  // Prices that administrators set, each as JSON of what the pricing file has.
  `CREATE TABLE model_prices (
    model TEXT PRIMARY KEY CHECK (length(model) <= 256),
    price TEXT NOT NULL,
    updated_at {timestamp} NOT NULL
  )`,

  `CREATE TABLE usage_records (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL,
    key_id {uuid},
    project TEXT,
    api_key_id TEXT NOT NULL CHECK (length(api_key_id) <= 64),
    model TEXT NOT NULL CHECK (length(model) <= 128),
    backend TEXT NOT NULL CHECK (length(backend) <= 64),
    prompt_tokens {bigint} NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens {bigint} NOT NULL CHECK (completion_tokens >= 0),
    total_tokens {bigint} NOT NULL,
    cost {double} CHECK (cost >= 0),
    created_at {timestamp} NOT NULL,
    created_ms {bigint} NOT NULL,
    ref_id TEXT CHECK (length(ref_id) <= 64),
    points {bigint},
    account_type TEXT CHECK (account_type IN ('user', 'group')),
    estimated {boolean} NOT NULL
  )`,
  // Rows arrive in the order of time, so an index that begins with the time grows at its end; one that begins with the
  // key or the user changes another page with almost each row. A person's rows need that, once.
  "CREATE INDEX usage_records_time ON usage_records (created_at, api_key_id, model)",
  // A person's rows are ordered by created_ms, so that no planner can take the index on created_at for it and
  // walk through everyone's newer rows to find theirs.
  "CREATE INDEX usage_records_person ON usage_records (user_id, created_ms, project)",
  "CREATE INDEX usage_records_ref ON usage_records (ref_id, created_at) WHERE ref_id IS NOT NULL",
  // One row a user, UTC month and project. The project '' is the whole user; its `key_quota_` columns are the sums of
  // all keys together, which no project label can reach.
  `CREATE TABLE usage_months (
    user_id {uuid} NOT NULL,
    month TEXT NOT NULL,
    project TEXT NOT NULL,
    requests {bigint} NOT NULL,
    tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    quota_tokens {bigint} NOT NULL,
    quota_cost_nano_usd {bigint} NOT NULL,
    key_quota_tokens {bigint} NOT NULL DEFAULT 0,
    key_quota_cost_nano_usd {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, month, project)
  )`,
  // One row a key, so that settling a batch touches each key once: the newest month it was used in, and all of it.
  `CREATE TABLE key_spend (
    key_id {uuid} PRIMARY KEY,
    month TEXT NOT NULL,
    month_cost_nano_usd {bigint} NOT NULL,
    total_cost_nano_usd {bigint} NOT NULL,
    requests {bigint} NOT NULL,
    last_used_ms {bigint} NOT NULL
  )`,
  // What the usage query reads. References may be as many as requests, so they have a table of their own.
  `CREATE TABLE usage_days (
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    backend TEXT NOT NULL,
    tagged {boolean} NOT NULL,
    requests {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL,
    completion_tokens {bigint} NOT NULL,
    total_tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    PRIMARY KEY (day, model, backend, tagged)
  )`,
  `CREATE TABLE usage_ref_days (
    ref_id TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    backend TEXT NOT NULL,
    requests {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL,
    completion_tokens {bigint} NOT NULL,
    total_tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    PRIMARY KEY (ref_id, day, model, backend)
  )`,
  "CREATE INDEX usage_ref_days_day ON usage_ref_days (day)",
  // Usage by key and project, of whole days. A row without a project has the empty text.
  `CREATE TABLE usage_key_days (
    day TEXT NOT NULL,
    api_key_id TEXT NOT NULL,
    project TEXT NOT NULL,
    user_id {uuid} NOT NULL,
    requests {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL,
    completion_tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    unpriced {bigint} NOT NULL,
    PRIMARY KEY (day, api_key_id, project, user_id)
  )`,
  "CREATE INDEX usage_key_days_user ON usage_key_days (user_id, day)",

  `CREATE TABLE request_facets (
    id {bigint} PRIMARY KEY,
    surface TEXT NOT NULL,
    model TEXT NOT NULL,
    backend TEXT NOT NULL,
    status INTEGER NOT NULL,
    code TEXT NOT NULL
  )`,
  `CREATE TABLE request_askers (
    id {bigint} PRIMARY KEY,
    user_id {uuid},
    key_id {uuid},
    group_id {uuid},
    project TEXT,
    key_prefix TEXT
  )`,
  "CREATE INDEX request_askers_user ON request_askers (user_id)",
  "CREATE INDEX request_askers_group ON request_askers (group_id) WHERE group_id IS NOT NULL",
  "CREATE INDEX request_askers_key ON request_askers (key_id) WHERE key_id IS NOT NULL",
  `CREATE TABLE record_blocks (
    first_id {uuid} PRIMARY KEY,
    requests INTEGER NOT NULL,
    records {bytes} NOT NULL
  )`,
  `CREATE TABLE request_marks (
    writer_id {uuid} NOT NULL,
    from_ms {bigint} NOT NULL,
    below_ms {bigint} NOT NULL,
    PRIMARY KEY (writer_id, from_ms)
  )`,
  {
    sqlite: [
      `CREATE TABLE request_sums (${sumColumns("facet_id")}) WITHOUT ROWID`,
      `CREATE TABLE request_asker_sums (${askerSumColumns}) WITHOUT ROWID`,
      `CREATE TABLE request_asker_days (${askerDayColumns}) WITHOUT ROWID`,
    ],
    postgres: [
      `CREATE TABLE request_sums (${sumColumns("facet_id")})`,
      `CREATE TABLE request_asker_sums (${askerSumColumns})`,
      `CREATE TABLE request_asker_days (${askerDayColumns})`,
    ],
  },
  "CREATE INDEX request_asker_sums_asker ON request_asker_sums (asker_id, grain_ms, start_ms)",
  // Prompts of the keys that an administrator chose.
  `CREATE TABLE captured_prompts (
    request_id {uuid} PRIMARY KEY,
    key_id {uuid} NOT NULL,
    asked TEXT NOT NULL,
    answered TEXT
  )`,
  "CREATE INDEX captured_prompts_key ON captured_prompts (key_id)",
];
