import type { Bus, RateLimiter } from "../../bus/contract.ts";
import { BoundedMap, Gate } from "../../kernel/bounded.ts";
import { type Clock, isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor, Authenticator, Identity } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual, type Ids, sha256Hex } from "../../kernel/ids.ts";
import { USER_CHANGED } from "../../kernel/topics.ts";
import type { Database, Sweep } from "../../storage/contract.ts";
import { AccountStore, type UserRow } from "./store.ts";
import { ACCESS_TOKEN_SECONDS, type AccessTokens, createAccessTokens } from "./tokens.ts";

const REFRESH_TOKEN_MS = 30 * 24 * 3600 * 1000;
const REFRESH_TOKEN_BYTES = 32;
const LOGIN_WINDOW_MS = 60_000;
const LOGINS_PER_ACCOUNT = 5;
const LOGINS_PER_IP = 20;
const ACTORS_MAX = 10_000;
/** Rights can be changed directly in the database, without a notification, so they are read again after this. */
const ACTOR_TRUSTED_MS = 1_000;
/** A database that takes longer is treated as down. */
const REREAD_WITHIN_MS = 500;
/** OWASP's argon2id figures: 19 MiB and two passes. */
const PASSWORD_HASH = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Hashing is slow on purpose; only so many run or wait at once. */
const HASHES_AT_ONCE = 2;
const HASHES_WAITING_MAX = 100;

export interface AccountsOptions {
  db: Database;
  bus: Bus;
  limiter: RateLimiter;
  clock: Clock;
  ids: Ids;
  jwtSecret: Uint8Array;
  adminToken: string | null;
  /** True: open; false: closed; null: open until the first user exists. */
  registrationOpen: boolean | null;
}

export interface Session {
  access_token: string;
  refresh_token: string;
  token_type: "Bearer";
  expires_in: number;
  user: { id: string; email: string; name: string; is_admin: boolean };
}

interface KnownActor {
  actor: Actor;
  readAtMs: number;
}

const NOBODY: Identity = { actor: null, adminToken: false };

