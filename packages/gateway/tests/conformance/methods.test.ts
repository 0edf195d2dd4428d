/** The contract's tables of RPC methods, held against the document that the running service gives of itself. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

/** `name | auth | params, optional ones with ? | fields of the result, or of its entries where it is a list`. */
const TABLE = `
chat.send | jwt | model messages temperature? max_tokens? conversation_id? memory? extra? tools? provider? | stream_id memory
realtime.start | jwt | model config? conversation_id? ref_id? | session_id stream_session
realtime.event | jwt | session_id event | ok
realtime.stop | jwt | session_id | removed
engine.invoke | admin | model method params? |
auth.register | public | email password name? | access_token refresh_token token_type expires_in user
auth.login | public | email password | access_token refresh_token token_type expires_in user
auth.refresh | public | refresh_token | access_token refresh_token
auth.me | jwt | | id email name
keys.list | jwt | | id name key_prefix project created_at active
keys.create | jwt | name project? | id name key key_prefix project created_at
keys.revoke | jwt | key_id | ok
group.create | jwt_or_admin_token | name description? id? | id name description my_role member_count enforce_model_allowlist rpm_ceiling
group.list | jwt_or_admin_token | | id name my_role member_count enforce_model_allowlist
group.get | jwt | group_id | id name members
group.update | jwt | group_id name? description? enforce_model_allowlist? rpm_ceiling? | id name
group.delete | jwt | group_id |
group.members.list | jwt | group_id | email role cost_multiplier is_active
group.members.add | jwt | group_id email role? cost_multiplier? | email role cost_multiplier is_active
group.members.update | jwt | group_id user_id role? cost_multiplier? is_active? | email role cost_multiplier is_active
group.members.remove | jwt | group_id user_id |
group.invite.create | jwt | group_id role? email? max_uses? ttl_secs? | token role email max_uses
group.invite.accept | jwt | token |
group.models.list | jwt | group_id | allowed denied
group.models.allow | jwt | group_id model_ids |
group.models.deny | jwt | group_id model_ids |
group.credits.topup | admin | group_id points note? | balance
group.credits.balance | jwt | group_id | balance entries
group.credits.allocate | jwt | group_id user_id points note? |
ledger.self | jwt_or_admin_token | | balance entries
providers.list | public | | id name description website_domain is_official is_operator
providers.add | admin | id name description? website_domain? | ok
providers.update | admin | provider_id name? description? website_domain? | ok
providers.remove | admin | provider_id | ok
providers.test | admin | | ok message
agents.list | admin | | name host online gpus models version
agents.register | admin | machine_name version | agent_id token
agents.deregister | admin | agent_id | ok
agents.status | admin | agent_id | online host gpus models gpu_utilization heartbeat_at connected_at
agents.deploy | admin | model_id agent_id? | ok stream_id
agents.stop | admin | agent_id model_id | ok stream_id
memory.status | jwt | | enabled writeback events
memory.delete | jwt | node_id | deleted
conversations.list | jwt | | id title owner created_ago updated_ago
conversations.create | jwt | title? | id title owner messages
conversations.get | jwt | conversation_id? id? | id title owner messages
conversations.delete | jwt | conversation_id? id? | ok
usage.list | jwt | limit? offset? project? | records total limit offset project
billing.plan | jwt | | tiers current_tier usage remaining quota_exceeded points_balance points_per_usd
billing.plan.set | admin_token | user_email tier | ok
billing.video.pricing.get | jwt | | pricing
billing.video.pricing.set | admin_token | model mode? base_price? price_per_second? price_per_frame? resolution_coeff? currency? enabled? | ok
video.create | jwt | model prompt negative_prompt? images? duration_seconds? width? height? provider? extra? | job_id stream_id
video.get | jwt | job_id | status progress result error cost
video.list | jwt | limit? | jobs
video.cancel | jwt | job_id | ok
system.status | public | | agents_online gpu_nodes models_deployed requests_total requests_per_minute uptime_seconds
system.probe | anonymous_socket | | ok status
`;

/** Parameters of our own beyond the contract's; all of them may be left out. */
const ADDED = new Set([
  "auth.register setup_token?",
  "keys.create group_id?",
  ...["expires_at", "monthly_budget_usd", "total_budget_usd", "allowed_models"].map(
    (name) => `keys.create ${name}?`,
  ),
  ...["requests_per_minute", "tokens_per_minute"].map((name) => `keys.create ${name}?`),
  "group.list everyone?",
  "group.update monthly_refill?",
  "group.update member_budget_usd?",
  "group.members.list include_inactive?",
  "group.models.allow remove?",
  "group.models.deny remove?",
  ...["beside_backends", "gpu_count", "context_tokens", "slots"].map((name) => `agents.deploy ${name}?`),
]);

