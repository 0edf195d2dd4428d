import * as oauth from "oauth4webapi";
import { z } from "zod";
import { basePathOf } from "../../kernel/base-path.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual } from "../../kernel/ids.ts";
import { deleteExpired, type Sweep, type Transaction } from "../../storage/contract.ts";
import type { Accounts, Session, UserRow } from "../accounts/index.ts";
import type { Needs } from "../foundation.ts";
import { type Groups, isGroupInvitation } from "../groups/index.ts";
import {
  type ClaimRule,
  type Claims,
  emailOf,
  hasRight,
  isEmailVerified,
  nameOf,
  valuesOf,
} from "./claims.ts";
import { OidcProvider, type Person, type ProviderOptions } from "./provider.ts";
import { Sealed } from "./sealed.ts";
import { type IdentityRow, IdentityStore } from "./store.ts";

export const ATTEMPT_SECONDS = 600;

const Attempt = z.object({
  id: z.string(),
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
  /** Links the provider's account to this one instead of signing in. */
  linksTo: z.string().optional(),
  setupToken: z.string().optional(),
  /** An invitation to the service or to a group, which lets a newcomer in. */
  invitation: z.string().optional(),
});

/** One sign-in, encrypted in a cookie of the browser that began it. */
export type Attempt = z.infer<typeof Attempt>;

const TRIES_PER_IP = 20;
/** Short, because the browser passes the code on at once. */
const CLI_CODE_SECONDS = 60;
const IDENTITIES_MAX = 10;
const RETURN_LENGTH_MAX = 1_000;
/** The console's page that the provider sends people back to. */
export const CALLBACK_PATH = "/signed-in";

export interface SsoSettings
  extends Pick<ProviderOptions, "issuer" | "clientId" | "clientSecret" | "scopes"> {
  publicUrl: string;
  label: string;
  /** The claim that makes administrators; null: administrators are made here. */
  admin: ClaimRule | null;
  groupsClaim: string | null;
  /** Empty: any. */
  emailDomains: readonly string[];
  registers: boolean;
  /** Existing accounts are linked by verified email. */
  linksByEmail: boolean;
  /** The provider's emails count as verified even without the claim. */
  trustsEmail: boolean;
}

interface SsoOptions
  extends Pick<ProviderOptions, "clock" | "log" | "fetch">,
    Needs<"db" | "ids" | "jwtSecret"> {
  settings: SsoSettings | null;
  accounts: Accounts;
  groups: Groups;
}

interface FoundAccount {
  userId: string;
  isTakenOver?: boolean;
  joinedGroup?: string;
}

/** Sign-in by an OpenID Connect provider. Accounts are bound to the provider's subject, never to an address. */
export class Sso {
  readonly #store: IdentityStore;
  readonly #attempts: Sealed<Attempt>;
  readonly cli: CliSignIns;
  readonly #enabled?: { settings: SsoSettings; provider: OidcProvider };

