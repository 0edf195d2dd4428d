/**
 * Who may call each method, and with whose things. A method that is not here fails the tests, and so does a parameter
 * that names something unless `NAMES` says what.
 */

/**
 * - `public`: anyone; `socket`: only a WebSocket without a token
 * - `person`: anyone who is signed in, about nothing but their own
 * - `own`: only the owner of what the parameters name; not even an administrator
 * - `member`, `group_admin`, `group_owner`: of the group that is named; platform administrators stand in for the first two
 * - `admin`, `admin_token`; `person_or_token`
 */
export type Who =
  | "public"
  | "socket"
  | "person"
  | "own"
  | "member"
  | "group_admin"
  | "group_owner"
  | "admin"
  | "admin_token"
  | "person_or_token";

export interface Row {
  method: string;
  who: Who;
  /** What it is called with; `$key` and the like are the owner's. */
  params: string;
  /** To others it answers as if there were no such thing, instead of refusing. */
  isQuiet: boolean;
}

/** `method | who, quiet where nothing is refused | params`; what ends something comes last. */
const TABLE = `
auth.register | public |
auth.login | public |
auth.refresh | public |
auth.logout | public |
auth.cli.redeem | public |
auth.link.show | public |
auth.link.accept | public |
group.invite.show | public |
group.invite.register | public |
providers.list | public |
system.status | public |
system.probe | socket |
auth.me | person |
auth.password.set | person | {"current_password":"wrong password","new_password":"another password"}
auth.name.set | person | {"name":"x"}
auth.sessions.list | person |
auth.identities.list | person |
auth.cli.approve | person | {"challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}
keys.list | person |
keys.create | person | {"name":"x"}
conversations.list | person |
conversations.create | person |
chat.send | person | {"model":"m","messages":[{"role":"user","content":"hi"}]}
realtime.start | person | {"model":"omni"}
video.create | person | {"model":"clip","prompt":"p"}
video.list | person |
batches.list | person |
memory.status | person |
memory.list | person |
usage.list | person |
usage.series | person | {"since":"2026-01-01T00:00:00Z","until":"2027-01-01T00:00:00Z","by":"model"}
usage.records | person | {"since":"2026-01-01T00:00:00Z","until":"2027-01-01T00:00:00Z"}
requests.list | person |
requests.stats | person |
requests.watch | person |
requests.get | own | {"id":"$request"}
billing.plan | person |
models.list | person |
billing.video.pricing.get | person |
backends.types | person |
group.create | person_or_token | {"name":"g"}
group.list | person_or_token |
ledger.self | person_or_token |
conversations.get | own | {"conversation_id":"$conversation"}
conversations.rename | own | {"conversation_id":"$conversation","title":"renamed"}
conversations.rewind | own | {"conversation_id":"$conversation","message_id":"$message"}
keys.update | own | {"key_id":"$key","name":"renamed"}
chat.stop | own, quiet | {"stream_id":"$stream"}
realtime.event | own | {"session_id":"$voice","event":{"type":"response.cancel"}}
realtime.stop | own, quiet | {"session_id":"$voice"}
memory.delete | own, quiet | {"node_id":"$memory"}
video.get | own | {"job_id":"$job"}
video.cancel | own | {"job_id":"$job"}
batches.cancel | own | {"batch_id":"$batch"}
auth.sessions.end | own, quiet | {"session_id":"$session"}
auth.identities.remove | own | {"identity_id":"$identity"}
group.get | member | {"group_id":"$group"}
group.update | group_admin | {"group_id":"$group","name":"renamed"}
group.members.list | group_admin | {"group_id":"$group"}
group.series | group_admin | {"group_id":"$group","since":"2026-01-01","until":"2026-01-02","by":"user"}
group.members.add | group_admin | {"group_id":"$group","email":"other@example.com"}
group.members.update | group_admin | {"group_id":"$group","user_id":"$member","cost_multiplier":2}
group.invite.create | group_admin | {"group_id":"$group"}
group.invite.list | group_admin | {"group_id":"$group"}
group.invite.revoke | group_admin | {"group_id":"$group","invitation_id":"$invitation"}
group.models.list | group_admin | {"group_id":"$group"}
group.models.allow | group_admin | {"group_id":"$group","model_ids":["m"]}
group.models.deny | group_admin | {"group_id":"$group","model_ids":["x"]}
group.credits.balance | group_admin | {"group_id":"$group"}
group.credits.allocate | group_admin | {"group_id":"$group","user_id":"$member","points":1}
codes.redeem | person | {"code":"points-unknown"}
group.invite.accept | own | {"token":"$invite"}
group.credits.topup | admin | {"group_id":"$group","points":5}
engine.invoke | admin | {"model":"m","method":"x"}
providers.add | admin | {"id":"p","name":"P"}
providers.update | admin | {"provider_id":"p","name":"Q"}
providers.remove | admin | {"provider_id":"p"}
providers.test | admin |
agents.list | admin |
agents.register | admin | {"machine_name":"n","version":"1"}
agents.status | admin | {"agent_id":"$node"}
agents.deploy | admin | {"agent_id":"$node","model_id":"x"}
agents.fits | admin | {"model_id":"x"}
agents.log | admin | {"agent_id":"$node","model_id":"x"}
agents.history | admin | {"agent_id":"$node"}
agents.serve | admin | {"model_id":"x","mode":"off"}
agents.served | admin |
agents.drain | admin | {"agent_id":"$node"}
agents.stop | admin | {"agent_id":"$node","model_id":"x"}
agents.deregister | admin | {"agent_id":"$node"}
keys.capture.list | admin |
keys.capture.set | admin | {"key_id":"$key","days":1}
providers.addresses | admin |
audit.list | admin |
alerts.test | admin |
settings.list | admin |
settings.update | admin | {"name":"SERVICE_AUDIT_RETENTION_DAYS","value":"365"}
config.check | admin | {"configuration":{}}
system.activity | admin |
backends.detect | admin |
backends.adopt | admin | {"server":"ollama"}
backends.list | admin |
backends.add | admin | {"name":"mine","url":"http://127.0.0.1:1/v1"}
backends.update | admin | {"name":"up","enabled":false}
backends.test | admin | {"url":"http://127.0.0.1:1/v1"}
backends.probe | admin | {"name":"up"}
backends.remove | admin | {"name":"up"}
routes.list | admin |
routes.set | admin | {"name":"r","targets":[{"model":"m"}]}
routes.delete | admin | {"name":"r"}
billing.prices.list | admin |
billing.prices.set | admin | {"model":"m","input_usd":0,"output_usd":0}
billing.prices.import | admin | {"prices":[{"model":"m","input_usd":0,"output_usd":0}]}
billing.prices.remove | admin | {"model":"m"}
billing.prices.video.set | admin | {"model":"clip","base_price":0}
billing.tiers.set | admin | {"name":"free","monthly_usd_quota":null,"monthly_token_quota":null,"rpm":1000}
usage.query | admin |
users.keys.list | admin | {"user_id":"$user"}
users.get | admin | {"user_id":"$user"}
users.keys.update | admin | {"key_id":"$key","name":"limited"}
users.list | admin |
users.create | admin | {"email":"new@example.com"}
users.update | admin | {"user_id":"$user","is_admin":true,"tier":"enterprise"}
users.password.reset | admin | {"user_id":"$user"}
users.invite | admin |
users.links.list | admin |
codes.create | admin | {"count":1,"points":5}
codes.list | admin |
codes.revoke | admin | {"id":"$conversation"}
users.links.revoke | admin | {"link_id":"$link"}
billing.plan.set | admin_token | {"user_email":"$email","tier":"enterprise"}
billing.video.pricing.set | admin_token | {"model":"clip","base_price":0}
conversations.delete | own | {"conversation_id":"$conversation"}
users.keys.rotate | admin | {"key_id":"$key"}
users.keys.revoke | admin | {"key_id":"$key"}
keys.rotate | own | {"key_id":"$key"}
keys.revoke | own | {"key_id":"$key"}
group.members.remove | group_admin | {"group_id":"$group","user_id":"$member"}
group.delete | group_owner | {"group_id":"$group"}
`;

