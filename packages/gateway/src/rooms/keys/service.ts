import type { Bus } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { type Ids, sha256Hex } from "../../kernel/ids.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Database } from "../../storage/contract.ts";
import { type KeyRow, KeyStore } from "./store.ts";

export const DEFAULT_PROJECT = "default";
const KEY_PREFIX = "service-";
const ATTRIBUTION_LENGTH = 8;
const ACTIVE_KEYS_MAX = 500;
const PRINCIPALS_MAX = 50_000;
/** An unknown key is remembered for this long, so that guessing costs no database look-ups. */
const UNKNOWN_KEPT_MS = 5_000;

/** Everything about a key that a request needs, cached until something of it changes. */
export interface Principal {
  keyId: string;
  /** First 8 characters of the key's uuid; what usage rows show. */
  keyPrefix: string;
  project: string;
  userId: string;
  groupId: string | null;
  tier: string;
}

export interface KeysOptions {
  db: Database;
  bus: Bus;
  clock: Clock;
  ids: Ids;
}

export class Keys {
  readonly #store: KeyStore;
  readonly #principals = new BoundedMap<string, Principal>(PRINCIPALS_MAX);
  readonly #unknown = new BoundedMap<string, number>(PRINCIPALS_MAX);

  constructor(readonly options: KeysOptions) {
    this.#store = new KeyStore(options.db);
    options.bus.onGap(() => {
      this.#principals.clear();
      this.#unknown.clear();
    });
    options.bus.subscribe(PRINCIPAL_CHANGED, (id) => {
      this.#principals.deleteWhere(
        ({ keyId, userId, groupId }) => keyId === id || userId === id || groupId === id,
      );
      this.#unknown.clear();
    });
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
    const { ids, clock, bus } = this.options;
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
    await this.#store.insert({ ...row, user_id: actor.userId, key_hash: sha256Hex(secret) });
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
    if (known) return known;
    const unknownUntilMs = this.#unknown.get(hash);
    if (unknownUntilMs !== undefined && unknownUntilMs > this.options.clock.now()) return null;
    return this.#load(hash);
  }

  async #load(hash: string): Promise<Principal | null> {
    const row = await this.#store.principal(hash);
    if (!row) {
      this.#unknown.set(hash, this.options.clock.now() + UNKNOWN_KEPT_MS);
      return null;
    }
    const principal: Principal = {
      keyId: row.key_id,
      keyPrefix: row.key_prefix,
      project: row.project,
      userId: row.user_id,
      groupId: row.group_id,
      tier: row.tier,
    };
    this.#principals.set(hash, principal);
    return principal;
  }
}
