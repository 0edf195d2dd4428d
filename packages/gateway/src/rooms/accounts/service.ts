import { networkOf } from "@model-gateway/wire/server";
import type { z } from "zod";
import { BoundedMap, Gate } from "../../kernel/bounded.ts";
import { isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor, Authenticator, CallSource, Identity, SignedIn } from "../../kernel/context.ts";
import { fail, failParam } from "../../kernel/errors.ts";
import { constantTimeEqual, sha256Hex } from "../../kernel/ids.ts";
import { hmacSha256 } from "../../kernel/keyed-hash.ts";
import { PRINCIPAL_CHANGED, USER_CHANGED } from "../../kernel/topics.ts";
import { deleteExpired, type Sweep, type Transaction } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import { Giving, type SignUpSettings } from "./giving.ts";
import type { SessionResult } from "./methods.ts";
import { decoyHash, hashPassword } from "./password-hash.ts";
import { People } from "./people.ts";
import { AccountStore, type SessionRow, type UserRow } from "./store.ts";
import { ACCESS_TOKEN_SECONDS, AccessTokens, type TokenHolder } from "./tokens.ts";

const REFRESH_TOKEN_MS = 30 * 24 * 3600 * 1000;
const REFRESH_TOKEN_BYTES = 32;
const LOGIN_WINDOW_MS = 60_000;
const LOGINS_PER_ACCOUNT = 5;
const LOGINS_PER_IP = 20;
/** Higher than for logins: a whole office renews its sessions from one address. */
const REFRESHES_PER_IP = 120;
/** Rights are reread after this long, in case they were changed directly in the database. */
const ACTOR_TRUSTED_MS = 1_000;
/** A database that takes longer is treated as down. */
const REREAD_WITHIN_MS = 500;
/** Hashing is slow on purpose, so only this many run or wait at once. */
const HASHES_AT_ONCE = 2;
const HASHES_WAITING_MAX = 100;
/** Tier of the first account, whose owner also owns the machine. */
const OWNER_TIER = "enterprise";

export interface AccountsOptions extends Needs<"db" | "bus" | "counter" | "clock" | "ids" | "jwtSecret"> {
  adminToken: string | null;
  signUp: SignUpSettings;
  /** False: people sign in with the provider only. */
  passwordSignIn: boolean;
}

export interface NewAccount {
  email: string;
  name?: string;
  isAdmin?: boolean;
  tier?: string;
}

export interface InsertedAccount extends NewAccount {
  emailVerified: boolean;
  passwordHash: string;
}

export type Session = z.output<typeof SessionResult>;

interface KnownActor {
  actor: Actor;
  isDisabled: boolean;
  /** Ended sessions whose access tokens have not expired yet. */
  endedSessions: ReadonlySet<string>;
  readAtMs: number;
}

/** Twice the life of an access token, because instances' clocks differ. */
const ENDED_SESSION_KEPT_MS = 2 * ACCESS_TOKEN_SECONDS * 1000;

const NOBODY: Identity = { actor: null, adminToken: false };
const GUESSER: Identity = { ...NOBODY, isGuess: true };

const isIn = (known: KnownActor | null, { sessionId }: SignedIn): known is KnownActor =>
  known !== null && !known.isDisabled && !(sessionId && known.endedSessions.has(sessionId));

