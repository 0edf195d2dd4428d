import { BoundedMap } from "../../kernel/bounded.ts";
import { isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor, SignedIn } from "../../kernel/context.ts";
import { fail, failParam, KeyRefusal, type ServiceError } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { type KeyLimits, MULTIPLIER_ONE, type Payer } from "../../kernel/payer.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Transaction } from "../../storage/contract.ts";
import type { Accounts } from "../accounts/index.ts";
import type { Needs } from "../foundation.ts";
import type { Groups, ModelRules } from "../groups/index.ts";
import { NANO_PER_USD, type Usage, utcMonth } from "../usage/index.ts";
import {
  allowedModelsOf,
  changedLimits,
  type GivenLimits,
  keyLimitsOf,
  limitsView,
  type ModelTerms,
} from "./limits.ts";
import { KeyRefusals } from "./refusals.ts";
import { type KeyChanges, type KeyRow, KeyStore, type ListedKey, type PrincipalRow } from "./store.ts";

const DAY_MS = 86_400_000;
const DEFAULT_PROJECT = "default";
const KEY_PREFIX = "service-";
const ATTRIBUTION_LENGTH = 8;
const ACTIVE_KEYS_MAX = 500;
/** Unknown keys are cached for this long, so that guessing costs no queries. */
const UNKNOWN_KEPT_MS = 5_000;
/** While the bus is down, principals older than this are reread. */
const UNHEARD_TRUSTED_MS = 1_000;
/** If the database does not answer within this time, a known principal stays valid. */
const REREAD_WITHIN_MS = 500;
const UNAVAILABLE_RETRY_SECONDS = 5;
const KEY_NOT_FOUND = "Key not found; keys.list shows the ids of your keys";

/** The prefix under which usage rows show a key; null if the text does not look like a key. */
export function prefixOf(secret: string): string | null {
  const prefix = secret.slice(KEY_PREFIX.length, KEY_PREFIX.length + ATTRIBUTION_LENGTH);
  return secret.startsWith(KEY_PREFIX) && prefix.length === ATTRIBUTION_LENGTH ? prefix : null;
}

/** The group's terms for a key's requests, including the member's multiplier. */
export interface GroupTerms extends ModelRules {
  id: string;
  multiplierMicros: number;
  /** Requests per minute for all keys of the group together; null: no ceiling. */
  rpmCeiling: number | null;
}

/** The owner of what a key makes. A key with limits or models of its own only sees what it made itself. */
export const ownerOf = (key: Pick<Principal, "userId" | "keyId" | "limits" | "models">) => ({
  userId: key.userId,
  keyId: key.limits === null && key.models === null ? null : key.keyId,
});

/** Everything that a request needs to know about its key; cached until it changes. */
export interface Principal extends ModelTerms {
  keyId: string;
  /** First 8 characters of the key's uuid; what usage rows show. */
  keyPrefix: string;
  project: string;
  userId: string;
  tier: string;
  /** Set for a group key: the pool pays, and the group's rules apply. */
  group: GroupTerms | null;
  /** When the key expires; `Infinity`: never. */
  expiresAtMs: number;
  limits: KeyLimits | null;
  /** Until when its prompts and answers are captured; 0: not at all. */
  captureUntilMs: number;
}

interface Cached {
  principal: Principal;
  /** False once a change may have been missed. */
  isConfirmed: boolean;
  askedAtMs: number;
}

export interface KeysOptions extends Needs<"db" | "bus" | "clock" | "ids" | "log"> {
  accounts: Pick<Accounts, "giving">;
  groups: Pick<Groups, "requireMember" | "modelSets">;
  usage: Pick<Usage, "settled">;
}

export class Keys {
  readonly #store: KeyStore;
  readonly #refusals: KeyRefusals;
  readonly #principals = new BoundedMap<string, Cached>();
  readonly #unknown = new BoundedMap<string, number>();
  /** Reads in progress, shared by concurrent callers. Bounded by the number of requests. */
  readonly #loading = new Map<string, Promise<Principal | null>>();
  /** Counts changes, so that a value read before a change is not cached after it. */
  #changes = 0;

  constructor(readonly options: KeysOptions) {
    this.#store = new KeyStore(options.db);
    this.#refusals = new KeyRefusals(options);
    options.bus.onGap(() => {
      this.#changed();
      for (const [, cached] of this.#principals.entries()) cached.isConfirmed = false;
    });
    options.bus.subscribe(PRINCIPAL_CHANGED, (id) => {
      this.#changed();
      this.#principals.deleteWhere(
        ({ principal: { keyId, userId, group } }) => keyId === id || userId === id || group?.id === id,
      );
    });
  }

