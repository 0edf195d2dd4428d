import type { Bus } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { type Clock, isoTime, sleep } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { type Ids, sha256Hex } from "../../kernel/ids.ts";
import { MULTIPLIER_ONE, type Payer } from "../../kernel/payer.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Database } from "../../storage/contract.ts";
import type { Groups, ModelRules } from "../groups/index.ts";
import { type KeyRow, KeyStore, type PrincipalRow } from "./store.ts";

const DEFAULT_PROJECT = "default";
const KEY_PREFIX = "service-";
const ATTRIBUTION_LENGTH = 8;
const ACTIVE_KEYS_MAX = 500;
const PRINCIPALS_MAX = 50_000;
/** An unknown key is remembered for this long, so that guessing costs no database look-ups. */
const UNKNOWN_KEPT_MS = 5_000;
/** While the bus is down, principals older than this are read again. */
const UNHEARD_TRUSTED_MS = 1_000;
/** A known principal stays in force when the database does not confirm or deny it within this. */
const REREAD_WITHIN_MS = 500;
const UNAVAILABLE_RETRY_SECONDS = 5;

/** What usage rows call a key by its text; null for what does not look like one at all. */
export function prefixOf(secret: string): string | null {
  const prefix = secret.slice(KEY_PREFIX.length, KEY_PREFIX.length + ATTRIBUTION_LENGTH);
  return secret.startsWith(KEY_PREFIX) && prefix.length === ATTRIBUTION_LENGTH ? prefix : null;
}

/** What the group of a key sets for its requests; the member's multiplier included. */
export interface GroupTerms extends ModelRules {
  id: string;
  /** The member's cost multiplier in millionths. */
  multiplierMicros: number;
  /** Requests a minute for all keys of the group together; null: no ceiling. */
  rpmCeiling: number | null;
}

/** Everything about a key that a request needs, cached until something about it changes. */
export interface Principal {
  keyId: string;
  /** First 8 characters of the key's uuid; what usage rows show. */
  keyPrefix: string;
  project: string;
  userId: string;
  tier: string;
  /** Set for a group's key: the pool pays, and these rules hold. */
  group: GroupTerms | null;
}

interface Cached {
  principal: Principal;
  /** False once a change of it may have been missed. */
  isConfirmed: boolean;
  /** When the database was last asked for it. */
  askedAtMs: number;
}

export interface KeysOptions {
  db: Database;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  groups: Pick<Groups, "requireMember" | "modelSets">;
}

export class Keys {
  readonly #store: KeyStore;
  readonly #principals = new BoundedMap<string, Cached>(PRINCIPALS_MAX);
  readonly #unknown = new BoundedMap<string, number>(PRINCIPALS_MAX);
  /** Reads under way, shared by everyone who asks meanwhile; as many as requests, which are bounded. */
  readonly #loading = new Map<string, Promise<Principal | null>>();
  /** Counts changes, so that what was read before one is not kept after it. */
  #changes = 0;

  constructor(readonly options: KeysOptions) {
    this.#store = new KeyStore(options.db);
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

  list(actor: Actor): Promise<KeyRow[]> {
    return this.#store.listOf(actor.userId);
  }

  async create(
    actor: Actor,
    { name, project, groupId }: { name: string; project?: string; groupId?: string },
  ): Promise<KeyRow & { key: string }> {
    if ((await this.#store.countActive(actor.userId)) >= ACTIVE_KEYS_MAX) {
      fail(
        "app_error",
        `You have ${ACTIVE_KEYS_MAX} active keys, the most an account may have; revoke some first`,
      );
    }
    const { ids, clock, bus, db, groups } = this.options;
    const uuid = ids.uuid();
    const secret = `${KEY_PREFIX}${uuid}`;
    const row: KeyRow = {
      id: ids.uuid(),
      name,
      project: project || DEFAULT_PROJECT,
      // The letters before the uuid are the same for every key, so they would attribute nothing.
      key_prefix: uuid.slice(0, ATTRIBUTION_LENGTH),
      group_id: groupId ?? null,
      active: true,
      created_at: isoTime(clock.now()),
      revoked_at: null,
    };
    await db.transaction(async (tx) => {
      if (groupId) await groups.requireMember(tx, groupId, actor.userId);
      await this.#store.insert(tx, { ...row, user_id: actor.userId, key_hash: sha256Hex(secret) });
    });
    bus.publish(PRINCIPAL_CHANGED, row.id);
    return { ...row, key: secret };
  }

  async revoke(actor: Actor, keyId: string): Promise<void> {
    const found = await this.#store.revoke(keyId, actor.userId, isoTime(this.options.clock.now()));
    if (!found) fail("app_error", "Key not found; keys.list shows the ids of your keys");
    this.options.bus.publish(PRINCIPAL_CHANGED, keyId);
  }

  /** Who a key stands for; synchronous when it is cached, so that the hot path does not wait. */
  authenticate(secret: string): Principal | null | Promise<Principal | null> {
    if (!secret.startsWith(KEY_PREFIX) || secret.length > 64) return null;
    const hash = sha256Hex(secret);
    const known = this.#principals.get(hash);
    if (known) return this.#isTrusted(known) ? known.principal : this.#confirm(hash, known);
    const unknownUntilMs = this.#unknown.get(hash);
    if (unknownUntilMs !== undefined && unknownUntilMs > this.options.clock.now()) return null;
    return this.#load(hash);
  }

  /** Whether requests with this key are still accepted, as the database has it now. */
  isInForce(keyId: string): Promise<boolean> {
    return this.#store.isInForce(keyId);
  }

  /** A revocation made on another instance arrives over the bus, or not at all while that is down. */
  #isTrusted({ isConfirmed, askedAtMs }: Cached): boolean {
    if (isConfirmed && this.options.bus.connected) return true;
    const ageMs = this.options.clock.now() - askedAtMs;
    return ageMs >= 0 && ageMs <= UNHEARD_TRUSTED_MS;
  }

  /** Keys stay valid unless the database denies them: its outage must not lock everyone out. */
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
    let loading = this.#loading.get(hash);
    if (!loading) {
      loading = this.#read(hash).finally(() => {
        if (this.#loading.get(hash) === loading) this.#loading.delete(hash);
      });
      this.#loading.set(hash, loading);
    }
    return loading;
  }

  async #read(hash: string): Promise<Principal | null> {
    const changesBefore = this.#changes;
    const principal = await this.#find(hash).catch((error) =>
      fail("unavailable", "Keys cannot be checked right now; try again shortly", {
        retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS,
        cause: error,
      }),
    );
    // A change that arrived meanwhile may be newer than this read: use it for this answer only, do not cache it.
    if (this.#changes !== changesBefore) return principal;
    const nowMs = this.options.clock.now();
    if (principal) this.#principals.set(hash, { principal, isConfirmed: true, askedAtMs: nowMs });
    else {
      this.#principals.delete(hash);
      this.#unknown.set(hash, nowMs + UNKNOWN_KEPT_MS);
    }
    return principal;
  }

  async #find(hash: string): Promise<Principal | null> {
    const row = await this.#store.principal(hash);
    return row && this.#toPrincipal(row);
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
    };
  }
}

/** Who pays for a request with this key. */
export const payerOf = ({ keyId, keyPrefix, project, userId, tier, group }: Principal): Payer => ({
  userId,
  keyId,
  attribution: keyPrefix,
  project,
  groupId: group?.id ?? null,
  costMultiplierMicros: group?.multiplierMicros ?? MULTIPLIER_ONE,
  rpmCeiling: group?.rpmCeiling ?? null,
  tier,
});