export const ROWS: readonly Row[] = TABLE.trim()
  .split("\n")
  .map((line) => {
    const [method = "", who = "", params = ""] = line.split("|").map((cell) => cell.trim());
    const [kind, quiet] = who.split(", ");
    return { method, who: kind as Who, params: params || "{}", isQuiet: quiet === "quiet" };
  });

/** What each parameter names that names something: it is tried with the owner's wherever it may stand. */
export const NAMES: Readonly<Record<string, string | boolean>> = {
  agent_id: "$node",
  api_key_id: "$prefix",
  batch_id: "$batch",
  conversation_id: "$conversation",
  cursor: "$request",
  email: "$email",
  everyone: true,
  group_id: "$group",
  id: "$conversation",
  identity_id: "$identity",
  invitation_id: "$invitation",
  is_admin: true,
  job_id: "$job",
  key_id: "$key",
  link_id: "$link",
  message_id: "$message",
  node_id: "$memory",
  project: "$project",
  refresh_token: "$refresh",
  session_id: "$voice",
  stream_id: "$watch",
  token: "$invite",
  user_email: "$email",
  user_id: "$user",
};
/** Parameters that look as if they named something, and do not. */
export const NAME_NOTHING: ReadonlySet<string> = new Set([
  "model_id",
  "model_ids",
  "provider_id",
  "ref_id",
  "ref_ids",
  "setup_token",
  "max_tokens",
]);
export const LOOKS_LIKE_A_NAME =
  /(^|_)(ids?|uuid|token|email|user|owner|everyone|cursor|admin|project|session|key)$/;