/** Methods of our own beyond the contract's. */
const ADDED_METHODS = `
keys.update | jwt | key_id name? expires_at? monthly_budget_usd? total_budget_usd? allowed_models? requests_per_minute? tokens_per_minute? | id name key_prefix project created_at
agents.fits | admin | gpu_count? context_tokens? slots? model_id | agent_id name fits room_mb estimate why
agents.log | admin | model_id lines? agent_id | text
agents.history | admin | agent_id | minute gpus
agents.serve | admin | gpu_count? context_tokens? slots? model_id mode idle_minutes? minimum_minutes? replicas_min? replicas_max? | ok
agents.served | admin | | model_id mode idle_minutes minimum_minutes replicas_min replicas_max used_at
agents.drain | admin | agent_id draining? | ok
audit.list | admin | limit? cursor? actor? action? target? since? until? | entries next_cursor
batches.list | jwt | | batches
batches.cancel | jwt | batch_id | id status request_counts cost_usd
chat.stop | jwt | stream_id | ok
conversations.rename | jwt | conversation_id title | id title owner
conversations.rewind | jwt | conversation_id message_id | removed
memory.list | jwt | limit? offset? | items total
alerts.test | admin | | to ok detail
group.series | jwt | since until by group_id | totals groups others
settings.list | admin | | name help value default source
settings.update | admin | name value | ok
config.check | admin | configuration | present problems changes
system.activity | admin | | minutes first_token backends failures
backends.detect | admin | | servers
backends.adopt | admin | server | name
backends.types | jwt | | default_type types
auth.logout | public | refresh_token | ok
routes.list | admin | | name targets begin_within_seconds
routes.set | admin | name targets begin_within_seconds? | ok
routes.delete | admin | name | ok
keys.capture.set | admin | key_id days forget? | capture_until forgotten
keys.capture.list | admin | | key_id name key_prefix user_email capture_until
providers.addresses | admin | | provider_id serves type url needs_key needs_models dialects auth
backends.list | admin | | backends models
backends.add | admin | type? url? api_key? name? models? capabilities? concurrency? dialects? auth? limit_field? id_prefix? headers? set? drop? believe_cost? fields? tool_prices? shared_files? batches? enabled? seen? | name
backends.update | admin | name type? url? api_key? models? capabilities? concurrency? dialects? auth? limit_field? id_prefix? headers? set? drop? believe_cost? fields? tool_prices? shared_files? batches? enabled? seen? | name
backends.test | admin | type? url? api_key? name? models? capabilities? concurrency? dialects? auth? limit_field? id_prefix? headers? set? drop? believe_cost? fields? tool_prices? shared_files? batches? model? stream_id? | ok detail latency_ms models seen agents
backends.probe | admin | name resume? | ok
backends.remove | admin | name | removed
billing.prices.list | admin | models? type? | model capabilities input_usd output_usd parts per_call_usd per_image_usd per_second_usd per_million_characters_usd unpriced not_billed source
billing.prices.set | admin | model input_usd? output_usd? parts? per_call_usd? per_image_usd? per_second_usd? per_million_characters_usd? max_output_tokens? context_window? | ok
billing.prices.import | admin | prices | written
billing.prices.remove | admin | model | removed
billing.prices.video.set | admin | model mode? base_price? price_per_second? price_per_frame? resolution_coeff? currency? enabled? | ok
billing.tiers.set | admin | name monthly_usd_quota monthly_token_quota rpm | ok
usage.query | admin | ref_ids? since? until? group_by? include_records? limit? offset? | totals groups groups_truncated records records_total limit offset
usage.series | jwt | everyone? since until project? model? backend? ref_id? api_key_id? user_id? group_id? by | totals groups others
usage.records | jwt | everyone? since until project? model? backend? ref_id? api_key_id? user_id? group_id? limit? cursor? | records next_cursor
requests.list | jwt | everyone? group_id? user_id? key_id? project? ref_id? surface? model? backend? code? outcome? since? until? cursor? limit? | records next_cursor
requests.get | jwt | id | id at surface outcome status model backend captured
requests.stats | jwt | everyone? group_id? user_id? key_id? project? ref_id? surface? model? backend? code? outcome? since? until? by? | since until bin_seconds bins totals before surfaces models backends codes askers
requests.watch | jwt | everyone? group_id? user_id? key_id? project? ref_id? surface? model? backend? code? outcome? stream_id? | stream_id renew_after_seconds
users.keys.list | admin | user_id | id name key_prefix project created_at active
users.keys.update | admin | key_id name? expires_at? monthly_budget_usd? total_budget_usd? allowed_models? requests_per_minute? tokens_per_minute? | id name key_prefix project created_at
users.keys.revoke | admin | key_id | ok
users.keys.rotate | admin | key_id | id name key key_prefix
users.get | admin | user_id | balance groups sessions
keys.rotate | jwt | key_id | id name key key_prefix
users.list | admin | search? limit? offset? | users total
users.create | admin | email name? is_admin? tier? | id email name link
users.update | admin | user_id name? tier? is_admin? disabled? email_verified? | ok
users.password.reset | admin | user_id | id token expires_at
users.invite | admin | email? tier? is_admin? group_id? note? | id token expires_at
users.links.list | admin | | id kind email tier is_admin group_name note created_by created_at expires_at
users.links.revoke | admin | link_id | ok
auth.password.set | jwt | current_password new_password | ok
auth.name.set | jwt | name | ok
auth.sessions.list | jwt | | id current ip user_agent created_at last_used_at
auth.sessions.end | jwt | session_id? | ended
auth.identities.list | jwt | | id issuer email created_at last_used_at
auth.identities.remove | jwt | identity_id | ok
auth.cli.approve | jwt | challenge | code
auth.cli.redeem | public | code verifier | access_token refresh_token token_type expires_in user
auth.link.show | public | token | kind invited_by email name note expires_at
auth.link.accept | public | token password email? name? | access_token refresh_token token_type expires_in user
group.invite.show | public | token | group_name group_description invited_by role email expires_at
group.invite.register | public | token password email? name? | access_token refresh_token token_type expires_in user
group.invite.list | jwt | group_id | id role email max_uses uses created_by created_at expires_at
group.invite.revoke | jwt | group_id invitation_id | ok
models.list | jwt | | id targets served_by is_own available capabilities context_tokens input_usd output_usd first_token_ms
codes.create | admin | count points note? ttl_secs? | id codes expires_at
codes.list | admin | | id points note codes redeemed created_by created_at expires_at
codes.revoke | admin | id | ok
codes.redeem | jwt | code group_id? | points balance
`;

