import { type AuditSink, auditEntry, leavesEntry } from "./audit.ts";
import type { Actor, CallContext, Identity } from "./context.ts";
import { type JsonSchema, openRpcDocument } from "./documents.ts";
import { fail, ServiceError } from "./errors.ts";
import type { MethodAuth } from "./method.ts";
import type { Registry } from "./registry.ts";
import { nextTurn } from "./turns.ts";
import { validate } from "./validate.ts";
import { VERSION } from "./version.ts";

/** OpenRPC's own method: it belongs to no room, and answers like GET /api/openrpc.json. */
const DISCOVER = "rpc.discover";
const SIGN_IN = "auth.login";

const descriptions = new WeakMap<Registry, JsonSchema>();

/** Throws if the caller may not call. Callers who are not signed in always get the same answer, which reveals no rights. */
export function authorize(
  { auth, name, hint }: { auth: MethodAuth; name: string; hint?: string },
  { actor, adminToken }: Identity,
): Actor | null {
  switch (auth) {
    case "public":
    case "anonymous_socket":
      return actor;
    case "jwt":
      return actor ?? fail("auth_required", "authentication required");
    case "admin":
      if (!actor) fail("auth_required", "authentication required");
      if (!actor.isAdmin) {
        fail("admin_required", `admin access required: ${hint ?? `${name} needs an administrator account`}`);
      }
      return actor;
    case "admin_token":
      if (!adminToken) fail("admin_token_required", "admin access required");
      return null;
    case "jwt_or_admin_token":
      if (!actor && !adminToken) fail("auth_required", "authentication required");
      return actor;
  }
}

export async function dispatch(
  registry: Registry,
  call: { method: string; params: unknown; context: CallContext; audit: AuditSink; isLarge?: boolean },
): Promise<unknown> {
  const { method: name, params, context, audit } = call;
  // Without a server URL: only the HTTP request knows under which address the service was called.
  if (name === DISCOVER)
    return descriptions.getOrInsertComputed(registry, () =>
      openRpcDocument(registry, { version: VERSION, serverUrl: "" }),
    );
  const method = registry.methods.get(name);
  if (!method) fail("method_not_found", `Method not found: ${name.slice(0, 200)}`);
  const actor = authorize(method, context.caller);
  const checked = validate(method.params, params ?? {});
  if (call.isLarge) await nextTurn();
  const { caller, requestId } = context;
  const entry = { action: name, caller, requestId };
  const before: Record<string, unknown> = {};
  const handle = async () => method.handler({ ...context, params: checked, actor, before });
  const result: unknown = await handle().catch(async (error: unknown) => {
    // Attempts are limited by address before a password is checked, which bounds these entries, too.
    if (name === SIGN_IN && error instanceof ServiceError && error.kind === "auth_required")
      await audit.record(auditEntry({ ...entry, action: `${name} refused` }, checked, null));
    throw error;
  });
  // Parsing drops every field that the definition does not list, so no handler can leak one.
  const answer = method.result.parse(result);
  if (leavesEntry(method)) await audit.record(auditEntry(entry, checked, answer, before));
  return answer;
}
