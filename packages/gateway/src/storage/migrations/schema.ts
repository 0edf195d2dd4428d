import type { Statement } from "../migrate.ts";

const APPEND_ONLY = "the audit log is append-only";

export const schema: readonly Statement[] = [
  // `email_verified`: the sign-in provider or an administrator confirmed that the address belongs to the user.
  `CREATE TABLE users (
    id {uuid} PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,
    email_verified {boolean} NOT NULL DEFAULT FALSE,
    name TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    is_admin {boolean} NOT NULL,
    tier TEXT NOT NULL DEFAULT 'free',
    created_at {timestamp} NOT NULL,
    disabled_at {timestamp}
  )`,
  `CREATE TABLE refresh_tokens (
    token_hash TEXT PRIMARY KEY,
    family_id {uuid} NOT NULL,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at {timestamp} NOT NULL,
    expires_at {timestamp} NOT NULL,
    used_at {timestamp},
    ip TEXT,
    user_agent TEXT
  )`,
  "CREATE INDEX refresh_tokens_family ON refresh_tokens (family_id)",
  "CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id, expires_at)",
  "CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)",
  // Kept until the last access token of the session has expired.
  `CREATE TABLE ended_sessions (
    family_id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    ended_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX ended_sessions_user ON ended_sessions (user_id, ended_at)",
  // With a user, the link sets that account's password; without, it creates an account.
  `CREATE TABLE account_links (
    id {uuid} PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    user_id {uuid} REFERENCES users (id) ON DELETE CASCADE,
    email TEXT,
    tier TEXT,
    is_admin {boolean} NOT NULL DEFAULT FALSE,
    group_id {uuid},
    note TEXT,
    created_by {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at {timestamp} NOT NULL,
    expires_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX account_links_expiry ON account_links (expires_at)",
  // Links accounts to people at the sign-in provider.
  `CREATE TABLE identities (
    id {uuid} PRIMARY KEY,
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    email TEXT,
    created_at {timestamp} NOT NULL,
    last_used_at {timestamp} NOT NULL,
    UNIQUE (issuer, subject)
  )`,
  "CREATE INDEX identities_user ON identities (user_id)",
  // An attempt to sign in can be used once; its row is kept until the attempt has expired.
  `CREATE TABLE used_sign_ins (
    id TEXT PRIMARY KEY,
    expires_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX used_sign_ins_expiry ON used_sign_ins (expires_at)",

  // `allowed_models` is a JSON array of model ids; NULL: all models.
  `CREATE TABLE api_keys (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    group_id {uuid},
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    key_hash TEXT NOT NULL UNIQUE,
    key_prefix TEXT NOT NULL,
    active {boolean} NOT NULL,
    created_at {timestamp} NOT NULL,
    revoked_at {timestamp},
    expires_at {timestamp},
    capture_until {timestamp},
    allowed_models TEXT,
    monthly_budget_nano_usd {bigint} CHECK (monthly_budget_nano_usd >= 0),
    total_budget_nano_usd {bigint} CHECK (total_budget_nano_usd >= 0),
    requests_per_minute {bigint} CHECK (requests_per_minute > 0),
    tokens_per_minute {bigint} CHECK (tokens_per_minute > 0)
  )`,
  "CREATE INDEX api_keys_user ON api_keys (user_id, created_at)",
  "CREATE INDEX api_keys_group ON api_keys (group_id)",
  `CREATE TABLE key_refusals (
    key_id {uuid} PRIMARY KEY,
    refused_ms {bigint} NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL
  )`,

  // A group without an owner was created with the admin token.
  `CREATE TABLE user_groups (
    id {uuid} PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    owner_id {uuid} REFERENCES users (id),
    enforce_model_allowlist {boolean} NOT NULL,
    rpm_ceiling INTEGER,
    monthly_refill {bigint} CHECK (monthly_refill > 0),
    refilled_month TEXT,
    member_budget_nano_usd {bigint} CHECK (member_budget_nano_usd >= 0),
    created_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX user_groups_owner ON user_groups (owner_id)",
  // A membership `from_provider` ends when the sign-in provider no longer lists the group.
  `CREATE TABLE group_members (
    group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    cost_multiplier_micros {bigint} NOT NULL CHECK (cost_multiplier_micros > 0),
    is_active {boolean} NOT NULL,
    from_provider {boolean} NOT NULL DEFAULT FALSE,
    created_at {timestamp} NOT NULL,
    PRIMARY KEY (group_id, user_id)
  )`,
  "CREATE INDEX group_members_user ON group_members (user_id)",
  `CREATE TABLE group_invitations (
    id {uuid} PRIMARY KEY,
    group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    token_hash TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    email TEXT,
    max_uses INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    created_by {uuid} NOT NULL,
    created_at {timestamp} NOT NULL,
    expires_at {timestamp} NOT NULL,
    CHECK (uses <= max_uses)
  )`,
  "CREATE INDEX group_invitations_group ON group_invitations (group_id, expires_at)",
  "CREATE INDEX group_invitations_expiry ON group_invitations (expires_at)",
  "CREATE INDEX group_invitations_maker ON group_invitations (created_by)",
  // A model may be in both lists; the denial wins, and removing it restores the permission.
  `CREATE TABLE group_models (
    group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    rule TEXT NOT NULL CHECK (rule IN ('allow', 'deny')),
    model_id TEXT NOT NULL,
    PRIMARY KEY (group_id, rule, model_id)
  )`,
  // Points for the first user who enters the code. The note is copied to the ledger.
  `CREATE TABLE redemption_codes (
    code_hash TEXT PRIMARY KEY,
    batch_id {uuid} NOT NULL,
    points {bigint} NOT NULL CHECK (points > 0),
    note TEXT,
    created_by {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at {timestamp} NOT NULL,
    expires_at {timestamp} NOT NULL,
    redeemed_by {uuid},
    redeemed_at {timestamp}
  )`,
  "CREATE INDEX redemption_codes_batch ON redemption_codes (batch_id)",

  `CREATE TABLE providers (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    website_domain TEXT NOT NULL,
    created_at {timestamp} NOT NULL
  )`,
  `CREATE TABLE backend_configs (
    name TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    url TEXT NOT NULL,
    api_key TEXT,
    models TEXT NOT NULL,
    capabilities TEXT,
    dialects TEXT,
    workflow TEXT,
    concurrency INTEGER,
    settings TEXT,
    enabled {boolean} NOT NULL DEFAULT TRUE,
    registered_at {timestamp} NOT NULL,
    updated_at {timestamp} NOT NULL
  )`,
  // The index of each backend, also of models on nodes, which have no row in backend_configs. A row without a name is
  // the index of a removed backend, which is not reused.
  `CREATE TABLE backend_indexes (
    position INTEGER PRIMARY KEY,
    name TEXT UNIQUE
  )`,
  `CREATE TABLE model_routes (
    name TEXT PRIMARY KEY,
    targets TEXT NOT NULL,
    begin_within_ms INTEGER,
    updated_at {timestamp} NOT NULL
  )`,
  `CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    token_hash TEXT NOT NULL UNIQUE,
    host TEXT,
    epoch {bigint} NOT NULL DEFAULT 0,
    created_at {timestamp} NOT NULL,
    last_seen_at {timestamp}
  )`,
  // The models that an administrator deployed to each node, which serves no others.
  `CREATE TABLE agent_deployments (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    model_id TEXT NOT NULL,
    beside_backends {boolean} NOT NULL,
    was_ready {boolean} NOT NULL,
    created_at {timestamp} NOT NULL,
    PRIMARY KEY (agent_id, model_id)
  )`,

  `CREATE TABLE agent_models (
    model_id TEXT PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    mode TEXT NOT NULL,
    idle_ms {bigint} NOT NULL,
    minimum_ms {bigint} NOT NULL,
    replicas_min INTEGER NOT NULL,
    replicas_max INTEGER NOT NULL,
    serving TEXT NOT NULL,
    used_ms {bigint} NOT NULL,
    wanted_ms {bigint} NOT NULL DEFAULT 0,
    started_ms {bigint} NOT NULL DEFAULT 0
  )`,

  `CREATE TABLE conversations (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    created_at {timestamp} NOT NULL,
    updated_at {timestamp} NOT NULL,
    backend TEXT
  )`,
  "CREATE INDEX conversations_user ON conversations (user_id, updated_at)",
  // `parts` and `tool_call_id`: what later turns need besides the text.
  `CREATE TABLE conversation_messages (
    id {uuid} PRIMARY KEY,
    conversation_id {uuid} NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position {bigint} NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    images TEXT,
    tool_calls TEXT,
    parts TEXT,
    tool_call_id TEXT,
    incomplete TEXT,
    created_at {timestamp} NOT NULL,
    UNIQUE (conversation_id, position)
  )`,
  // Answers of the Responses API that a later request may continue, with their input. `response` has everything but the
  // output; continuing needs only the output.
  `CREATE TABLE stored_responses (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key_id {uuid} NOT NULL,
    previous_id {uuid},
    conversation_id {uuid} REFERENCES conversations (id) ON DELETE CASCADE,
    input TEXT NOT NULL,
    output TEXT NOT NULL,
    response TEXT,
    created_at {timestamp} NOT NULL
  )`,
  // Ids are ordered by time, so the age needs no index; most responses belong to no conversation.
  "CREATE INDEX stored_responses_owned ON stored_responses (user_id, id)",
  "CREATE INDEX stored_responses_joined ON stored_responses (conversation_id) WHERE conversation_id IS NOT NULL",
  // `facts` and `bound_usd`: what the job asks for and its maximum cost, so that another instance can hold and settle it.
  `CREATE TABLE video_jobs (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    payer TEXT NOT NULL,
    model TEXT NOT NULL,
    backend TEXT NOT NULL,
    request TEXT NOT NULL,
    facts TEXT,
    bound_usd {double},
    warnings TEXT,
    status TEXT NOT NULL,
    progress {double} NOT NULL,
    task_id TEXT,
    result TEXT,
    error TEXT,
    cost {double} NOT NULL,
    settled {boolean} NOT NULL,
    stream_id {uuid} NOT NULL,
    created_at {timestamp} NOT NULL,
    deadline_at {timestamp} NOT NULL,
    next_step_at {timestamp} NOT NULL,
    step_count {bigint} NOT NULL
  )`,
  "CREATE INDEX video_jobs_user ON video_jobs (user_id, created_at)",
  "CREATE INDEX video_jobs_due ON video_jobs (settled, next_step_at)",
  "CREATE INDEX video_jobs_payload ON video_jobs (created_at) WHERE request <> '{}'",

  // Settings that administrators changed, in the format of the environment.
  `CREATE TABLE service_settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
  )`,
  // `bound_…`: the maximum cost of the lines that are not settled yet. `payer`: as of the batch's creation.
  `CREATE TABLE batches (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key_id {uuid} NOT NULL,
    payer TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    input_file_id {uuid} NOT NULL,
    output_file_id {uuid},
    error_file_id {uuid},
    status TEXT NOT NULL,
    errors TEXT,
    metadata TEXT,
    total {bigint} NOT NULL,
    completed {bigint} NOT NULL,
    failed {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    bound_nano_usd {bigint} NOT NULL,
    bound_tokens {bigint} NOT NULL,
    created_at {timestamp} NOT NULL,
    due_at {timestamp} NOT NULL,
    cancelling_at {timestamp},
    ended_at {timestamp},
    expires_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX batches_owned ON batches (user_id, created_at)",
  "CREATE INDEX batches_active ON batches (created_at) WHERE ended_at IS NULL",
  "CREATE INDEX batches_expiring ON batches (expires_at)",
  // A line without a status has not been answered. `owed`: the charge for its answer, until it is settled.
  `CREATE TABLE batch_lines (
    batch_id {uuid} NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    line {bigint} NOT NULL,
    custom_id TEXT NOT NULL,
    body TEXT NOT NULL,
    bound_nano_usd {bigint} NOT NULL,
    bound_tokens {bigint} NOT NULL,
    status {bigint},
    output TEXT,
    owed TEXT,
    PRIMARY KEY (batch_id, line)
  )`,
  "CREATE INDEX batch_lines_pending ON batch_lines (batch_id, line) WHERE status IS NULL",
  "CREATE INDEX batch_lines_owed ON batch_lines (batch_id) WHERE owed IS NOT NULL",
  // Result files of a batch have no parts: their content is generated from its lines.
  `CREATE TABLE files (
    id {uuid} PRIMARY KEY,
    user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key_id {uuid} NOT NULL,
    batch_id {uuid} REFERENCES batches (id) ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    filename TEXT NOT NULL,
    bytes {bigint} NOT NULL,
    created_at {timestamp} NOT NULL,
    expires_at {timestamp} NOT NULL
  )`,
  "CREATE INDEX files_owned ON files (user_id, created_at)",
  "CREATE INDEX files_of_batch ON files (batch_id) WHERE batch_id IS NOT NULL",
  "CREATE INDEX files_expiring ON files (expires_at)",
  `CREATE TABLE file_parts (
    file_id {uuid} NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    part {bigint} NOT NULL,
    content {bytes} NOT NULL,
    PRIMARY KEY (file_id, part)
  )`,

  // The state of each alert, and who has been notified.
  `CREATE TABLE alerts (
    key TEXT PRIMARY KEY,
    id {uuid} NOT NULL,
    level INTEGER NOT NULL,
    most {bigint} NOT NULL,
    message TEXT NOT NULL,
    told TEXT NOT NULL,
    since {timestamp} NOT NULL
  )`,
  `CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    held_until {timestamp} NOT NULL
  )`,
  // Entries outlive the accounts that they name, so nothing references another table.
  `CREATE TABLE audit_log (
    id {uuid} PRIMARY KEY,
    created_ms {bigint} NOT NULL,
    action TEXT NOT NULL,
    actor_id {uuid},
    actor TEXT NOT NULL,
    ip TEXT NOT NULL,
    user_agent TEXT,
    target TEXT,
    details TEXT NOT NULL,
    request_id TEXT NOT NULL
  )`,
  "CREATE INDEX audit_log_created ON audit_log (created_ms)",
  "CREATE INDEX audit_log_action ON audit_log (action, id)",
  "CREATE INDEX audit_log_target ON audit_log (target, id)",
  // Old rows are deleted, but no row is ever changed.
  {
    sqlite: [
      `CREATE TRIGGER audit_log_append_only BEFORE UPDATE ON audit_log
       BEGIN SELECT RAISE(ABORT, '${APPEND_ONLY}'); END`,
    ],
    postgres: [
      `CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION '${APPEND_ONLY}'; END $$`,
      `CREATE TRIGGER audit_log_append_only BEFORE UPDATE ON audit_log
       FOR EACH ROW EXECUTE FUNCTION audit_log_append_only()`,
    ],
  },
];
