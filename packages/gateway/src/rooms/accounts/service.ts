import { networkOf } from "@model-gateway/wire/server";
import type { z } from "zod";
import { BoundedMap, Gate } from "../../kernel/bounded.ts";
import { isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor, Authenticator, CallSource, Identity, SignedIn } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual, sha256Hex } from "../../kernel/ids.ts";
import { hmacSha256 } from "../../kernel/keyed-hash.ts";
import { PRINCIPAL_CHANGED, USER_CHANGED } from "../../kernel/topics.ts";
import { deleteExpired, type Sweep, type Transaction } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import { Giving, type SignUpSettings } from "./giving.ts";
import { decoyHash, hashPassword } from "./password-hash.ts";
import { People } from "./people.ts";
import type { SessionResult } from "./schemas.ts";
import { AccountStore, type SessionRow, type UserRow } from "./store.ts";
import { ACCESS_TOKEN_SECONDS, AccessTokens, type TokenHolder } from "./tokens.ts";

const REFRESH_TOKEN_MS = 30 * 24 * 3600 * 1000;
const REFRESH_TOKEN_BYTES = 32;
const LOGIN_WINDOW_MS = 60_000;
const LOGINS_PER_ACCOUNT = 5;
const LOGINS_PER_IP = 20;
/** More than logins: an office of people renews its sessions from one address. */
const REFRESHES_PER_IP = 120;
/** Rights can be changed directly in the database, without a notification, so they are read again after this. */
const ACTOR_TRUSTED_MS = 1_000;
/** A database that takes longer is treated as down. */
const REREAD_WITHIN_MS = 500;
/** Hashing is slow on purpose; only so many run or wait at once. */
const HASHES_AT_ONCE = 2;
const HASHES_WAITING_MAX = 100;
/** Tier of the first account: the first administrator owns the machine, so nothing limits them. */
const OWNER_TIER = "enterprise";

export interface AccountsOptions extends Needs<"db" | "bus" | "counter" | "clock" | "ids" | "jwtSecret"> {
  adminToken: string | null;
  signUp: SignUpSettings;
  /** False: people sign in with the provider only. */
  passwordSignIn: boolean;
}

export interface NewAccount {
  email: string;
  password: string;
  name?: string;
}

export interface InsertedAccount extends Omit<NewAccount, "password"> {
  emailVerified: boolean;
  passwordHash: string;
  isAdmin?: boolean;
  tier?: string;
}

export type Session = z.output<typeof SessionResult>;

interface KnownActor {
  actor: Actor;
  isDisabled: boolean;
  /** Sessions that ended while an access token of theirs could still be shown. */
  endedSessions: ReadonlySet<string>;
  readAtMs: number;
}

/** Twice the life of an access token: clocks of instances differ. */
const ENDED_SESSION_KEPT_MS = 2 * ACCESS_TOKEN_SECONDS * 1000;

const NOBODY: Identity = { actor: null, adminToken: false };
const GUESSER: Identity = { ...NOBODY, isGuess: true };

function identityOf({ actor, isDisabled, endedSessions }: KnownActor, { sessionId }: TokenHolder): Identity {
  if (isDisabled || endedSessions.has(sessionId)) return NOBODY;
  return { actor: { ...actor, sessionId }, adminToken: false, sessionId };
}

const isIn = (known: KnownActor | null, { sessionId }: SignedIn): boolean =>
  known !== null && !known.isDisabled && !(sessionId && known.endedSessions.has(sessionId));

