import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { deleteExpired, type Queryable, type Sweep, type Transaction } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import type { Accounts, InsertedAccount, Session } from "./service.ts";
import type { AccountStore, LinkRow, UserRow } from "./store.ts";

const LINK_PREFIX = "link-";
const LINK_BYTES = 32;
const DAY_MS = 24 * 3600 * 1000;
const LINKS_MAX = 1_000;
const LINKS_PER_IP = 20;
/** No password has this hash: the account waits for its link to be used. */
const NO_PASSWORD = "";

export interface PeopleOptions extends Needs<"db" | "clock" | "ids"> {
  store: AccountStore;
  accounts: Pick<Accounts, "hash" | "insert" | "limit" | "startSession" | "changed" | "giving">;
}

/** What a link is for: a password of `user_id`, or an account like this. */
type Terms = Omit<LinkRow, "id" | "created_by" | "created_at" | "expires_at">;

export interface Link {
  id: string;
  token: string;
  expires_at: string;
}

export class People {
  constructor(readonly options: PeopleOptions) {}

  /** An account without a password, and the link with which its owner chooses one. */
  async create(
    actor: Actor,
    account: { email: string; name?: string; isAdmin: boolean; tier?: string },
  ): Promise<{ user: UserRow; link: Link }> {
    const { store, accounts } = this.options;
    return store.registering(async (tx) => {
      const user = await accounts.insert(tx, { ...account, passwordHash: NO_PASSWORD, emailVerified: true });
      return { user, link: await this.#makeLink(tx, actor, { user_id: user.id }) };
    });
  }

  /** A link with which someone makes an account of their own. */
  invite(actor: Actor, terms: Partial<Terms>): Promise<Link> {
    const { db, store } = this.options;
    return db.transaction(async (tx) => {
      if (terms.group_id && !(await store.hasGroup(tx, terms.group_id)))
        fail("invalid_params", "`group_id`: no group has this id", { data: { fields: ["group_id"] } });
      return this.#makeLink(tx, actor, terms);
    });
  }

  /** The old password and every session end at once. */
  async resetPassword(actor: Actor, userId: string): Promise<Link> {
    const { db, store, clock, accounts } = this.options;
    if (userId === actor.userId)
      fail("forbidden", "Change your own password under Settings; a reset would sign you out");
    const link = await db.transaction(async (tx) => {
      // Two who reset each other at once must not wait for each other's rows.
      await tx.lock("administrators");
      if (!(await store.userById(userId, tx))) refuseUnknown();
      await store.setPassword(tx, userId, NO_PASSWORD);
      await store.endSessions(tx, { userId, now: isoTime(clock.now()) });
      await store.deleteLinksFor(tx, userId);
      return this.#makeLink(tx, actor, { user_id: userId });
    });
    accounts.changed(userId);
    return link;
  }

  async #makeLink(tx: Transaction, actor: Actor, terms: Partial<Terms>): Promise<Link> {
    const { store, ids, clock, accounts } = this.options;
    await accounts.giving.requireSession(tx, actor);
    const nowMs = clock.now();
    if ((await store.countLinks(tx, isoTime(nowMs))) >= LINKS_MAX)
      fail("app_error", `There are ${LINKS_MAX} open links, the most that are kept; revoke some first`);
    const token = `${LINK_PREFIX}${ids.secret(LINK_BYTES)}`;
    const link: LinkRow = {
      id: ids.uuid(),
      ...{ user_id: null, email: null, tier: null, is_admin: false, group_id: null, note: null },
      ...terms,
      created_by: actor.userId,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + accounts.giving.settings.invitationDays * DAY_MS),
    };
    await store.insertLink(tx, link, sha256Hex(token));
    return { id: link.id, token, expires_at: link.expires_at };
  }

  /** Returns the account as it was. */
  async update(
    actor: Actor,
    userId: string,
    patch: { name?: string; is_admin?: boolean; disabled?: boolean; email_verified?: boolean },
  ): Promise<UserRow> {
    const { db, store, clock, accounts } = this.options;
    if (userId === actor.userId && (patch.is_admin === false || patch.disabled))
      fail("forbidden", "You cannot take these rights from yourself; another administrator can");
    const now = isoTime(clock.now());
    const before = await db.transaction(async (tx) => {
      // Two administrators who demote each other at once must not leave the service without one.
      await tx.lock("administrators");
      const user = (await store.userById(userId, tx)) ?? refuseUnknown();
      const disabledAt = patch.disabled ? (user.disabled_at ?? now) : null;
      await store.updateUser(tx, {
        id: userId,
        name: patch.name ?? user.name,
        is_admin: patch.is_admin ?? user.is_admin,
        disabled_at: patch.disabled === undefined ? user.disabled_at : disabledAt,
        email_verified: patch.email_verified ?? user.email_verified,
      });
      if (patch.disabled) await store.endSessions(tx, { userId, now });
      await accounts.giving.endLinksOf(tx, userId);
      if ((await store.countAdmins(tx)) === 0)
        fail("forbidden", "This is the last administrator; make someone else one first");
      return user;
    });
    accounts.changed(userId);
    return before;
  }

  /** Administrator rights as the sign-in provider has them; the last administrator keeps theirs. */
  async followProvider(userId: string, isAdmin: boolean): Promise<void> {
    const { db, store, accounts } = this.options;
    const isChanged = await db.transaction(async (tx) => {
      await tx.lock("administrators");
      const user = (await store.userById(userId, tx)) ?? refuseUnknown();
      if (user.is_admin === isAdmin) return false;
      const isLast = user.is_admin && user.disabled_at === null && (await store.countAdmins(tx)) === 1;
      if (isLast) return false;
      await store.updateUser(tx, { ...user, is_admin: isAdmin });
      await accounts.giving.endLinksOf(tx, userId);
      return true;
    });
    if (isChanged) accounts.changed(userId);
  }

  async revokeLink(id: string): Promise<void> {
    const { store, db } = this.options;
    if (!(await store.takeLink(db, id))) fail("not_found", "The link is unknown, used or expired");
  }

  async show(token: string, { ip }: CallSource) {
    const { store } = this.options;
    const link = await this.#find(token, ip);
    const creator = await store.userById(link.created_by);
    const owner = link.user_id === null ? null : await store.userById(link.user_id);
    return {
      kind: owner ? ("password" as const) : ("invitation" as const),
      invited_by: creator?.name ?? "",
      email: owner?.email ?? link.email,
      name: owner?.name ?? null,
      note: link.note,
      expires_at: link.expires_at,
    };
  }

  /** Sets the password of the link's account, or makes the account, and signs in. */
  async accept(
    { token, password, email, name }: { token: string; password: string; email?: string; name?: string },
    source: CallSource,
  ): Promise<Session> {
    const { accounts, store } = this.options;
    await this.#find(token, source.ip);
    // Each use costs a hash, and tells whether an address is taken.
    await accounts.limit("link-use", source.ip, LINKS_PER_IP);
    const passwordHash = await accounts.hash(password);
    const user = await store.registering(async (tx) => {
      const link = await this.#take(tx, token);
      if (link.user_id === null) {
        const address = emailFor(link.email, email);
        return this.#insertInvited(tx, link, { email: address, name, passwordHash });
      }
      const owner = (await store.userById(link.user_id, tx)) ?? refuseLink();
      if (owner.disabled_at !== null) fail("forbidden", "This account is disabled; ask an administrator");
      await store.setPassword(tx, owner.id, passwordHash);
      return { ...owner, password_hash: passwordHash };
    });
    return accounts.startSession(user, source);
  }

  /** Uses up an invitation for an account that is made without a password. */
  async takeInvitation(
    tx: Transaction,
    token: string,
    account: { email: string; name?: string; isAdmin?: boolean },
  ): Promise<UserRow> {
    const link = await this.#take(tx, token);
    if (link.user_id !== null) refuseLink();
    emailFor(link.email, account.email);
    return this.#insertInvited(tx, link, { ...account, emailVerified: true, passwordHash: NO_PASSWORD });
  }

  async #insertInvited(
    tx: Transaction,
    { email, tier, is_admin, group_id: groupId }: LinkRow,
    account: Omit<InsertedAccount, "tier" | "emailVerified"> & { emailVerified?: boolean },
  ): Promise<UserRow> {
    const { accounts, store } = this.options;
    const user = await accounts.insert(tx, {
      emailVerified: email !== null,
      isAdmin: Boolean(is_admin),
      ...account,
      ...(tier !== null && { tier }),
    });
    if (groupId !== null) await store.joinGroup(tx, { groupId, userId: user.id });
    return user;
  }

  async #usable(on: Queryable, token: string): Promise<LinkRow | null> {
    const { store, clock, accounts } = this.options;
    const link = await store.link(on, sha256Hex(token), isoTime(clock.now()));
    if (!link) return null;
    const kind = link.user_id === null ? "account" : "password";
    return (await accounts.giving.mayGive(on, { kind, makerId: link.created_by })) ? link : null;
  }

  async #find(token: string, ip: string): Promise<LinkRow> {
    const link = await this.#usable(this.options.db, token);
    if (link) return link;
    await this.options.accounts.limit("link", ip, LINKS_PER_IP);
    return refuseLink();
  }

  async #take(tx: Transaction, token: string): Promise<LinkRow> {
    const link = (await this.#usable(tx, token)) ?? refuseLink();
    if (!(await this.options.store.takeLink(tx, link.id))) refuseLink();
    return link;
  }

  readonly sweepLinks: Sweep = (...step) =>
    deleteExpired(this.options.db, { table: "account_links" }, ...step);
}

/** The address of an account that an invitation makes: the one it is for, if it is for one. */
export function emailFor(wanted: string | null, given: string | undefined): string {
  if (wanted !== null && given !== undefined && given !== wanted)
    fail("forbidden", "This invitation is for another email address; use the one that it was sent to");
  return (
    wanted ??
    given ??
    fail("invalid_params", "`email`: is required; this invitation is not for a particular address", {
      data: { fields: ["email"] },
    })
  );
}

function refuseLink(): never {
  fail(
    "not_found",
    "The link is unknown, expired, was used before, or its maker no longer administers the service; ask an administrator for a new one",
  );
}

function refuseUnknown(): never {
  fail("not_found", "`user_id`: no account has this id; users.list shows them");
}
