import { isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Queryable, Sweep, Transaction } from "../../storage/contract.ts";
import type { Accounts } from "../accounts/index.ts";
import type { Needs } from "../foundation.ts";
import type { AccountRef, Ledger, Statement } from "../ledger/index.ts";
import type { Metering, PointsHold } from "../metering/index.ts";
import { memberId, NANO_PER_USD, type Usage, utcMonth } from "../usage/index.ts";
import { Codes } from "./codes.ts";
import { Invitations } from "./invitations.ts";
import { accessGroup, changeGroup, type InGroup, lockGroup, Members } from "./members.ts";
import { type ModelRules, normalModelId } from "./model-rules.ts";
import { type GroupRow, newMember, type Rule, type SeenGroup, store } from "./store.ts";

const GROUPS_OWNED_MAX = 100;
const MODELS_MAX = 2_000;

export interface GroupsOptions extends Needs<"db" | "bus" | "clock" | "ids"> {
  accounts: Accounts;
  ledger: Ledger;
  metering: Pick<Metering, "holdPoints">;
  usage: Pick<Usage, "settled" | "store">;
}

/** What a change of a group may set; null clears a limit. */
type GroupPatch = Partial<Omit<GroupRow, "id" | "owner_id" | "refilled_month" | "created_at">>;

export class Groups {
  readonly members: Members;
  readonly invitations: Invitations;
  readonly credits: Credits;
  readonly codes: Codes;

  constructor(readonly options: GroupsOptions) {
    this.members = new Members(options);
    this.invitations = new Invitations(options);
    this.credits = new Credits({ ...options, members: this.members });
    this.codes = new Codes(options);
  }

  /** Throws unless the actor is an admin of the group, or a platform administrator. */
  async requireAdmin(actor: Actor, groupId: string, method: string): Promise<void> {
    await accessGroup(this.options.db, { actor, groupId, method });
  }

  /** Without an actor (the admin token) the group has no owner and belongs to the platform. */
  async create(
    actor: Actor | null,
    { id, name, description }: { id?: string; name: string; description?: string },
  ): Promise<SeenGroup> {
    const { ids, clock, db, ledger } = this.options;
    const created_at = isoTime(clock.now());
    const group = {
      id: id ?? ids.uuid(),
      name,
      description: description ?? "",
      owner_id: actor?.userId ?? null,
      enforce_model_allowlist: false,
      created_at,
    };
    return db.transaction(async (tx) => {
      await lockGroup(tx, group.id);
      const existing = await store.group(tx, group.id, group.owner_id);
      if (existing) {
        if (existing.owner_id === group.owner_id) return existing;
        fail("conflict", `\`id\` ${group.id} is another group's; choose another one or leave it out`);
      }
      await ledger.refuseClosed(tx, pool(group.id));
      if (actor) {
        await tx.lock(`group-owner:${actor.userId}`);
        if ((await store.countOwned(tx, actor.userId)) >= GROUPS_OWNED_MAX)
          fail(
            "app_error",
            `You own ${GROUPS_OWNED_MAX} groups, the most one account may; delete some first`,
          );
      }
      await store.insertGroup(tx, group);
      if (actor)
        await store.saveMember(tx, { ...newMember(group.id, actor.userId, created_at), role: "admin" });
      return (await store.group(tx, group.id, group.owner_id))!;
    });
  }

  /** The actor's groups; all groups for the admin token, and for administrators who ask for them. */
  list(actor: Actor | null, { everyone }: { everyone?: boolean }): Promise<SeenGroup[]> {
    const isEveryones = actor === null || everyone === true;
    if (actor && isEveryones && !actor.isAdmin)
      fail("admin_required", "admin access required: everyone's groups are for administrators");
    return store.groups(this.options.db, actor?.userId ?? null, isEveryones);
  }