export class Accounts implements Authenticator {
  readonly store: AccountStore;
  readonly giving: Giving;
  readonly people: People;
  readonly #tokens: AccessTokens;
  readonly #actors = new BoundedMap<string, KnownActor>();
  readonly #hashing = new Gate(HASHES_AT_ONCE, HASHES_WAITING_MAX, () =>
    fail("rate_limited", "Too many sign-ins are being checked right now; try again shortly", {
      retryAfterSeconds: 2,
    }),
  );
  /** What the link that the start prints carries. The same on every instance, and good for one account: the first. */
  readonly setupToken: string;
  /** Verified against when the account does not exist, so that both refusals take the same time. */
  readonly #decoyHash = decoyHash();

  constructor(readonly options: AccountsOptions) {
    this.store = new AccountStore(options.db);
    this.giving = new Giving(this.store, options.signUp);
    this.people = new People({ ...options, store: this.store, accounts: this });
    this.#tokens = new AccessTokens(options);
    this.setupToken = hmacSha256(options.jwtSecret, "setup link").toString("base64url");
    options.bus.onGap(() => this.#actors.clear());
    options.bus.subscribe(USER_CHANGED, (userId) => this.#actors.delete(userId));
  }

  async register(account: NewAccount & { setupToken?: string }, source: CallSource): Promise<Session> {
    await this.limit("register", source.ip, LOGINS_PER_IP);
    if (!(await this.registrationIsOpen())) this.#refuseRegistration();
    if (await this.hasNobody()) this.refuseFirstUnless(account.setupToken, source);
    const passwordHash = await this.hash(account.password);
    const user = await this.registering(async (tx, first) => {
      if (!(this.options.signUp.registrationOpen ?? first)) this.#refuseRegistration();
      if (first) this.refuseFirstUnless(account.setupToken, source);
      // The first account is the administrator's, who says so.
      return this.insert(tx, { ...account, passwordHash, isAdmin: first, emailVerified: first });
    });
    return this.startSession(user, source);
  }

  /** Runs `work` while nobody else makes an account; `first` says that there is none yet. */
  registering<T>(work: (tx: Transaction, first: boolean) => Promise<T>): Promise<T> {
    return this.store.registering(async (tx) =>
      work(tx, await this.giving.mayGive(tx, { kind: "first_account" })),
    );
  }

  /** The first account administers the service: it is made from this machine, or with the setup link. */
  refuseFirstUnless(setupToken: string | undefined, source: CallSource): void {
    if (setupToken !== undefined && constantTimeEqual(setupToken, this.setupToken)) return;
    if (!source.isLocal)
      fail(
        "forbidden",
        "The first account administers the service, so it needs the setup link: open the one that the service printed when it started",
      );
  }

  /** Ends every way into an account, and what was made in its name, before someone else gets it. */
  async takeOver(tx: Transaction, userId: string): Promise<void> {
    await this.store.takeOver(tx, userId, isoTime(this.options.clock.now()));
  }

  async insert(tx: Transaction, account: InsertedAccount): Promise<UserRow> {
    const { ids, clock } = this.options;
    const isOwner = account.isAdmin === true && !(await this.store.anyUser(tx));
    const row = {
      id: ids.uuid(),
      email: account.email,
      name: account.name ?? account.email.split("@")[0]!,
      password_hash: account.passwordHash,
      is_admin: account.isAdmin ?? false,
      tier: account.tier ?? (isOwner ? OWNER_TIER : this.options.signUp.newAccountTier),
      disabled_at: null,
      email_verified: account.emailVerified,
    };
    if (!(await this.store.insertUser(tx, { ...row, created_at: isoTime(clock.now()) })))
      fail("conflict", "An account with this email exists already; sign in instead");
    return row;
  }

  hash(password: string): Promise<string> {
    this.#requirePasswords();
    return this.#hashing.run(() => hashPassword(password));
  }

  #requirePasswords(): void {
    if (!this.options.passwordSignIn)
      fail("forbidden", "Passwords are turned off here; sign in with the provider");
  }

  /** Whether the first account, asked for from there, can be made only with the setup link. */
  async needsSetupLink(source: CallSource): Promise<boolean> {
    return !source.isLocal && (await this.hasNobody());
  }

  hasNobody(): Promise<boolean> {
    return this.giving.mayGive(this.options.db, { kind: "first_account" });
  }

  async registrationIsOpen(): Promise<boolean> {
    return this.options.signUp.registrationOpen ?? (await this.hasNobody());
  }

  #refuseRegistration(): never {
    fail(
      "app_error",
      "Registration is closed; ask an administrator, who can invite you or open it under Settings",
    );
  }

  async login(
    { email, password }: { email: string; password: string },
    source: CallSource,
  ): Promise<Session> {
    this.#requirePasswords();
    await this.limit("login", source.ip, LOGINS_PER_IP);
    await this.limit(`login:${email}`, source.ip, LOGINS_PER_ACCOUNT);
    const user = await this.store.userByEmail(email);
    const matches = await this.#matches(user, password);
    if (!user || !matches) fail("auth_required", "Email or password is wrong");
    return this.#startEnabled(user, source);
  }

  /** Signs in someone whom the sign-in provider, or a session of theirs that still lasts, vouches for. */
  async startSessionOf({ userId, sessionId }: SignedIn, source: CallSource): Promise<Session> {
    const user = await this.store.userById(userId);
    const known = user ?? fail("auth_required", "This account no longer exists");
    return this.#startEnabled(known, source, sessionId);
  }

  #startEnabled(user: UserRow, source: CallSource, approvedIn?: string): Promise<Session> {
    if (user.disabled_at !== null)
      fail("auth_required", "This account is disabled; ask an administrator to enable it");
    return this.startSession(user, source, approvedIn);
  }

  /** An account whose password was reset has none until its link is used. */
  async #matches(user: UserRow | null, password: string): Promise<boolean> {
    const hash = user?.password_hash || this.#decoyHash;
    return this.#hashing.run(() => Bun.password.verify(password, hash));
  }

  async changePassword(
    { userId, sessionId, ip }: { userId: string; sessionId: string | undefined; ip: string },
    { current, next }: { current: string; next: string },
  ): Promise<void> {
    await this.limit(`password:${userId}`, ip, LOGINS_PER_ACCOUNT);
    const refuse = () =>
      fail("invalid_params", "`current_password`: is not your password", {
        data: { fields: ["current_password"] },
      });
    const user = (await this.store.userById(userId)) ?? refuse();
    if (!(await this.#matches(user, current))) refuse();
    if (next === current)
      fail("invalid_params", "`new_password`: is your password already", {
        data: { fields: ["new_password"] },
      });
    const passwordHash = await this.hash(next);
    const now = isoTime(this.options.clock.now());
    await this.options.db.transaction(async (tx) => {
      if (!(await this.store.replacePassword(tx, user, passwordHash))) refuse();
      await this.store.endSessions(tx, { userId, except: sessionId, now });
    });
    this.changed(userId);
  }

  sessions(userId: string): Promise<SessionRow[]> {
    return this.store.sessionsOf(userId, isoTime(this.options.clock.now()));
  }

  /** Ends one session, or all but `except`; access tokens of theirs stop working at once. */
  async endSessions(userId: string, which: { only?: string; except?: string }): Promise<number> {
    const now = isoTime(this.options.clock.now());
    const count = await this.options.db.transaction((tx) =>
      this.store.endSessions(tx, { userId, ...which, now }),
    );
    this.changed(userId);
    return count;
  }

  /** Every instance reads the account again, and what its keys may do. */
  changed(userId: string): void {
    this.options.bus.publish(USER_CHANGED, userId);
    this.options.bus.publish(PRINCIPAL_CHANGED, userId);
  }

  async refresh(refreshToken: string, source: CallSource): Promise<Session> {
    const { clock, db } = this.options;
    const tokenHash = sha256Hex(refreshToken);
    const renewed = await db.transaction(async (tx) => {
      const used = await this.store.useRefreshToken(tx, tokenHash, isoTime(clock.now()));
      if (!used) return null;
      const holder = { userId: used.user_id, sessionId: used.family_id };
      return { ...holder, refreshToken: await this.#issueRefreshToken(tx, holder, source) };
    });
    const user = renewed && (await this.store.userById(renewed.userId));
    if (!user || user.disabled_at !== null) {
      await this.#endReused(tokenHash);
      await this.limit("refresh", source.ip, REFRESHES_PER_IP);
      fail("auth_required", "The refresh token is unknown, expired or was used before; log in again");
    }
    return this.#session(user, renewed);
  }

  /** A used token that comes back was copied: its session ends, access tokens and sockets included. */
  async #endReused(tokenHash: string): Promise<void> {
    const session = await this.store.sessionOfToken(tokenHash);
    if (session?.used_at) await this.endSessions(session.user_id, { only: session.family_id });
  }

  /** Ends the session that a refresh token belongs to; one that is unknown is over already. */
  async signOut(refreshToken: string, ip: string): Promise<void> {
    const session = await this.store.sessionOfToken(sha256Hex(refreshToken));
    if (session) await this.endSessions(session.user_id, { only: session.family_id });
    else await this.limit("refresh", ip, REFRESHES_PER_IP);
  }

  async startSession(user: UserRow, source: CallSource, approvedIn?: string): Promise<Session> {
    const { db, ids } = this.options;
    const sessionId = ids.uuid();
    const refreshToken = await db.transaction(async (tx) => {
      await this.giving.requireSession(tx, { userId: user.id, sessionId: approvedIn });
      // What was checked may have ended meanwhile, together with every session.
      if ((await this.store.userById(user.id, tx))?.password_hash !== user.password_hash)
        fail("auth_required", "The password of this account has just changed; log in again");
      return this.#issueRefreshToken(tx, { userId: user.id, sessionId }, source);
    });
    return this.#session(user, { sessionId, refreshToken });
  }

  async #issueRefreshToken(
    on: Parameters<AccountStore["insertRefreshToken"]>[0],
    { userId, sessionId }: TokenHolder,
    { ip, userAgent }: CallSource,
  ): Promise<string> {
    const { clock, ids } = this.options;
    const token = ids.secret(REFRESH_TOKEN_BYTES);
    const nowMs = clock.now();
    await this.store.insertRefreshToken(on, {
      token_hash: sha256Hex(token),
      family_id: sessionId,
      user_id: userId,
      ip,
      user_agent: userAgent,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + REFRESH_TOKEN_MS),
    });
    return token;
  }

  async #session(
    user: UserRow,
    { sessionId, refreshToken }: { sessionId: string; refreshToken: string },
  ): Promise<Session> {
    return {
      access_token: await this.#tokens.issue({ userId: user.id, sessionId }),
      refresh_token: refreshToken,
      token_type: "Bearer",
      expires_in: ACCESS_TOKEN_SECONDS,
      user: { id: user.id, email: user.email, name: user.name, is_admin: user.is_admin },
    };
  }

  /** Counts one attempt from an address or IPv6 /64: passwords before the check, other credentials only when wrong. */
  async limit(what: string, ip: string, limit: number): Promise<void> {
    const { counter } = this.options;
    const exceeded = await counter.hit([
      { key: `${what}:${networkOf(ip)}`, max: limit, windowMs: LOGIN_WINDOW_MS },
    ]);
    if (exceeded) {
      const retryAfterSeconds = Math.ceil(exceeded.waitMs / 1000);
      fail("rate_limited", `Too many attempts; try again in ${retryAfterSeconds} s`, { retryAfterSeconds });
    }
  }

  identify(bearer: string | null): Identity | Promise<Identity> {
    if (bearer === null) return NOBODY;
    const { adminToken } = this.options;
    // A token that was verified before needs no constant-time comparison with the admin token.
    const remembered = this.#tokens.remembered(bearer);
    const known = remembered === null ? undefined : this.#actors.get(remembered.userId);
    if (known && this.#isTrusted(known)) return identityOf(known, remembered!);
    if (adminToken !== null && constantTimeEqual(bearer, adminToken))
      return { actor: null, adminToken: true };
    return this.#identityOf(remembered, bearer);
  }

  async #identityOf(remembered: TokenHolder | null, bearer: string): Promise<Identity> {
    const holder = remembered ?? (await this.#tokens.verify(bearer));
    if (holder === "foreign") return GUESSER;
    if (holder === "expired") return NOBODY;
    const known = await this.#knownActor(holder.userId);
    return known ? identityOf(known, holder) : NOBODY;
  }

  #isTrusted({ readAtMs }: KnownActor): boolean {
    const ageMs = this.options.clock.now() - readAtMs;
    return ageMs >= 0 && ageMs <= ACTOR_TRUSTED_MS;
  }

  async isInForce(signedIn: SignedIn): Promise<boolean> {
    return isIn(await this.#read(signedIn.userId), signedIn);
  }

  async mayGoOn(signedIn: SignedIn): Promise<boolean> {
    const reading = this.#knownActor(signedIn.userId);
    return reading.then(
      (known) => isIn(known, signedIn),
      () => true,
    );
  }

  /** The account of this id, also a disabled one: for the rooms where people name each other. */
  async actor(userId: string): Promise<Actor | null> {
    return (await this.#knownActor(userId))?.actor ?? null;
  }

  async #knownActor(userId: string): Promise<KnownActor | null> {
    const known = this.#actors.get(userId);
    if (!known) return this.#read(userId);
    if (this.#isTrusted(known)) return known;
    // What the database does not deny stays in force: an outage of it must not end what goes on without it.
    const keep = () => {
      known.readAtMs = this.options.clock.now();
      return known;
    };
    const late = sleep(this.options.clock, REREAD_WITHIN_MS).then(keep);
    return Promise.race([this.#read(userId).catch(keep), late]);
  }

  async #read(userId: string): Promise<KnownActor | null> {
    const { clock } = this.options;
    const since = isoTime(clock.now() - ENDED_SESSION_KEPT_MS);
    const [user, ended] = await Promise.all([
      this.store.userById(userId),
      this.store.endedSessions(userId, since),
    ]);
    if (!user) {
      this.#actors.delete(userId);
      return null;
    }
    const known: KnownActor = {
      actor: { userId: user.id, email: user.email, name: user.name, isAdmin: user.is_admin },
      isDisabled: user.disabled_at !== null,
      endedSessions: new Set(ended),
      readAtMs: clock.now(),
    };
    this.#actors.set(userId, known);
    return known;
  }

  readonly sweepTokens: Sweep = (...step) =>
    deleteExpired(this.options.db, { table: "refresh_tokens", key: "token_hash" }, ...step);

  /** Removes what is remembered of ended sessions once none of their access tokens is valid any more. */
  readonly sweepSessions: Sweep = (nowMs, rowsMax) =>
    this.store.deleteEndedSessions(isoTime(nowMs - ENDED_SESSION_KEPT_MS), rowsMax);

  /** The account with this email, for the rooms where people name each other by it. */
  async actorByEmail(email: string): Promise<Actor | null> {
    const user = await this.store.userByEmail(email.trim().toLowerCase());
    return user && this.actor(user.id);
  }
}