  constructor(readonly options: SsoOptions) {
    const { db, settings } = options;
    this.#store = new IdentityStore(db);
    const sealing = { schema: Attempt, purpose: "sign-in attempts", seconds: ATTEMPT_SECONDS };
    this.#attempts = new Sealed({ ...options, ...sealing });
    this.cli = new CliSignIns({ ...options, store: this.#store });
    if (!settings) return;
    const redirectUri = callbackUrl(settings.publicUrl);
    this.#enabled = { settings, provider: new OidcProvider({ ...options, ...settings, redirectUri }) };
  }

  get label(): string | null {
    return this.options.settings?.label ?? null;
  }

  get publicUrl(): string | null {
    return this.options.settings?.publicUrl ?? null;
  }

  async begin(
    { returnTo, ...asked }: Partial<Pick<Attempt, "returnTo" | "linksTo" | "setupToken" | "invitation">>,
    { ip }: CallSource,
  ): Promise<{ url: string; sealed: string }> {
    const { provider, settings } = this.#configured();
    await this.options.accounts.limit("oidc", ip, TRIES_PER_IP);
    const attempt: Attempt = {
      id: this.options.ids.uuid(),
      state: oauth.generateRandomState(),
      nonce: oauth.generateRandomNonce(),
      verifier: oauth.generateRandomCodeVerifier(),
      returnTo: pathWithin(settings.publicUrl, returnTo),
      ...asked,
    };
    return { url: await provider.authorizationUrl(attempt), sealed: await this.#attempts.seal(attempt) };
  }

  async finish(
    { query, sealed, bearer }: { query: string; sealed: string | null; bearer: string | null },
    source: CallSource,
  ): Promise<{ session: Session | null; returnTo: string }> {
    const { provider, settings } = this.#configured();
    const { admin, groupsClaim } = settings;
    const { accounts, groups, clock } = this.options;
    const attempt = await this.#attempts.open(sealed);
    if (!attempt) {
      await accounts.limit("oidc-finish", source.ip, TRIES_PER_IP);
      refuseAttempt();
    }
    const owner = attempt.linksTo === undefined ? null : await this.#signedIn(attempt.linksTo, bearer);
    const accepted = await provider.accepted(new URLSearchParams(query), attempt);
    const expiresAt = isoTime(clock.now() + 2 * ATTEMPT_SECONDS * 1000);
    if (!(await this.#store.use(attempt.id, expiresAt))) refuseAttempt();
    const person = await provider.redeem(accepted, attempt);
    if (owner) {
      await this.#link(person, owner);
      return { session: null, returnTo: attempt.returnTo };
    }
    const { userId, isTakenOver, joinedGroup } = await this.#accountOf(person, attempt, source);
    if (isTakenOver) accounts.changed(userId);
    if (admin) await accounts.people.followProvider(userId, hasRight(person.claims, admin));
    if (groupsClaim !== null)
      await groups.members.followProvider(userId, valuesOf(person.claims, groupsClaim));
    const session = await accounts.startSessionOf({ userId }, source);
    return { session, returnTo: joinedGroup ? `/groups/${joinedGroup}` : attempt.returnTo };
  }

  /** Linking gives permanent access, so the session that began it must not have ended. */
  async #signedIn(userId: string, bearer: string | null): Promise<Actor> {
    const { actor } = await this.options.accounts.identify(bearer);
    if (actor?.userId === userId) return actor;
    return fail(
      "auth_required",
      "You are no longer signed in to the account that was to be linked; sign in again",
    );
  }

  async #link(person: Person, owner: Actor): Promise<void> {
    const { db, accounts } = this.options;
    const { userId } = owner;
    await db.transaction(async (tx) => {
      await tx.lock("registration");
      await accounts.giving.requireSession(tx, owner);
      const known = await this.#store.identity(tx, person.issuer, person.subject);
      if (known && known.user_id !== userId)
        fail("conflict", "This sign-in belongs to another account here; unlink it there first");
      if (known) return;
      if ((await this.#store.of(tx, userId)).length >= IDENTITIES_MAX)
        fail("app_error", `An account has at most ${IDENTITIES_MAX} linked sign-ins; unlink one first`);
      await this.#insert(tx, person, userId);
    });
  }

  /** The person's account; created or linked first if the settings allow it. */
  #accountOf(person: Person, attempt: Attempt, source: CallSource): Promise<FoundAccount> {
    const { accounts, clock } = this.options;
    const { claims } = person;
    return accounts.store.registering(async (tx, first) => {
      const known = await this.#store.identity(tx, person.issuer, person.subject);
      if (known) {
        const used = { email: emailOf(claims), last_used_at: isoTime(clock.now()) };
        await this.#store.touch(tx, known.id, used);
        return { userId: known.user_id };
      }
      const email = this.#trustedEmail(claims);
      const existing = await accounts.store.userByEmail(email, tx);
      if (existing) {
        await this.#takeOver(tx, person, existing);
        return { userId: existing.id, isTakenOver: true };
      }
      if (first && !this.#configured().settings.admin) accounts.refuseFirstUnless(attempt.setupToken, source);
      const made = await this.#register(tx, { claims, email, first }, attempt.invitation);
      await this.#insert(tx, person, made.userId);
      return made;
    });
  }

  /** Binds the account with the person's email to the person, and removes all other ways to sign in to it. */
  async #takeOver(tx: Transaction, person: Person, { id, email_verified, disabled_at }: UserRow) {
    const { linksByEmail } = this.#configured().settings;
    const wayOut = "Sign in to it and link this sign-in under Settings, or ask an administrator";
    if (!linksByEmail) fail("conflict", `An account with your address exists already. ${wayOut}`);
    if (!email_verified)
      fail(
        "conflict",
        `An account with your address exists already, and nobody has confirmed that it is yours. ${wayOut} to confirm the address under Users`,
      );
    if (disabled_at !== null)
      fail("auth_required", "This account is disabled; ask an administrator to enable it");
    const identities = await this.#store.of(tx, id);
    if (identities.some(({ issuer }) => issuer === person.issuer))
      fail(
        "conflict",
        "The account with your address belongs to another person at the sign-in provider; ask an administrator",
      );
    for (const identity of identities) await this.#store.remove(tx, identity.id);
    await this.options.accounts.takeOver(tx, id);
    await this.#insert(tx, person, id);
  }

  /** Creates an account, and uses up the person's invitation. */
  async #register(
    tx: Transaction,
    { claims, email, first }: { claims: Claims; email: string; first: boolean },
    invitation: string | undefined,
  ): Promise<FoundAccount> {
    const { accounts, groups } = this.options;
    const { registers, admin } = this.#configured().settings;
    if (!registers && invitation === undefined)
      fail(
        "forbidden",
        "You have no account here; ask an administrator for an invitation and sign in from its page",
      );
    const account = {
      email,
      name: nameOf(claims),
      ...((admin || first) && { isAdmin: admin ? hasRight(claims, admin) : first }),
    };
    if (invitation !== undefined && !isGroupInvitation(invitation))
      return { userId: (await accounts.people.takeInvitation(tx, invitation, account)).id };
    const user = await accounts.insert(tx, { ...account, emailVerified: true, passwordHash: "" });
    if (invitation === undefined) return { userId: user.id };
    const joining = { token: invitation, user, registers: !registers };
    return { userId: user.id, joinedGroup: await groups.invitations.joinNewcomer(tx, joining) };
  }

  /** The email for a new account: verified, because people are invited and found by it. */
  #trustedEmail(claims: Claims): string {
    const { trustsEmail, emailDomains } = this.#configured().settings;
    const email =
      emailOf(claims) ??
      fail("forbidden", "The sign-in provider gave no email address; the scope `email` may be missing");
    if (!trustsEmail && !isEmailVerified(claims))
      fail(
        "forbidden",
        "The sign-in provider has not verified your email address; verify it there and try again",
      );
    const domain = email.slice(email.lastIndexOf("@") + 1);
    if (emailDomains.length > 0 && !emailDomains.includes(domain))
      fail("forbidden", `Addresses at ${domain} may not sign in here; use one of ${emailDomains.join(", ")}`);
    return email;
  }

  #insert(tx: Transaction, { issuer, subject, claims }: Person, userId: string): Promise<void> {
    const { ids, clock } = this.options;
    const now = isoTime(clock.now());
    return this.#store.insert(tx, {
      id: ids.uuid(),
      issuer,
      subject,
      user_id: userId,
      email: emailOf(claims),
      created_at: now,
      last_used_at: now,
    });
  }

  identities({ userId }: Actor): Promise<IdentityRow[]> {
    return this.#store.of(this.options.db, userId);
  }

  async unlink({ userId }: Actor, id: string): Promise<void> {
    const { db, accounts } = this.options;
    await db.transaction(async (tx) => {
      // Two calls at once must not remove the last way to sign in.
      await tx.lock("registration");
      const identities = await this.#store.of(tx, userId);
      if (!identities.some((identity) => identity.id === id))
        fail(
          "not_found",
          "`identity_id`: no linked sign-in of yours has this id; auth.identities.list shows them",
        );
      if (identities.length === 1 && !(await accounts.store.userById(userId, tx))?.password_hash)
        fail(
          "forbidden",
          "This is the only way into your account; ask an administrator for a password link first",
        );
      await this.#store.remove(tx, id);
    });
  }

  #configured() {
    return (
      this.#enabled ?? fail("not_found", "This service has no sign-in provider; SERVICE_OIDC_ISSUER sets one")
    );
  }

  readonly sweepUsed: Sweep = (...step) =>
    deleteExpired(this.options.db, { table: "used_sign_ins" }, ...step);
}

