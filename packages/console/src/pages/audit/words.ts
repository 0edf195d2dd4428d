import type { Result } from "@model-gateway/client";
import { money, plural } from "../../lib/format.ts";

export type Entry = Result<"audit.list">["entries"][number];

/** What was done, with `…` in place of whom or what it was done to. */
const DONE: Readonly<Record<string, string>> = {
  "auth.register": "made an account",
  "auth.login": "signed in",
  "auth.login refused": "… could not sign in: wrong password, or no such account",
  "auth.logout": "signed out",
  "auth.password.set": "changed their password",
  "auth.name.set": "changed their name",
  "auth.sessions.end": "ended a session",
  "auth.link.accept": "used a one-time link",
  "auth.cli.approve": "signed in the command line",
  "auth.cli.redeem": "signed in with the command line",
  "users.create": "made an account for …",
  "users.invite": "invited …",
  "users.links.revoke": "revoked a one-time link",
  "users.password.reset": "reset the password of …",
  "users.keys.update": "changed the key …",
  "users.keys.rotate": "rotated the key …",
  "users.keys.revoke": "revoked the key …",
  "keys.create": "made the key …",
  "keys.update": "changed the key …",
  "keys.rotate": "rotated the key …",
  "keys.revoke": "revoked the key …",
  "keys.capture.set": "changed whether prompts of the key … are captured",
  "group.create": "made the group …",
  "group.update": "changed the group …",
  "group.delete": "deleted a group",
  "group.members.add": "added … to a group",
  "group.members.update": "changed the membership of …",
  "group.members.remove": "removed … from a group",
  "group.invite.create": "invited … to a group",
  "group.invite.accept": "joined a group by invitation",
  "group.invite.register": "made an account by invitation to a group",
  "group.invite.revoke": "revoked an invitation to a group",
  "group.models.allow": "changed the allowed models of …",
  "group.models.deny": "changed the denied models of …",
  "group.credits.allocate": "moved points from a pool to …",
  "group.credits.topup": "issued points to …",
  "codes.create": "made redemption codes",
  "codes.revoke": "revoked redemption codes",
  "codes.redeem": "redeemed a code",
  "backends.add": "registered the backend …",
  "backends.adopt": "registered a server that was found",
  "backends.update": "changed the backend …",
  "backends.remove": "removed the backend …",
  "routes.set": "saved the model route …",
  "routes.delete": "deleted the model route …",
  "billing.prices.set": "set the price of …",
  "billing.prices.remove": "removed the price of …",
  "billing.prices.import": "imported prices",
  "billing.prices.video.set": "set the video price of …",
  "billing.tiers.set": "changed the limits of the tier …",
  "billing.plan.set": "changed the tier of …",
  "agents.register": "registered the node …",
  "agents.deregister": "removed the node …",
  "agents.deploy": "deployed a model to …",
  "agents.stop": "stopped a model on …",
  "providers.add": "listed the provider …",
  "providers.update": "changed the provider …",
  "providers.remove": "removed the provider …",
  "agents.drain": "drained the node …",
  "agents.serve": "changed how … is served",
  "auth.identities.remove": "unlinked their sign-in with the provider",
  "auth.oidc": "signed in with the provider",
  "billing.video.pricing.set": "set the video price of …",
  "conversations.delete": "deleted a conversation",
  "memory.delete": "deleted what was remembered of them",
  "engine.invoke": "called an engine",
  "settings.update": "changed the setting …",
  "POST /api/admin/backends": "registered the backend …",
  "DELETE /api/admin/backends": "removed the backend …",
  "POST /api/admin/aliases": "set the alias …",
  "DELETE /api/admin/aliases": "removed the alias …",
};

/** Changes whose fields say it better than the method's name. */
function byFields(action: string, details: Record<string, unknown>): string | undefined {
  const { disabled, is_admin, tier, enabled, points, draining } = details;
  if (action === "users.update") {
    if (disabled !== undefined) return disabled ? "disabled …" : "enabled …";
    if (is_admin !== undefined)
      return is_admin ? "made … an administrator" : "removed administrator rights of …";
    return tier === undefined ? "changed the account of …" : `set the tier of … to ${tier}`;
  }
  if (action === "backends.update" && enabled !== undefined)
    return enabled ? "enabled the backend …" : "disabled the backend …";
  if (action === "agents.drain" && draining === false) return "took the node … back into service";
  if (action === "group.credits.topup" && typeof points === "number")
    return `issued ${plural(points, "point")} to …`;
  return undefined;
}

/** "disabled Bob": what someone did, as a person would say it. */
export function sentenceOf({ action, details, target, target_name }: Entry): string {
  const done = byFields(action, details) ?? DONE[action] ?? action;
  return done.replace("…", target_name ?? target ?? "someone");
}

/** What people call the fields; others keep their name, without its joints. */
const FIELDS: Readonly<Record<string, string>> = {
  is_admin: "Administrator",
  group_id: "Group",
  user_id: "User",
  key_id: "Key",
  rpm: "Requests per minute, per key",
  rpm_ceiling: "Requests per minute",
  ttl_secs: "Valid for, seconds",
  monthly_budget_usd: "Monthly budget",
  total_budget_usd: "Lifetime budget",
  member_budget_usd: "Monthly budget of each member",
};

export const fieldInWords = (name: string): string =>
  FIELDS[name] ?? `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;

export function valueInWords(name: string, value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return name.endsWith("_usd") ? money(value) : String(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