  async get(call: InGroup) {
    const { db, usage, clock } = this.options;
    await usage.settled();
    const group = await accessGroup(db, { ...call, need: "member" });
    const members = await store.members(db, group);
    const { month, monthNanoUsd } = await usage.store.keySpend(memberId(call.groupId, call.actor.userId));
    const my_month_usd = month === utcMonth(clock.now()) ? monthNanoUsd / NANO_PER_USD : 0;
    return { group, members, models: await this.#lists(db, call.groupId), my_month_usd };
  }

  async update(call: InGroup, patch: GroupPatch): Promise<SeenGroup> {
    const { ledger, clock } = this.options;
    const group = await changeGroup(ledger, call, async (tx, before) => {
      await store.updateGroup(tx, call.groupId, patch);
      const after = (await store.group(tx, call.groupId, call.actor.userId))!;
      if (after.monthly_refill === before.monthly_refill) return after;
      if (!call.actor.isAdmin)
        fail("admin_required", "`monthly_refill` issues points, which only a platform administrator may");
      const month = utcMonth(clock.now());
      return { ...after, balance: await this.#refill(tx, after, { month, actor: call.actor.userId }) };
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, call.groupId);
    return group;
  }

  /** Refills pools at the beginning of a month. It is a sweep that removes nothing, so it returns 0. */
  readonly sweepRefills: Sweep = async (nowMs, groupsMax) => {
    const { db, ledger } = this.options;
    const month = utcMonth(nowMs);
    for (const id of await store.groupsToRefill(db, month, groupsMax))
      await ledger.transaction(async (tx) => {
        await lockGroup(tx, id);
        const group = await store.group(tx, id, null);
        if (group && (group.refilled_month ?? "") < month)
          await this.#refill(tx, group, { month, actor: null });
      });
    return 0;
  };

  /** Tops the pool up to its refill level and returns its balance; the caller has locked the group. */
  async #refill(
    tx: Transaction,
    group: SeenGroup,
    { month, actor }: { month: string; actor: string | null },
  ): Promise<number> {
    await store.updateGroup(tx, group.id, { refilled_month: month });
    const points = (group.monthly_refill ?? 0) - group.balance;
    if (points <= 0) return group.balance;
    return this.options.ledger.topup(tx, pool(group.id), { points, note: "monthly refill", actor });
  }

  /** The rest of the pool returns to the issuing account; active members' keys become personal. */
  async remove(call: InGroup): Promise<void> {
    const { ledger, clock, bus, db } = this.options;
    await accessGroup(db, { ...call, need: "owner" });
    await this.credits.whileHeld(call.groupId, () =>
      changeGroup(ledger, { ...call, need: "owner" }, async (tx) => {
        const order = { actor: call.actor.userId, note: "the group was deleted" };
        await ledger.close(tx, pool(call.groupId), order);
        await store.detachKeys(tx, call.groupId, isoTime(clock.now()));
        await store.deleteGroup(tx, call.groupId);
      }),
    );
    bus.publish(PRINCIPAL_CHANGED, call.groupId);
  }

  async models(call: InGroup): Promise<{ allowed: string[]; denied: string[] }> {
    await accessGroup(this.options.db, call);
    return this.#lists(this.options.db, call.groupId);
  }

  /** Adds models to a list or removes them. The other list stays unchanged, because denials win anyway. */
  async changeModels(
    call: InGroup,
    { rule, model_ids, remove }: { rule: Rule; model_ids: readonly string[]; remove: boolean },
  ): Promise<{ allowed: string[]; denied: string[] }> {
    const { groupId } = call;
    const rowOf = (model_id: string) => ({ group_id: groupId, rule, model_id });
    const lists = await changeGroup(this.options.db, call, async (tx) => {
      const rows = await store.models(tx, groupId);
      const listed = rows.filter((row) => row.rule === rule).map(({ model_id }) => model_id);
      if (remove) {
        const named = new Set(model_ids.map(normalModelId));
        const modelsOff = listed.filter((id) => named.has(normalModelId(id)));
        await store.removeModels(tx, modelsOff.map(rowOf));
      } else {
        const fresh = [...new Set(model_ids)].filter((id) => !listed.includes(id));
        if (rows.length + fresh.length > MODELS_MAX)
          fail("app_error", `A group's lists hold at most ${MODELS_MAX} models; take some off first`);
        await store.addModels(tx, fresh.map(rowOf));
      }
      return this.#lists(tx, groupId);
    });
    this.options.bus.publish(PRINCIPAL_CHANGED, groupId);
    return lists;
  }

  async #lists(on: Queryable, groupId: string): Promise<{ allowed: string[]; denied: string[] }> {
    const rows = await store.models(on, groupId);
    const of = (rule: Rule) => rows.filter((row) => row.rule === rule).map(({ model_id }) => model_id);
    return { allowed: of("allow"), denied: of("deny") };
  }

  async modelSets(groupId: string): Promise<Pick<ModelRules, "allowed" | "denied">> {
    const { allowed, denied } = await this.#lists(this.options.db, groupId);
    return { allowed: new Set(allowed.map(normalModelId)), denied: new Set(denied.map(normalModelId)) };
  }

  /** Requires that the owner of a new group key is an active member. */
  async requireMember(tx: Transaction, groupId: string, userId: string): Promise<void> {
    await lockGroup(tx, groupId);
    const member = await store.member(tx, groupId, userId);
    if (!member?.is_active)
      fail(
        "not_found",
        "`group_id`: no such group among yours; group.list shows the groups you are an active member of",
      );
  }
}

interface Transfer {
  points: number;
  note?: string | null;
}

const HOLD_AGAIN_AFTER_MS = [0, 50, 200];

const pool = (groupId: string): AccountRef => ({ type: "group", id: groupId });

class Credits {
  constructor(readonly options: GroupsOptions & { members: Members }) {}