function identityOf(known: KnownActor | null, holder: TokenHolder): Identity {
  if (!isIn(known, holder)) return NOBODY;
  const { sessionId } = holder;
  return { actor: { ...known.actor, sessionId }, adminToken: false, sessionId };
}

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
  /** The token in the setup link that the start prints. Equal on all instances, and valid for the first account only. */
  readonly setupToken: string;
  /** Used when the account does not exist, so that both refusals take equally long. */
  readonly #decoyHash = decoyHash();

  constructor(readonly options: AccountsOptions) {
    this.store = new AccountStore(options.db);
    this.giving = new Giving({ ...options, store: this.store });
    this.people = new People({ ...options, store: this.store, accounts: this });
    this.#tokens = new AccessTokens(options);
    this.setupToken = hmacSha256(options.jwtSecret, "setup link").toString("base64url");
    options.bus.onGap(() => this.#actors.clear());
    options.bus.subscribe(USER_CHANGED, (userId) => this.#actors.delete(userId));
  }

  async register(
    account: { email: string; password: string; name?: string; setupToken?: string },
    source: CallSource,
  ): Promise<Session> {
    await this.limit("register", source.ip, LOGINS_PER_IP);
    const requireOpen = (first: boolean) => {
      if (!(this.options.signUp.registrationOpen ?? first))
        fail(
          "app_error",
          "Registration is closed; ask an administrator, who can invite you or open it under Settings",
        );
      if (first) this.refuseFirstUnless(account.setupToken, source);
    };
    requireOpen(await this.hasNobody());
    const passwordHash = await this.hash(account.password);
    const user = await this.store.registering(async (tx, first) => {
      requireOpen(first);
      // The first account is the administrator's, so its email counts as verified.
      return this.insert(tx, { ...account, passwordHash, isAdmin: first, emailVerified: first });
    });
    return this.startSession(user, source);
  }

  /** The first account becomes administrator, so it needs a local connection or the setup link. */
  refuseFirstUnless(setupToken: string | undefined, source: CallSource): void {
    if (setupToken !== undefined && constantTimeEqual(setupToken, this.setupToken)) return;
    if (!source.isLocal)
      fail(
        "forbidden",
        "The first account administers the service, so it needs the setup link: open the one that the service printed when it started",
      );
  }

  /** Ends every way into an account before it is linked to a provider's identity. */
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

  /** Whether this source needs the setup link to create the first account. */
  async needsSetupLink(source: CallSource): Promise<boolean> {
    return !source.isLocal && (await this.hasNobody());
  }

  async hasNobody(): Promise<boolean> {
    return !(await this.store.anyUser());
  }

  async registrationIsOpen(): Promise<boolean> {
    return this.options.signUp.registrationOpen ?? (await this.hasNobody());
  }

  async login({ email, password }: { email: string; password: string }, source: CallSource) {
    this.#requirePasswords();
    await this.limit("login", source.ip, LOGINS_PER_IP);
    await this.limit(`login:${email}`, source.ip, LOGINS_PER_ACCOUNT);
    const user = await this.store.userByEmail(email);
    const matches = await this.#matches(user, password);
    if (!user || !matches) fail("auth_required", "Email or password is wrong");
    return this.startSession(user, source);
  }

  /** Signs in someone who was authenticated by the sign-in provider or by another session of theirs. */
  async startSessionOf({ userId, sessionId }: SignedIn, source: CallSource): Promise<Session> {
    const user = await this.store.userById(userId);
    if (!user) fail("auth_required", "This account no longer exists");
    return this.startSession(user, source, sessionId);
  }

  /** After a reset an account has no password until its link is used. */
  async #matches(user: UserRow | null, password: string): Promise<boolean> {
    const hash = user?.password_hash || this.#decoyHash;
    return this.#hashing.run(() => Bun.password.verify(password, hash));
  }

  async changePassword(
    { userId, sessionId }: SignedIn,
    { current, next, ip }: { current: string; next: string; ip: string },
  ): Promise<void> {
    await this.limit(`password:${userId}`, ip, LOGINS_PER_ACCOUNT);
    const refuse = () => failParam("current_password", "is not your password");
    const user = (await this.store.userById(userId)) ?? refuse();
    if (!(await this.#matches(user, current))) refuse();
    if (next === current) failParam("new_password", "is your password already");
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

  /** Ends one session, or all but `except`; their access tokens stop working at once. */
  async endSessions(userId: string, which: { only?: string; except?: string }): Promise<number> {
    const ending = { userId, ...which, now: isoTime(this.options.clock.now()) };
    const count = await this.options.db.transaction((tx) => this.store.endSessions(tx, ending));
    this.changed(userId);
    return count;
  }

  /** Makes every instance reread the account and its keys. */
  changed(userId: string): void {
    this.options.bus.publish(USER_CHANGED, userId);
    this.options.bus.publish(PRINCIPAL_CHANGED, userId);
  }

  async refresh(refreshToken: string, source: CallSource): Promise<Session> {
    const { clock, db } = this.options;
    const tokenHash = sha256Hex(refreshToken);
    const issued = await db.transaction(async (tx) => {
      const used = await this.store.useRefreshToken(tx, tokenHash, isoTime(clock.now()));
      const user = used && (await this.store.userById(used.user_id, tx));
      if (user?.disabled_at !== null) return null;
      return this.#issueRefreshToken(tx, { user, sessionId: used!.family_id }, source);
    });
    if (issued) return this.#session(issued);
    // A used refresh token was copied: ends its session, including access tokens and sockets.
    const session = await this.store.sessionOfToken(tokenHash);
    if (session?.used_at) await this.endSessions(session.user_id, { only: session.family_id });
    await this.limit("refresh", source.ip, REFRESHES_PER_IP);
    fail("auth_required", "The refresh token is unknown, expired or was used before; log in again");
  }

  /** Ends the session of a refresh token; does nothing if the token is unknown. */
  async signOut(refreshToken: string, ip: string): Promise<void> {
    const session = await this.store.sessionOfToken(sha256Hex(refreshToken));
    if (session) await this.endSessions(session.user_id, { only: session.family_id });
    else await this.limit("refresh", ip, REFRESHES_PER_IP);
  }

  async startSession(user: UserRow, source: CallSource, approvedIn?: string): Promise<Session> {
    if (user.disabled_at !== null)
      fail("auth_required", "This account is disabled; ask an administrator to enable it");
    const { db, ids } = this.options;
    const issued = await db.transaction(async (tx) => {
      await this.giving.requireSession(tx, { userId: user.id, sessionId: approvedIn });
      // The password may have changed since it was checked, which ended all sessions.
      if ((await this.store.userById(user.id, tx))?.password_hash !== user.password_hash)
        fail("auth_required", "The password of this account has just changed; log in again");
      return this.#issueRefreshToken(tx, { user, sessionId: ids.uuid() }, source);
    });
    return this.#session(issued);
  }

  async #issueRefreshToken(
    tx: Transaction,
    { user, sessionId }: { user: UserRow; sessionId: string },
    { ip, userAgent }: CallSource,
  ) {
    const { clock, ids } = this.options;
    const refreshToken = ids.secret(REFRESH_TOKEN_BYTES);
    const nowMs = clock.now();
    await this.store.insertRefreshToken(tx, {
      token_hash: sha256Hex(refreshToken),
      family_id: sessionId,
      user_id: user.id,
      ip,
      user_agent: userAgent,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + REFRESH_TOKEN_MS),
    });
    return { user, sessionId, refreshToken };
  }

  async #session(issued: { user: UserRow; sessionId: string; refreshToken: string }): Promise<Session> {
    const { user, sessionId, refreshToken } = issued;
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
    const attempts = { key: `${what}:${networkOf(ip)}`, max: limit, windowMs: LOGIN_WINDOW_MS };
    const exceeded = await this.options.counter.hit([attempts]);
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
    return identityOf(await this.#knownActor(holder.userId), holder);
  }

  #isTrusted({ readAtMs }: KnownActor): boolean {
    const ageMs = this.options.clock.now() - readAtMs;
    return ageMs >= 0 && ageMs <= ACTOR_TRUSTED_MS;
  }

  async isInForce(signedIn: SignedIn): Promise<boolean> {
    return isIn(await this.#read(signedIn.userId), signedIn);
  }

  async mayGoOn(signedIn: SignedIn): Promise<boolean> {
    const known = this.#knownActor(signedIn.userId);
    return known.then((read) => isIn(read, signedIn)).catch(() => true);
  }

  /** The account with this id, including a disabled one; for rooms in which people refer to each other. */
  async actor(userId: string): Promise<Actor | null> {
    return (await this.#knownActor(userId))?.actor ?? null;
  }

  async #knownActor(userId: string): Promise<KnownActor | null> {
    const known = this.#actors.get(userId);
    if (!known) return this.#read(userId);
    if (this.#isTrusted(known)) return known;
    // If the database is down, rights stay as they were: its outage must not end running work.
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

  /** Removes ended sessions once all their access tokens have expired. */
  readonly sweepSessions: Sweep = (nowMs, rowsMax) =>
    this.store.deleteEndedSessions(isoTime(nowMs - ENDED_SESSION_KEPT_MS), rowsMax);

  /** The account with this email, for rooms in which people refer to each other. */
  async actorByEmail(email: string): Promise<Actor | null> {
    const user = await this.store.userByEmail(email.trim().toLowerCase());
    return user && this.actor(user.id);
  }
}
