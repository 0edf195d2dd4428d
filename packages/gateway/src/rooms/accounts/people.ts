import type { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource } from "../../kernel/context.ts";
import { fail, failParam } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { deleteExpired, type Queryable, type Sweep, type Transaction } from "../../storage/contract.ts";
import type { Link as LinkResult } from "./methods.ts";
import type { Accounts, AccountsOptions, InsertedAccount, NewAccount, Session } from "./service.ts";
import type { AccountStore, LinkRow, UserRow } from "./store.ts";

const LINK_PREFIX = "link-";
const LINK_BYTES = 32;
const DAY_MS = 24 * 3600 * 1000;
const LINKS_MAX = 1_000;
const LINKS_PER_IP = 20;
/** Matches no password: the account has none until its link is used. */
const NO_PASSWORD = "";

/** What a link is for: a password of `user_id`, or an account like this. */
type Terms = Omit<LinkRow, "id" | "created_by" | "created_at" | "expires_at">;

type Link = z.output<typeof LinkResult>;

export class People {
  constructor(readonly options: AccountsOptions & { store: AccountStore; accounts: Accounts }) {}

  /** Creates an account without a password, and the link with which its owner sets one. */
  async create(actor: Actor, account: NewAccount) {
    const { store, accounts } = this.options;
    return store.registering(async (tx) => {
      const user = await accounts.insert(tx, { ...account, passwordHash: NO_PASSWORD, emailVerified: true });
      return { user, link: await this.#makeLink(tx, actor, { user_id: user.id }) };
    });
  }

  /** Makes a link for creating an account. */
  invite(actor: Actor, terms: Partial<Terms>): Promise<Link> {
    const { db, store } = this.options;
    return db.transaction(async (tx) => {
      if (terms.group_id && !(await store.hasGroup(tx, terms.group_id)))
        failParam("group_id", "no group has this id");
      return this.#makeLink(tx, actor, terms);
    });
  }

  /** Ends the old password and all sessions at once, and makes a link for a new password. */
  async resetPassword(actor: Actor, userId: string): Promise<Link> {
    const { store, clock } = this.options;
    if (userId === actor.userId)
      fail("forbidden", "Change your own password under Settings; a reset would sign you out");
    return this.#changing(userId, async (tx) => {
      await store.updateUser(tx, userId, { password_hash: NO_PASSWORD });
      await store.endSessions(tx, { userId, now: isoTime(clock.now()) });
      await store.deleteLinksFor(tx, userId);
      return this.#makeLink(tx, actor, { user_id: userId });
    });
  }

  /** Locks out other such changes: two at once could deadlock, or leave the service without an administrator. */
  async #changing<T>(userId: string, work: (tx: Transaction, user: UserRow) => Promise<T>): Promise<T> {
    const { db, store, accounts } = this.options;
    const done = await db.transaction(async (tx) => {
      await tx.lock("administrators");
      const user = await store.userById(userId, tx);
      return work(tx, user ?? fail("not_found", "`user_id`: no account has this id; users.list shows them"));
    });
    accounts.changed(userId);
    return done;
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
      expires_at: isoTime(nowMs + this.options.signUp.invitationDays * DAY_MS),
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
    const { store, clock, accounts } = this.options;
    if (userId === actor.userId && (patch.is_admin === false || patch.disabled))
      fail("forbidden", "You cannot take these rights from yourself; another administrator can");
    const now = isoTime(clock.now());
    return this.#changing(userId, async (tx, user) => {
      const { disabled = user.disabled_at !== null, ...changes } = patch;
      const disabled_at = disabled ? (user.disabled_at ?? now) : null;
      await store.updateUser(tx, userId, { ...changes, disabled_at });
      if (patch.disabled) await store.endSessions(tx, { userId, now });
      await accounts.giving.endLinksOf(tx, userId);
      if ((await store.countAdmins(tx)) === 0)
        fail("forbidden", "This is the last administrator; make someone else one first");
      return user;
    });
  }

  /** Takes over administrator rights from the sign-in provider; the last administrator keeps theirs. */
  async followProvider(userId: string, isAdmin: boolean): Promise<void> {
    const { store, accounts } = this.options;
    await this.#changing(userId, async (tx, user) => {
      if (user.is_admin === isAdmin) return;
      const isLast = user.is_admin && user.disabled_at === null && (await store.countAdmins(tx)) === 1;
      if (isLast) return;
      await store.updateUser(tx, userId, { is_admin: isAdmin });
      await accounts.giving.endLinksOf(tx, userId);
    });
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
      ...link,
      kind: owner ? ("password" as const) : ("invitation" as const),
      invited_by: creator?.name ?? "",
      email: owner?.email ?? link.email,
      name: owner?.name ?? null,
    };
  }

  /** Sets the password of the link's account, or makes the account, and signs in. */
  async accept(
    { token, password, email, name }: { token: string; password: string; email?: string; name?: string },
    source: CallSource,
  ): Promise<Session> {
    const { accounts, store } = this.options;
    await this.#find(token, source.ip);
    // Each use costs a hash, and reveals whether an address is taken.
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
      await store.updateUser(tx, owner.id, { password_hash: passwordHash });
      return { ...owner, password_hash: passwordHash };
    });
    return accounts.startSession(user, source);
  }

  /** Uses up an invitation and creates an account without a password. */
  async takeInvitation(tx: Transaction, token: string, account: NewAccount): Promise<UserRow> {
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
    const gift = link && ({ kind: "account", makerId: link.created_by } as const);
    return gift && (await accounts.giving.mayGive(on, gift)) ? link : null;
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

/** The email of the invited account: the one that the invitation names, or the given one. */
export function emailFor(wanted: string | null, given: string | undefined): string {
  if (wanted !== null && given !== undefined && given !== wanted)
    fail("forbidden", "This invitation is for another email address; use the one that it was sent to");
  return (
    wanted ?? given ?? failParam("email", "is required; this invitation is not for a particular address")
  );
}

function refuseLink(): never {
  fail(
    "not_found",
    "The link is unknown, expired, was used before, or its maker no longer administers the service; ask an administrator for a new one",
  );
}