  /** The method itself requires a platform administrator. */
  topup(call: InGroup, { points, note = null }: Transfer): Promise<number> {
    const { ledger } = this.options;
    return changeGroup(ledger, call, (tx) =>
      ledger.topup(tx, pool(call.groupId), { points, note, actor: call.actor.userId }),
    );
  }

  async balance(call: InGroup): Promise<Statement> {
    await accessGroup(this.options.db, call);
    await this.options.usage.settled();
    return this.options.ledger.statement(pool(call.groupId));
  }

  /** Moves points from the pool to a member's wallet and returns what the pool has left. */
  async allocate(call: InGroup, person: string, { points, note = null }: Transfer) {
    const { ledger, members } = this.options;
    const user = await members.person(call, person);
    const hold = (await this.#hold(call.groupId, points)) ?? (await this.#refuseHeld(call.groupId, points));
    try {
      return await changeGroup(ledger, call, async (tx) => {
        const member = await store.member(tx, call.groupId, user.userId);
        if (!member?.is_active)
          fail("not_found", `${person} is not an active member of this group; points go to members only`);
        const to: AccountRef = { type: "user", id: user.userId };
        const order = { points, note, actor: call.actor.userId };
        const moved = await ledger.allocate(tx, { from: pool(call.groupId), to, order });
        if (!moved) refuseShort(points);
        return { poolBalance: moved.fromBalance, email: user.email };
      });
    } finally {
      hold.release();
    }
  }

  /** Holds all points of the pool while `work` empties it. Refused while requests hold some of them. */
  async whileHeld<T>(groupId: string, work: () => Promise<T>): Promise<T> {
    const { balance } = await this.options.ledger.balances.load(pool(groupId));
    const hold = await this.#hold(groupId, balance);
    if (!hold)
      fail(
        "conflict",
        "Requests in progress hold points of the pool; delete the group when they have ended. Deactivate members (group.members.update) to stop new ones",
      );
    try {
      return await work();
    } finally {
      hold.release();
    }
  }

  /** Holds points; null if fewer are free. Retries, because a concurrent transfer may still hold what it moved. */
  async #hold(groupId: string, points: number): Promise<PointsHold | null> {
    const { metering, ledger, clock } = this.options;
    const account = pool(groupId);
    for (const waitMs of HOLD_AGAIN_AFTER_MS) {
      const held = await metering.holdPoints(account, points);
      if (held) return held;
      await sleep(clock, waitMs);
      // The cached balance may have been stale.
      if ((await ledger.balances.load(account)).balance < points) return null;
    }
    return metering.holdPoints(account, points);
  }

  async #refuseHeld(groupId: string, points: number): Promise<never> {
    const { balance } = await this.options.ledger.balances.load(pool(groupId));
    if (balance < points) refuseShort(points);
    fail(
      "conflict",
      `The pool has ${balance} points, but requests in progress hold too many of them to allocate ${points}; try again when they have ended, or allocate fewer`,
    );
  }
}

function refuseShort(points: number): never {
  fail(
    "conflict",
    `The pool holds fewer than ${points} points; group.credits.balance shows it, a platform administrator tops it up`,
  );
}