export const callbackUrl = (publicUrl: string): string =>
  `${new URL(publicUrl).origin}${basePathOf(publicUrl)}${CALLBACK_PATH}`;

/** A path of this service; anything else, such as `//evil.example`, becomes the start page. */
function pathWithin(publicUrl: string, path: string | undefined): string {
  const { origin } = new URL(publicUrl);
  if (path === undefined || path.length > RETURN_LENGTH_MAX || !path.startsWith("/")) return "/";
  const url = URL.canParse(path, origin) ? new URL(path, origin) : null;
  if (url?.origin !== origin || url.pathname.startsWith("//") || url.pathname === CALLBACK_PATH) return "/";
  return `${url.pathname}${url.search}${url.hash}`;
}

function refuseAttempt(): never {
  fail(
    "forbidden",
    "This sign-in was not begun in this browser, took too long, or was used before; sign in again",
  );
}

const CliGrant = z.object({
  id: z.string(),
  userId: z.string(),
  /** The browser's session; its approval ends with it. */
  sessionId: z.string().optional(),
  challenge: z.string(),
});
type CliGrant = z.infer<typeof CliGrant>;

/** Signs the command line in through the browser, with a code that works once and only with its verifier. */
class CliSignIns {
  readonly #grants: Sealed<CliGrant>;

  constructor(readonly options: SsoOptions & { store: IdentityStore }) {
    this.#grants = new Sealed({
      ...options,
      schema: CliGrant,
      purpose: "cli sign-ins",
      seconds: CLI_CODE_SECONDS,
    });
  }

  approve({ userId }: Actor, sessionId: string | undefined, challenge: string): Promise<string> {
    return this.#grants.seal({ id: this.options.ids.uuid(), userId, sessionId, challenge });
  }

  async redeem({ code, verifier }: { code: string; verifier: string }, source: CallSource): Promise<Session> {
    const { accounts, store, clock } = this.options;
    const grant = await this.#grants.open(code);
    // Check the verifier first, so that someone without it cannot use up a stolen code.
    if (!grant || !constantTimeEqual(await oauth.calculatePKCECodeChallenge(verifier), grant.challenge)) {
      await accounts.limit("cli", source.ip, TRIES_PER_IP);
      refuseCode();
    }
    if (!(await store.use(grant.id, isoTime(clock.now() + 2 * CLI_CODE_SECONDS * 1000)))) refuseCode();
    return accounts.startSessionOf(grant, source);
  }
}

function refuseCode(): never {
  fail("auth_required", "This sign-in took too long, was used before, or was begun elsewhere; log in again");
}