/** Every route of the registry and who may call it. */
export const ROUTES = {
  public: [
    "GET /api/health",
    "GET /api/prices",
    "GET /api/tags",
    "GET /api/version",
    "GET /healthz",
    "GET /readyz",
    "GET /v1/health",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "GET /v1beta/models",
    "GET /v1beta/models/{model}",
    "POST /api/auth/oidc/finish",
    "POST /api/auth/oidc/start",
  ],
  api_key: [
    "DELETE /v1/files/{id}",
    "DELETE /v1/responses/{id}",
    "GET /v1/batches",
    "GET /v1/batches/{id}",
    "GET /v1/files",
    "GET /v1/files/{id}",
    "GET /v1/files/{id}/content",
    "GET /v1/responses/{id}",
    "GET /v1/responses/{id}/input_items",
    "GET /v1/video/generations/{id}",
    "GET /v1/video/generations/{id}/content",
    "POST /api/chat",
    "POST /api/embed",
    "POST /api/generate",
    "POST /api/show",
    "POST /v1/audio/speech",
    "POST /v1/audio/transcriptions",
    "POST /v1/batches",
    "POST /v1/batches/{id}/cancel",
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/embeddings",
    "POST /v1/files",
    "POST /v1/images/edits",
    "POST /v1/images/generations",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1/moderations",
    "POST /v1/rerank",
    "POST /v1/responses",
    "POST /v1/video/generations",
    "POST /v1beta/models/{call}",
  ],
  jwt: ["GET /api/video/{id}/content", "POST /api/auth/oidc/link"],
  admin_token: [
    "DELETE /api/admin/aliases",
    "DELETE /api/admin/backends",
    "GET /api/admin/aliases",
    "GET /api/admin/backends",
    "POST /api/admin/aliases",
    "POST /api/admin/backends",
    "POST /api/admin/usage/query",
  ],
} as const;

/**
 * Every path of WebSockets: whose credentials open one, and how these may come along. Anyone opens `/api/rpc`; what is
 * called there is in the table of methods.
 */
export const SOCKETS: readonly {
  path: string;
  who: readonly string[] | "anyone";
  by: readonly ("header" | "query" | "protocol")[];
}[] = [
  { path: "/api/rpc", who: "anyone", by: ["header", "query"] },
  { path: "/v1/realtime?model=omni", who: ["api_key"], by: ["header", "protocol"] },
  { path: "/ws/agent", who: ["node"], by: ["header", "query"] },
];
