import type { Caller } from "./context.ts";
import { isObject, textOf } from "./json.ts";

export interface AuditEntry {
  action: string;
  caller: Caller;
  requestId: string;
  /** Whom or what the action was about, if the call names it. */
  target: string | null;
  /** The parameters; values only of fields that cannot hold a secret. */
  details: Record<string, unknown>;
  /** The account that a public call signed in or created. */
  account: { id: string; email: string } | null;
}

const READS =
  /\.(list|get|show|status|me|self|types|addresses|activity|query|records|series|stats|watch|balance|detect|test|probe|check|fits|served)$|^billing\.plan$/;

export const leavesEntry = ({ name, audit }: { name: string; audit?: false }): boolean =>
  audit !== false && !READS.test(name);

export interface AuditSink {
  /** Never throws: the change has been made already. */
  record(entry: AuditEntry): Promise<void>;
}

/** Fields whose values are recorded; of all others only the name is. */
const SHOWN: ReadonlySet<string> = new Set([
  ...["id", "user_id", "user_email", "email", "group_id", "key_id", "agent_id", "model_id", "provider_id"],
  ...["conversation_id", "invitation_id", "link_id", "node_id", "name", "machine_name", "project"],
  ...["tier", "role", "is_admin", "disabled", "is_active", "enabled", "remove", "points", "cost_multiplier"],
  ...["rpm_ceiling", "enforce_model_allowlist", "max_uses", "ttl_secs", "model_ids", "model", "method"],
  ...["monthly_refill", "member_budget_usd", "count", "resume"],
  ...["expires_at", "monthly_budget_usd", "total_budget_usd", "allowed_models", "requests_per_minute"],
  ...["tokens_per_minute", "alias", "target", "targets", "begin_within_seconds", "index", "type", "server"],
  ...["models", "capabilities", "concurrency", "version", "website_domain", "input_usd", "output_usd"],
  ...["monthly_usd_quota", "monthly_token_quota", "rpm", "mode", "base_price", "price_per_second"],
  ...["price_per_frame", "resolution_coeff", "currency", "per_call_usd", "per_image_usd", "per_second_usd"],
  ...["per_million_characters_usd", "days", "forget", "value", "draining"],
]);

/** The target is the first of these ids in the parameters, else of those in the result, else of the names in the parameters. */
const GIVEN_IDS = [
  ...["user_id", "user_email", "email", "key_id", "agent_id", "provider_id", "invitation_id", "link_id"],
  ...["node_id", "conversation_id", "alias", "group_id"],
] as const;
const MADE_IDS = ["id", "agent_id"] as const;
const GIVEN_NAMES = ["name", "machine_name", "model", "model_id", "id"] as const;

const NOT_SHOWN = "(not recorded)";
const VALUE_LENGTH_MAX = 300;
const TARGET_LENGTH_MAX = 256;

function firstText(from: unknown, names: readonly string[]): string | null {
  if (!isObject(from)) return null;
  const value = names.map((name) => textOf(from[name])).find((text) => text !== "");
  return value?.slice(0, TARGET_LENGTH_MAX) ?? null;
}

function shown(name: string, value: unknown): unknown {
  if (!SHOWN.has(name)) return NOT_SHOWN;
  const json = JSON.stringify(value) ?? "null";
  return json.length <= VALUE_LENGTH_MAX ? value : `${json.slice(0, VALUE_LENGTH_MAX)}…`;
}

export function auditEntry(
  { action, caller, requestId }: Pick<AuditEntry, "action" | "caller" | "requestId">,
  given: unknown,
  result: unknown,
  before: Record<string, unknown> = {},
): AuditEntry {
  const details: Record<string, unknown> = {};
  for (const [name, value] of isObject(given) ? Object.entries(given) : [])
    if (value !== undefined) details[name] = shown(name, value);
  const changed = Object.entries(before).filter(
    ([name, value]) => name in details && value !== details[name],
  );
  if (changed.length > 0)
    details.before = Object.fromEntries(changed.map(([name, value]) => [name, shown(name, value)]));
  const user = isObject(result) && isObject(result.user) ? result.user : null;
  const account =
    user && typeof user.id === "string" && typeof user.email === "string"
      ? { id: user.id, email: user.email }
      : null;
  const target = firstText(given, GIVEN_IDS) ?? firstText(result, MADE_IDS) ?? firstText(given, GIVEN_NAMES);
  return { action, caller, requestId, target, details, account };
}