export class Accounts implements Authenticator {
  readonly #store: AccountStore;
  readonly #tokens: AccessTokens;
  readonly #actors = new BoundedMap<string, KnownActor>(ACTORS_MAX);
  readonly #hashing = new Gate(HASHES_AT_ONCE, HASHES_WAITING_MAX, () =>
    fail("rate_limited", "Too many sign-ins are being checked right now; try again shortly", {
      retryAfterSeconds: 2,
    }),
  );
  /** Verified against when the account does not exist, so that both refusals take the same time. */
  readonly #decoyHash: Promise<string>;

  constructor(readonly options: AccountsOptions) {
    this.#store = new AccountStore(options.db);
    this.#tokens = createAccessTokens({ secret: options.jwtSecret, clock: options.clock, ids: options.ids });
    this.#decoyHash = Bun.password.hash(options.ids.secret(16), PASSWORD_HASH);
    options.bus.onGap(() => this.#actors.clear());
    options.bus.subscribe(USER_CHANGED, (userId) => this.#actors.delete(userId));
  }

  async register(
    { email, password, name }: { email: string; password: string; name?: string },
    ip: string,
  ): Promise<Session> {
    await this.#limit(`register:${ip}`, LOGINS_PER_IP);
    if (!(await this.registrationIsOpen())) this.#refuseRegistration();
    const passwordHash = await this.#hashing.run(() => Bun.password.hash(password, PASSWORD_HASH));
    const { ids, clock, registrationOpen } = this.options;
    const user = await this.#store.registering(async (tx) => {
      const first = !(await this.#store.anyUser(tx));
      if (!(registrationOpen ?? first)) this.#refuseRegistration();
      const row: UserRow = {
        id: ids.uuid(),
        email,
        name: name ?? email.split("@")[0]!,
        password_hash: passwordHash,
        is_admin: first,
      };
      if (!(await this.#store.insertUser(tx, { ...row, created_at: isoTime(clock.now()) }))) {
        fail("conflict", "An account with this email exists already; log in instead");
      }
      return row;
    });
    return this.#startSession(user);
  }

  /** Whether `auth.register` would be accepted now. */
  async registrationIsOpen(): Promise<boolean> {
    return this.options.registrationOpen ?? !(await this.#store.anyUser());
  }

  #refuseRegistration(): never {
    fail(
      "app_error",
      "Registration is closed; ask an administrator, who can open it with SERVICE_REGISTRATION_OPEN=true",
    );
  }

  async login({ email, password }: { email: string; password: string }, ip: string): Promise<Session> {
    await this.#limit(`login:${ip}`, LOGINS_PER_IP);
    await this.#limit(`login:${ip}:${email}`, LOGINS_PER_ACCOUNT);
    const user = await this.#store.userByEmail(email);
    const hash = user?.password_hash ?? (await this.#decoyHash);
    const matches = await this.#hashing.run(() => Bun.password.verify(password, hash));
    if (!user || !matches) fail("auth_required", "Wrong email or password");
    return this.#startSession(user);
  }

  async refresh(refreshToken: string): Promise<Session> {
    const { clock, db } = this.options;
    const tokenHash = sha256Hex(refreshToken);
    const renewed = await db.transaction(async (tx) => {
      const used = await this.#store.useRefreshToken(tx, tokenHash, isoTime(clock.now()));
      return (
        used && {
          userId: used.user_id,
          refreshToken: await this.#issueRefreshToken(tx, used.user_id, used.family_id),
        }
      );
    });
    const user = renewed && (await this.#store.userById(renewed.userId));
    if (!user) {
      await this.#store.revokeFamilyOf(tokenHash);
      fail("auth_required", "The refresh token is unknown, expired or was used before; log in again");
    }
    return this.#session(user, renewed.refreshToken);
  }

  async #startSession(user: UserRow): Promise<Session> {
    const { db, ids } = this.options;
    return this.#session(user, await this.#issueRefreshToken(db, user.id, ids.uuid()));
  }

  async #issueRefreshToken(
    on: Parameters<AccountStore["insertRefreshToken"]>[0],
    userId: string,
    familyId: string,
  ): Promise<string> {
    const { clock, ids } = this.options;
    const token = ids.secret(REFRESH_TOKEN_BYTES);
    const nowMs = clock.now();
    await this.#store.insertRefreshToken(on, {
      token_hash: sha256Hex(token),
      family_id: familyId,
      user_id: userId,
      created_at: isoTime(nowMs),
      expires_at: isoTime(nowMs + REFRESH_TOKEN_MS),
    });
    return token;
  }

  async #session(user: UserRow, refreshToken: string): Promise<Session> {
    return {
      access_token: await this.#tokens.issue(user.id),
      refresh_token: refreshToken,
      token_type: "Bearer",
      expires_in: ACCESS_TOKEN_SECONDS,
      user: { id: user.id, email: user.email, name: user.name, is_admin: user.is_admin },
    };
  }

  async #limit(key: string, limit: number): Promise<void> {
    const waitMs = await this.options.limiter.hit(key, limit, LOGIN_WINDOW_MS);
    if (waitMs > 0) {
      const retryAfterSeconds = Math.ceil(waitMs / 1000);
      fail("rate_limited", `Too many attempts; try again in ${retryAfterSeconds} s`, { retryAfterSeconds });
    }
  }

  identify(bearer: string | null): Identity | Promise<Identity> {
    if (bearer === null) return NOBODY;
    const { adminToken } = this.options;
    // A token that was verified before needs no constant-time comparison with the admin token.
    const remembered = this.#tokens.remembered(bearer);
    const known = remembered === null ? undefined : this.#actors.get(remembered);
    if (known && this.#isTrusted(known)) return { actor: known.actor, adminToken: false };
    if (adminToken !== null && constantTimeEqual(bearer, adminToken))
      return { actor: null, adminToken: true };
    return this.#identityOf(this.#tokens.verify(bearer));
  }

  async #identityOf(verifying: string | null | Promise<string | null>): Promise<Identity> {
    const userId = await verifying;
    return { actor: userId === null ? null : await this.actor(userId), adminToken: false };
  }

  #isTrusted({ readAtMs }: KnownActor): boolean {
    const ageMs = this.options.clock.now() - readAtMs;
    return ageMs >= 0 && ageMs <= ACTOR_TRUSTED_MS;
  }

  async actor(userId: string): Promise<Actor | null> {
    const known = this.#actors.get(userId);
    if (!known) return this.#read(userId);
    if (this.#isTrusted(known)) return known.actor;
    // Rights stay in force unless the database denies them: its outage must not sign people out.
    const keep = () => {
      known.readAtMs = this.options.clock.now();
      return known.actor;
    };
    const late = sleep(this.options.clock, REREAD_WITHIN_MS).then(keep);
    return Promise.race([this.#read(userId).catch(keep), late]);
  }

  async #read(userId: string): Promise<Actor | null> {
    const user = await this.#store.userById(userId);
    if (!user) {
      this.#actors.delete(userId);
      return null;
    }
    const actor: Actor = { userId: user.id, email: user.email, name: user.name, isAdmin: user.is_admin };
    this.#actors.set(userId, { actor, readAtMs: this.options.clock.now() });
    return actor;
  }

  /** Removes expired refresh tokens. */
  readonly sweepTokens: Sweep = (nowMs, rowsMax) => this.#store.deleteExpiredTokens(isoTime(nowMs), rowsMax);

  /** The account with this email, for the rooms where people name each other by it. */
  async actorByEmail(email: string): Promise<Actor | null> {
    const user = await this.#store.userByEmail(email.trim().toLowerCase());
    return user && this.actor(user.id);
  }
}