  /** A read in progress may predate the change, so later callers do not share it. */
  #changed(): void {
    this.#changes++;
    this.#loading.clear();
    this.#unknown.clear();
  }

  async list(userId: string) {
    // So that people see their latest spending and refusals.
    await Promise.all([this.options.usage.settled(), this.#refusals.write()]);
    const month = utcMonth(this.options.clock.now());
    return (await this.#store.listOf(userId)).map((row) => listedView(row, month));
  }

  async create(
    actor: Actor,
    { name, project, groupId, ...limits }: { name: string; project?: string; groupId?: string } & GivenLimits,
  ) {
    this.#requireFuture(limits);
    if ((await this.#store.countActive(actor.userId)) >= ACTIVE_KEYS_MAX) {
      fail(
        "app_error",
        `You have ${ACTIVE_KEYS_MAX} active keys, the most an account may have; revoke some first`,
      );
    }
    const { ids, clock, bus, db, accounts, groups } = this.options;
    const { secret, key_prefix } = this.#newSecret();
    const row: KeyRow = {
      id: ids.uuid(),
      name,
      project: project || DEFAULT_PROJECT,
      key_prefix,
      group_id: groupId ?? null,
      active: true,
      created_at: isoTime(clock.now()),
      revoked_at: null,
      capture_until: null,
      ...changedLimits(null, limits),
    };
    await db.transaction(async (tx) => {
      if (groupId) await groups.requireMember(tx, groupId, actor.userId);
      await accounts.giving.requireSession(tx, actor);
      await this.#store.insert(tx, { ...row, user_id: actor.userId, key_hash: sha256Hex(secret) });
    });
    bus.publish(PRINCIPAL_CHANGED, row.id);
    return { ...keyView(row), key: secret };
  }

  #newSecret(): { secret: string; key_prefix: string } {
    const uuid = this.options.ids.uuid();
    // All keys begin with the same letters, so use the uuid's first characters.
    return { secret: `${KEY_PREFIX}${uuid}`, key_prefix: uuid.slice(0, ATTRIBUTION_LENGTH) };
  }

  async rotate(actor: SignedIn, ownerId: string | null, keyId: string) {
    const { secret, key_prefix } = this.#newSecret();
    const row = await this.#change(keyId, ownerId, async (_, tx) => {
      await this.options.accounts.giving.requireSession(tx, actor);
      return { key_prefix, key_hash: sha256Hex(secret) };
    });
    return { ...keyView(row), key: secret };
  }

  /** `ownerId` is null for administrators, who may change any key. */
  async update(ownerId: string | null, keyId: string, { name, ...limits }: { name?: string } & GivenLimits) {
    this.#requireFuture(limits);
    const row = await this.#change(keyId, ownerId, async (before) => ({
      name: name ?? before.name,
      ...changedLimits(before, limits),
    }));
    return keyView(row);
  }

  async #change(
    keyId: string,
    ownerId: string | null,
    changesOf: (before: KeyRow, tx: Transaction) => Promise<KeyChanges>,
  ): Promise<KeyRow> {
    const { db, bus } = this.options;
    const changed = await db.transaction(async (tx) => {
      const before = await this.#store.lock(tx, keyId, ownerId);
      if (!before) fail("app_error", KEY_NOT_FOUND);
      if (!before.active) fail("app_error", "The key is revoked and stays so; create another (keys.create)");
      const changes = await changesOf(before, tx);
      await this.#store.update(tx, keyId, changes);
      return { ...before, ...changes };
    });
    bus.publish(PRINCIPAL_CHANGED, keyId);
    return changed;
  }

  #requireFuture({ expires_at: expiresAt }: GivenLimits): void {
    if (expiresAt && Date.parse(expiresAt) <= this.options.clock.now())
      failParam("expires_at", "choose a time in the future; to stop a key now, revoke it");
  }

  /** Captures a key's prompts for this many days; null: stop. */
  async setCapture(keyId: string, days: number | null): Promise<{ capture_until: string | null }> {
    const until = days === null ? null : isoTime(this.options.clock.now() + days * DAY_MS);
    const { db, bus } = this.options;
    if (!(await this.#store.update(db, keyId, { capture_until: until })))
      fail("not_found", "There is no such key");
    bus.publish(PRINCIPAL_CHANGED, keyId);
    return { capture_until: until };
  }

  captured() {
    return this.#store.captured(isoTime(this.options.clock.now()));
  }

  refused({ keyId }: Principal, error: ServiceError): void {
    this.#refusals.note(keyId, error);
  }

  close(): Promise<void> {
    return this.#refusals.close();
  }

  async revoke(ownerId: string | null, keyId: string): Promise<void> {
    const found = await this.#store.revoke(keyId, ownerId, isoTime(this.options.clock.now()));
    if (!found) fail("app_error", KEY_NOT_FOUND);
    this.options.bus.publish(PRINCIPAL_CHANGED, keyId);
  }

  /** The principal of a key. An expired key is refused with that reason. */
  async authenticate(secret: string): Promise<Principal | null> {
    const principal = await this.#holder(secret);
    if (!principal || principal.expiresAtMs > this.options.clock.now()) return principal;
    const refusal = new KeyRefusal(
      "auth_required",
      `This API key expired on ${isoTime(principal.expiresAtMs)}; its owner can extend it (keys.update) or create another (keys.create)\n`,
      { rest: { limit: "expires_at" } },
    );
    this.refused(principal, refusal);
    throw refusal;
  }

  #holder(secret: string): Principal | null | Promise<Principal | null> {
    if (!secret.startsWith(KEY_PREFIX) || secret.length > 64) return null;
    const hash = sha256Hex(secret);
    const known = this.#principals.get(hash);
    if (known) return this.#isTrusted(known) ? known.principal : this.#confirm(hash, known);
    const unknownUntilMs = this.#unknown.get(hash);
    if (unknownUntilMs !== undefined && unknownUntilMs > this.options.clock.now()) return null;
    return this.#load(hash);
  }

  /** The current principal of a key id; null: it may no longer be used. */
  async principalOf(keyId: string): Promise<Principal | null> {
    const row = await this.#store.principal("id", keyId);
    const principal = row && (await this.#toPrincipal(row));
    return principal && principal.expiresAtMs > this.options.clock.now() ? principal : null;
  }

  /** Whether the database still accepts this key. */
  async isInForce(keyId: string): Promise<boolean> {
    return (await this.#store.principal("id", keyId)) !== null;
  }

  /** Another instance's revocation arrives over the bus, or not at all while the bus is down. */
  #isTrusted({ isConfirmed, askedAtMs }: Cached): boolean {
    if (isConfirmed && this.options.bus.connected) return true;
    const ageMs = this.options.clock.now() - askedAtMs;
    return ageMs >= 0 && ageMs <= UNHEARD_TRUSTED_MS;
  }

  /** Keys stay valid unless the database denies them, so that its outage does not lock everyone out. */
  #confirm(hash: string, known: Cached): Promise<Principal | null> {
    const stale = async () => {
      known.isConfirmed = false;
      known.askedAtMs = this.options.clock.now();
      return known.principal;
    };
    const late = sleep(this.options.clock, REREAD_WITHIN_MS).then(stale);
    return Promise.race([this.#load(hash).catch(stale), late]);
  }

  #load(hash: string): Promise<Principal | null> {
    return this.#loading.getOrInsertComputed(hash, () => {
      const loading = this.#read(hash).finally(() => {
        if (this.#loading.get(hash) === loading) this.#loading.delete(hash);
      });
      return loading;
    });
  }

  async #read(hash: string): Promise<Principal | null> {
    const changesBefore = this.#changes;
    const found = this.#store.principal("key_hash", hash).then((row) => row && this.#toPrincipal(row));
    const principal = await found.catch((error) =>
      fail("unavailable", "Keys cannot be checked right now; try again shortly", {
        retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS,
        cause: error,
      }),
    );
    // A change arrived meanwhile, so this read may be stale: use it once, but do not cache it.
    if (this.#changes !== changesBefore) return principal;
    const nowMs = this.options.clock.now();
    if (principal) this.#principals.set(hash, { principal, isConfirmed: true, askedAtMs: nowMs });
    else {
      this.#principals.delete(hash);
      this.#unknown.set(hash, nowMs + UNKNOWN_KEPT_MS);
    }
    return principal;
  }

  async #toPrincipal(row: PrincipalRow): Promise<Principal> {
    const group = row.group_id && {
      id: row.group_id,
      multiplierMicros: row.cost_multiplier_micros ?? MULTIPLIER_ONE,
      rpmCeiling: row.rpm_ceiling,
      enforceAllowlist: Boolean(row.enforce_model_allowlist),
      ...(await this.options.groups.modelSets(row.group_id)),
    };
    return {
      keyId: row.key_id,
      keyPrefix: row.key_prefix,
      project: row.project,
      userId: row.user_id,
      tier: row.tier,
      group: group || null,
      models: allowedModelsOf(row),
      expiresAtMs: row.expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(row.expires_at),
      limits: keyLimitsOf(row),
      captureUntilMs: row.capture_until === null ? 0 : Date.parse(row.capture_until),
    };
  }
}

export const payerOf = ({ keyId, keyPrefix, project, userId, tier, group, limits }: Principal): Payer => ({
  userId,
  keyId,
  attribution: keyPrefix,
  project,
  groupId: group?.id ?? null,
  costMultiplierMicros: group?.multiplierMicros ?? MULTIPLIER_ONE,
  rpmCeiling: group?.rpmCeiling ?? null,
  keyLimits: limits,
  tier,
});

/** The result schema keeps only its listed fields. */
const keyView = (row: KeyRow) => ({ ...row, ...limitsView(row) });

const usdOf = (nanoUsd: number | null): number => (nanoUsd ?? 0) / NANO_PER_USD;

const listedView = (row: ListedKey, month: string) => ({
  ...keyView(row),
  last_used_at: row.last_used_ms === null ? null : isoTime(row.last_used_ms),
  spent_month_usd: row.month === month ? usdOf(row.month_cost_nano_usd) : 0,
  spent_total_usd: usdOf(row.total_cost_nano_usd),
  last_refusal:
    row.refused_ms === null
      ? null
      : { at: isoTime(row.refused_ms), code: row.refusal_code ?? "", message: row.refusal_message ?? "" },
});
