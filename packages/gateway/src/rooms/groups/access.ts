import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Database, Queryable, Transaction } from "../../storage/contract.ts";
import { type SeenGroup, store } from "./store.ts";

/** `member`: any active member; `admin`: a group admin; platform administrators stand in for both. */
type Need = "member" | "admin" | "owner";

export interface AccessOptions {
  actor: Actor;
  groupId: string;
  need: Need;
  /** The method that is being called, for the refusal. */
  method: string;
}

/** A group, and who does something with it. */
export type InGroup = Omit<AccessOptions, "need">;

/** A group without an owner is the platform's, so its administrators are the owner. */
const isOwner = (group: SeenGroup, actor: Actor): boolean =>
  group.owner_id === null ? actor.isAdmin : group.owner_id === actor.userId;

/**
 * The group, for someone who may do this with it. To everyone else a group that exists and one that does not
 * look the same.
 */
export async function accessGroup(
  on: Queryable,
  { actor, groupId, need, method }: AccessOptions,
): Promise<SeenGroup> {
  const group = await store.group(on, groupId, actor.userId);
  if (group) {
    if (need === "owner" && isOwner(group, actor)) return group;
    if (need === "admin" && (actor.isAdmin || group.my_role === "admin")) return group;
    if (need === "member" && (actor.isAdmin || group.my_role !== null)) return group;
  }
  if (need === "member" || (!group && actor.isAdmin))
    fail("not_found", "Group not found; group.list shows the groups you belong to");
  fail(
    "admin_required",
    `admin access required: ${method} is for ${need === "owner" ? "the owner" : "an admin"} of the group; group.list shows your role in yours`,
  );
}

/** Until the end of the transaction nobody else changes this group, its members or its pool. */
export const lockGroup = (tx: Transaction, groupId: string): Promise<void> => tx.lock(`group:${groupId}`);

/** Runs a change of a group: in one transaction, under its lock, with the right checked inside. */
export function changeGroup<T>(
  db: Pick<Database, "transaction">,
  access: AccessOptions,
  work: (tx: Transaction, group: SeenGroup) => Promise<T>,
): Promise<T> {
  return db.transaction(async (tx) => {
    await lockGroup(tx, access.groupId);
    return work(tx, await accessGroup(tx, access));
  });
}
