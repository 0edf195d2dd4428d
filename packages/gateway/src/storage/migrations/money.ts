import type { Statement } from "../migrate.ts";

/** Histogram buckets, so that quantiles can be computed from sums. */
const BUCKET_COUNT = 15;
const buckets = (name: string): string =>
  Array.from({ length: BUCKET_COUNT }, (_, i) => `${name}${i} INTEGER NOT NULL`).join(", ");

const counts = (...names: string[]): string => names.map((name) => `${name} {bigint} NOT NULL`).join(", ");
const COSTS = counts("prompt_tokens", "completion_tokens", "cost_nano_usd");
const CACHE = counts("cached_tokens", "cache_write_tokens", "cache_saved_nano_usd");

/** Points, prices and usage. Rows outlive the users and keys that they name, so nothing references those. */
export const money: readonly Statement[] = [
  // `version` counts the account's entries; `remainder` is in 10^-15 points (docs/ledger.md). Only debts have a negative
  // balance. `debt_of` is the wallet or pool of a debt, `debtor_id` the user whose requests made it. `debt_entries`
  // counts the entries of the account's debts.
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
  // Where points come from and go to, and what the tiers' quotas repaid of debts.
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
  // The id of a settlement is `request:` and the request's id, so that each request is settled once. A request leaves at
  // most one debt, `debt:` and the request's id.
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
  // Prices that administrators set, as JSON in the format of the pricing file.
  `CREATE TABLE model_prices (
    model TEXT PRIMARY KEY CHECK (length(model) <= 256),
    price TEXT NOT NULL,
    updated_at {timestamp} NOT NULL
  )`,

  // One row per request, answered or not. `channel` is what was charged (`gateway`, `rpc`, `realtime` or a capability), or
  // null; `status` is null for a charge without a request, such as a finished video.
  `CREATE TABLE requests (
    id {uuid} PRIMARY KEY,
    ended_ms {bigint} NOT NULL,
    user_id {uuid},
    key_id {uuid},
    api_key_id TEXT CHECK (length(api_key_id) <= 64),
    project TEXT,
    group_id {uuid},
    surface TEXT,
    model TEXT CHECK (length(model) <= 128),
    model_asked TEXT,
    backend TEXT,
    reason TEXT,
    status INTEGER,
    code TEXT,
    message TEXT,
    attempts INTEGER NOT NULL,
    failed_attempts TEXT,
    queue_ms {bigint} NOT NULL,
    first_token_ms {bigint},
    duration_ms {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens {bigint} NOT NULL CHECK (completion_tokens >= 0),
    ${counts("cached_tokens", "cache_write_tokens", "reasoning_tokens", "cache_saved_nano_usd")},
    estimated {boolean} NOT NULL,
    cost_nano_usd {bigint} CHECK (cost_nano_usd >= 0),
    unpriced {boolean} NOT NULL DEFAULT FALSE,
    channel TEXT CHECK (length(channel) <= 64),
    points {bigint},
    account_type TEXT CHECK (account_type IN ('user', 'group')),
    ref_id TEXT CHECK (length(ref_id) <= 64),
    client_ip TEXT
  )`,
  // Rows arrive in the order of time, so an index that begins with the time grows at its end, while one that begins with
  // a key or user changes another page for almost each row. Only a person's rows are worth that.
  "CREATE INDEX requests_time ON requests (ended_ms, api_key_id, model)",
  "CREATE INDEX requests_person ON requests (user_id, ended_ms, key_id, project)",
  "CREATE INDEX requests_ref ON requests (ref_id, ended_ms) WHERE ref_id IS NOT NULL",
  "CREATE INDEX requests_failed ON requests (ended_ms) WHERE status >= 400",
  // Requests that nobody was charged for are deleted first.
  "CREATE INDEX requests_uncharged ON requests (ended_ms) WHERE channel IS NULL",
  {
    sqlite: [usageView("strftime('%Y-%m-%dT%H:%M:%fZ', ended_ms / 1000.0, 'unixepoch')")],
    postgres: [usageView("to_timestamp(ended_ms / 1000.0)")],
  },
  // One row per user, UTC month and project. The project '' is the whole user, and its `key_quota_` columns are the sums
  // of all keys, whatever their projects.
  `CREATE TABLE usage_months (
    user_id {uuid} NOT NULL,
    month TEXT NOT NULL,
    project TEXT NOT NULL,
    ${counts("requests", "tokens", "cost_nano_usd", "quota_tokens", "quota_cost_nano_usd")},
    key_quota_tokens {bigint} NOT NULL DEFAULT 0,
    key_quota_cost_nano_usd {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, month, project)
  )`,
  // One row per key, and one per member of a group, so that settling a batch updates each once: sums of the newest month
  // with usage, and of all time.
  `CREATE TABLE key_spend (
    key_id TEXT PRIMARY KEY,
    month TEXT NOT NULL,
    ${counts("month_cost_nano_usd", "total_cost_nano_usd", "requests", "last_used_ms")}
  )`,
  // Sums of everyone's requests by minute, hour and day, and of each person's by day. The empty text and status 0 stand
  // for null, the id of zeros for everyone.
  `CREATE TABLE request_sums (
    grain_ms {bigint} NOT NULL,
    user_id {uuid} NOT NULL,
    start_ms {bigint} NOT NULL,
    surface TEXT NOT NULL,
    model TEXT NOT NULL,
    backend TEXT NOT NULL,
    channel TEXT NOT NULL,
    status INTEGER NOT NULL,
    code TEXT NOT NULL,
    ${counts("requests")}, ${COSTS}, ${counts("unpriced")},
    ${buckets("first_token_")}, ${buckets("duration_")}, ${CACHE},
    PRIMARY KEY (grain_ms, user_id, start_ms, surface, model, backend, channel, status, code)
  ) {by_key}`,
  // Sums of each key or person by day. The empty text, and the id of zeros, stand for null.
  `CREATE TABLE request_asker_days (
    start_ms {bigint} NOT NULL,
    user_id {uuid} NOT NULL,
    api_key_id TEXT NOT NULL,
    key_id {uuid} NOT NULL,
    project TEXT NOT NULL,
    group_id {uuid} NOT NULL,
    channel TEXT NOT NULL,
    ${counts("requests", "charges_only", "unanswered")}, ${COSTS}, ${counts("unpriced")}, ${CACHE},
    PRIMARY KEY (start_ms, user_id, api_key_id, key_id, project, group_id, channel)
  ) {by_key}`,
  "CREATE INDEX request_asker_days_user ON request_asker_days (user_id, start_ms)",
  // Sums by reference and day. There may be as many references as requests.
  `CREATE TABLE request_ref_days (
    ref_id TEXT NOT NULL,
    start_ms {bigint} NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL,
    ${counts("requests")}, ${COSTS}, ${CACHE},
    PRIMARY KEY (ref_id, start_ms, model, channel)
  ) {by_key}`,
  "CREATE INDEX request_ref_days_start ON request_ref_days (start_ms)",
  `CREATE TABLE captured_prompts (
    request_id {uuid} PRIMARY KEY,
    key_id {uuid} NOT NULL,
    asked TEXT NOT NULL,
    answered TEXT
  )`,
  "CREATE INDEX captured_prompts_key ON captured_prompts (key_id)",
];

function usageView(createdAt: string): string {
  return `CREATE VIEW usage_records AS
    SELECT id, user_id, key_id, api_key_id, project, model, channel AS backend, prompt_tokens, completion_tokens,
      prompt_tokens + completion_tokens AS total_tokens, CAST(cost_nano_usd AS {double}) / 1000000000 AS cost, cost_nano_usd,
      ${createdAt} AS created_at, ended_ms AS created_ms, ref_id, points, account_type, estimated,
      cached_tokens, cache_write_tokens, reasoning_tokens, cache_saved_nano_usd, unpriced, backend AS served_by
    FROM requests WHERE channel IS NOT NULL`;
}