const words = (text: string | undefined) => (text ?? "").split(" ").filter(Boolean);
const rowsOf = (table: string) =>
  table
    .trim()
    .split("\n")
    .map((line) => {
      const [name = "", auth = "", params, fields] = line.split("|").map((cell) => cell.trim());
      return { name, auth, params: words(params), fields: words(fields) };
    });
const contract = rowsOf(TABLE);
const rows = [...contract, ...rowsOf(ADDED_METHODS)];

interface Documented {
  name: string;
  "x-auth": string;
  params: { name: string; required: boolean }[];
  result: { schema: { properties?: object; items?: { properties?: object } } };
}

let gateway: TestGateway;
let documented: Map<string, Documented>;
let admin: string;
let user: string;
beforeAll(async () => {
  gateway = await bootGateway();
  const answer = await fetch(`${gateway.url}/api/openrpc.json`);
  const { methods } = (await answer.json()) as { methods: Documented[] };
  documented = new Map(methods.map((method) => [method.name, method]));
  admin = await gateway.signIn("ada");
  user = await gateway.signIn("bob");
});
afterAll(() => gateway.stop());

describe("methods", () => {
  test("are those of the contract, all 58, and the few named here", () => {
    expect([...documented.keys()].sort()).toEqual(rows.map(({ name }) => name).sort());
    expect(contract.length).toBe(58);
  });

  test("take the parameters of the contract, by name and by need", () => {
    for (const { name, auth, params } of rows) {
      const method = documented.get(name)!;
      const taken = method.params
        .map((param) => (param.required ? param.name : `${param.name}?`))
        .filter((param) => !ADDED.has(`${name} ${param}`));
      expect({ name, auth: method["x-auth"], params: taken.sort() }).toEqual({
        name,
        auth,
        params: params.toSorted(),
      });
    }
  });

  test("answer with the fields of the contract", () => {
    for (const { name, fields } of rows) {
      const { schema } = documented.get(name)!.result;
      const given = Object.keys(schema.properties ?? schema.items?.properties ?? {});
      expect({ name, missing: fields.filter((field) => !given.includes(field)) }).toEqual({
        name,
        missing: [],
      });
    }
  });
});

test("null stands for a parameter that is left out, unless it means something", async () => {
  const { id, title } = await gateway.rpc("conversations.create", { title: null }, admin);
  expect(title).toBe("New Conversation");
  expect((await gateway.rpc("conversations.get", { conversation_id: null, id }, admin)).id).toBe(id);
  expect((await gateway.rpc("usage.list", { limit: null, offset: null, project: null }, admin)).limit).toBe(
    50,
  );
  expect((await gateway.call("keys.create", { name: null }, admin)).error.code).toBe(-32602);
  const { id: group_id } = await gateway.rpc("group.create", { name: "lab", description: null }, admin);
  const ceiling = async (change: object) =>
    (await gateway.rpc("group.update", { group_id, ...change }, admin)).rpm_ceiling;
  expect(await ceiling({ rpm_ceiling: 5 })).toBe(5);
  expect(await ceiling({ name: null })).toBe(5);
  expect(await ceiling({ rpm_ceiling: null })).toBeNull();
});

describe("who may call", () => {
  const refusal = async (method: string, bearer?: string) => {
    const { error } = await gateway.call(method, {}, bearer);
    return error && { code: error.code, message: error.message };
  };
  const NOT_SIGNED_IN = { code: -32005, message: "authentication required" };
  const NO_ADMIN_TOKEN = { code: -32005, message: "admin access required" };

  test.each(rows)("$name", async ({ name, auth }) => {
    const [anonymous, signedIn, administrator, token] = await Promise.all([
      refusal(name),
      refusal(name, user),
      refusal(name, admin),
      refusal(name, ADMIN_TOKEN),
    ]);
    const mayCall = (error: { code: number } | undefined) =>
      error === undefined || ![-32005, -32007, -32601].includes(error.code);
    if (auth === "anonymous_socket") {
      // Over HTTP the probe does not exist, for anyone.
      for (const error of [anonymous, signedIn, administrator, token]) expect(error?.code).toBe(-32601);
    } else if (auth === "public") {
      for (const error of [anonymous, signedIn, administrator, token]) expect(mayCall(error)).toBe(true);
    } else if (auth === "admin_token") {
      for (const error of [anonymous, signedIn, administrator]) expect(error).toEqual(NO_ADMIN_TOKEN);
      expect(mayCall(token)).toBe(true);
    } else {
      expect(anonymous).toEqual(NOT_SIGNED_IN);
      if (auth === "jwt_or_admin_token") expect(mayCall(token)).toBe(true);
      else expect(token).toEqual(NOT_SIGNED_IN);
      expect(mayCall(administrator)).toBe(true);
      if (auth === "admin") {
        expect(signedIn?.code).toBe(-32007);
        // "admin access required", and then what the method needs it for.
        expect(signedIn?.message).toMatch(/^admin access required: .{10,}/);
      } else expect(mayCall(signedIn)).toBe(true);
    }
  });

  test("the admin token's bearer prefix is taken in any case, its value to the letter", async () => {
    const ask = (authorization: string) =>
      fetch(`${gateway.url}/api/admin/aliases`, { headers: { authorization } }).then(({ status }) => status);
    for (const prefix of ["Bearer", "bearer", "BEARER", "bEaReR"])
      expect(await ask(`${prefix} ${ADMIN_TOKEN}`)).toBe(200);
    for (const value of [
      ADMIN_TOKEN,
      `Basic ${ADMIN_TOKEN}`,
      `Bearer ${ADMIN_TOKEN.toUpperCase()}`,
      "Bearer ",
    ])
      expect(await ask(value)).toBe(401);
  });

  test("without a configured admin token nothing is it, not even an empty one", async () => {
    const closed = await bootGateway({ config: { adminToken: null } });
    try {
      for (const bearer of [undefined, "", "null", "undefined", ADMIN_TOKEN]) {
        const { error } = await closed.call(
          "billing.plan.set",
          { user_email: "a@b.example", tier: "pro" },
          bearer,
        );
        expect(error.code).toBe(-32005);
        const headers = { authorization: `Bearer ${bearer ?? ""}` };
        expect((await fetch(`${closed.url}/api/admin/backends`, { headers })).status).toBe(401);
      }
    } finally {
      await closed.stop();
    }
  });
});
