import { inBackground } from "../../kernel/background.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import {
  type Asking,
  type Bus,
  grantedAmount,
  HAIR,
  type Quantity,
  REFUSED,
  type Reservations,
  type ReservedChange,
  type Spent,
} from "../contract.ts";
import { InProcessReservations } from "../in-process/reservations.ts";
import type { RedisScripts } from "./scripts.ts";

/** An instance without a heartbeat for this long counts as dead, and its reservations are freed. */
const ALIVE_MS = 15_000;
const BEAT_MS = 5_000;
/** Small changes are batched; a change that a request depends on is sent at once. */
const CHANGE_DELAY_MS = 5;
const NAMES_PER_CALL_MAX = 200;
/** How long holds pause after Redis lost its data, so that every instance can send its sums again. */
const FORGOTTEN_PAUSE_MS = 50;
/** The topic on which the first instance to notice announces it. */
const FORGOTTEN = "holds-forgotten";

/** What a script returns when Redis does not know the instance. */
const UNKNOWN_INSTANCE = -2;

const HOLDS = "gateway:holds:";
const ALIVE = "gateway:alive:";

/**
 * A name is a hash: one field per instance with what it has reserved ("money tokens"), and the field `=` with
 * the newest "version money tokens" that is known to be spent. Fields of dead instances are dropped when seen.
 */
const SHARED = `
local KEPT_MS = 3600000
local function put(key, instance, money, tokens)
  if money <= 0 and tokens <= 0 then redis.call('HDEL', key, instance)
  else redis.call('HSET', key, instance, string.format('%.17g %.17g', money, tokens)) end
  redis.call('PEXPIRE', key, KEPT_MS)
end
local function pair(text)
  if not text then return 0, 0 end
  local money, tokens = string.match(text, '(%S+) (%S+)')
  return tonumber(money), tonumber(tokens)
end
local me = ARGV[1]
`;

/**
 * KEYS: the purses, then the names without a limit. ARGV: instance, number of purses, unitsMin, unitsMax, fixed,
 * perUnit, then for each purse version, spent, limit, unitsBeyond (or '') and the fixed and perUnit that count there.
 * Quantities are money and tokens.
 */
const GRANT = `${SHARED}
if redis.call('EXISTS', '${ALIVE}' .. me) == 0 then return ${UNKNOWN_INSTANCE} end
local n = {}
for i = 2, #ARGV do n[i] = tonumber(ARGV[i]) end
local unitsMin, units = n[3], n[4]

-- The same as unitsThatFit in the in-process bus.
local function units_that_fit(left, unitsBeyond, fixed, perUnit)
  if unitsBeyond then
    if left <= 0 then return ${REFUSED} end
    left = math.floor(left + unitsBeyond * perUnit)
  end
  local room = left - fixed + ${HAIR}
  if room < 0 then return ${REFUSED} end
  if perUnit <= 0 then return units end
  return math.floor(room / perUnit)
end

for i = 1, n[2] do
  local key, at = KEYS[i], 9 + (i - 1) * 10
  local spentMoney, spentTokens, reservedMoney, reservedTokens = n[at + 1], n[at + 2], 0, 0
  local fields = redis.call('HGETALL', key)
  for f = 1, #fields, 2 do
    local name, value = fields[f], fields[f + 1]
    if name == '=' then
      local version, money, tokens = string.match(value, '(%S+) (%S+) (%S+)')
      if tonumber(version) > n[at] then spentMoney, spentTokens = tonumber(money), tonumber(tokens) end
    elseif name == me or redis.call('EXISTS', '${ALIVE}' .. name) == 1 then
      local money, tokens = pair(value)
      reservedMoney, reservedTokens = reservedMoney + money, reservedTokens + tokens
    else redis.call('HDEL', key, name) end
  end
  units = math.min(units,
    units_that_fit(n[at + 3] - spentMoney - reservedMoney, n[at + 5], n[at + 6], n[at + 8]),
    units_that_fit(n[at + 4] - spentTokens - reservedTokens, n[at + 5], n[at + 7], n[at + 9]))
  if units < unitsMin then return ${REFUSED} end
end
for i, key in ipairs(KEYS) do
  local at = i <= n[2] and 9 + (i - 1) * 10 + 6 or 5
  local money, tokens = pair(redis.call('HGET', key, me))
  put(key, me,
    money + math.ceil(n[at] + units * n[at + 2] - ${HAIR}),
    tokens + math.ceil(n[at + 1] + units * n[at + 3] - ${HAIR}))
end
return units`;

/** ARGV: instance, then money, tokens and either three times '' or version, money and tokens for each name. */
const CHANGE = `${SHARED}
if redis.call('EXISTS', '${ALIVE}' .. me) == 0 then return ${UNKNOWN_INSTANCE} end
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 5
  local money, tokens = pair(redis.call('HGET', key, me))
  put(key, me, money + tonumber(ARGV[at]), tokens + tonumber(ARGV[at + 1]))
  if ARGV[at + 2] ~= '' then
    local known = redis.call('HGET', key, '=')
    if not known or tonumber(string.match(known, '%S+')) < tonumber(ARGV[at + 2]) then
      redis.call('HSET', key, '=', ARGV[at + 2] .. ' ' .. ARGV[at + 3] .. ' ' .. ARGV[at + 4])
    end
  end
end
return 1`;

/** Heartbeat of an instance. Returns 0 when the server no longer knows it. */
const BEAT = `return redis.call('SET', '${ALIVE}' .. ARGV[1], '1', 'XX', 'PX', ${ALIVE_MS}) and 1 or 0`;

/** ARGV: instance, the id it had before, then money and tokens of each name. */
const ENTER = `${SHARED}
redis.call('DEL', '${ALIVE}' .. ARGV[2])
redis.call('SET', '${ALIVE}' .. me, '1', 'PX', ${ALIVE_MS})
for i, key in ipairs(KEYS) do put(key, me, tonumber(ARGV[1 + i * 2]), tonumber(ARGV[2 + i * 2])) end
return 1`;

interface RedisReservationsOptions {
  scripts: RedisScripts;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/**
 * What all instances have reserved. This instance's own part is also kept here: it decides locally while Redis
 * is unreachable, and is sent again when Redis is back or was emptied.
 */
export class RedisReservations implements Reservations {
  readonly #local = new InProcessReservations();
  /** Not sent yet. */
  readonly #queue = new Map<string, ReservedChange>();
  /** Redis stores our reservations under this id. Taking a new id discards any inconsistency under the old one. */
  #instance: string;
  #entering: Promise<void> | null = null;
  /** The sums in Redis may differ from ours. */
  #uncertain = false;
  #cancelFlush: (() => void) | null = null;
  readonly #endBeating: () => void;
  readonly #endListening: () => void;

  private constructor(readonly options: RedisReservationsOptions) {
    this.#instance = options.ids.uuid();
    this.#endBeating = options.clock.every(BEAT_MS, () => void this.#beat());
    options.bus.onGap(() => void this.#enter());
    this.#endListening = options.bus.subscribe(FORGOTTEN, () => void this.#enter(FORGOTTEN_PAUSE_MS));
  }

  static async open(options: RedisReservationsOptions): Promise<RedisReservations> {
    const reservations = new RedisReservations(options);
    await reservations.#enter();
    // Loaded now: a grant must not overtake a change that waits for its script.
    await options.scripts.run(CHANGE, [], [reservations.#instance]).catch(() => {});
    return reservations;
  }

  grant(asking: Asking): number | Promise<number> {
    return this.options.scripts.available ? this.#grantShared(asking) : this.#grantAlone(asking);
  }

  #grantAlone(asking: Asking): number {
    this.#uncertain = true;
    return this.#local.grant(asking);
  }

  async #grantShared(asking: Asking): Promise<number> {
    const { scripts, log } = this.options;
    try {
      if (this.#entering || this.#uncertain) await this.#enter();
      const asInstance = this.#instance;
      let granted = await this.#ask(asking);
      if (granted === UNKNOWN_INSTANCE) {
        await this.#unknown(asInstance);
        granted = await this.#ask(asking);
      }
      if (granted !== UNKNOWN_INSTANCE) return granted;
    } catch (error) {
      if (scripts.available) log.warn("shared hold failed; counting locally", { error });
    }
    return this.#grantAlone(asking);
  }

  /** The units granted, `REFUSED`, or `UNKNOWN_INSTANCE`. */
  async #ask(asking: Asking): Promise<number> {
    const { purses, alsoOn, fixed, perUnit, unitsMin, unitsMax } = asking;
    const names = [...purses.map(({ name }) => name), ...alsoOn];
    // Releases must be counted before this grant, so they are sent first on the same connection.
    if (names.some((name) => this.#queue.has(name))) this.#flush();
    const asInstance = this.#instance;
    const args = [asInstance, ...numbers(purses.length, unitsMin, unitsMax, fixed, perUnit)];
    for (const { spent, limit, unitsBeyond, cost = asking } of purses) {
      args.push(...numbers(spent.version, spent, limit), unitsBeyond === null ? "" : String(unitsBeyond));
      args.push(...numbers(cost.fixed, cost.perUnit));
    }
    const keys = names.map((name) => HOLDS + name);
    const granted = Number(await this.options.scripts.run(GRANT, keys, args));
    if (granted < 0) return granted;
    const whole = grantedAmount(asking, granted);
    for (const [index, name] of names.entries()) {
      const cost = purses[index]?.cost;
      const amount = cost ? grantedAmount(cost, granted) : whole;
      this.#local.add(name, amount);
      // All our sums were resent while this grant was in flight, without including it.
      if (this.#instance !== asInstance) this.#enqueue(name, amount);
    }
    return granted;
  }

  change(changes: readonly ReservedChange[]): void {
    this.#local.change(changes);
    if (!this.options.scripts.available) this.#uncertain = true;
    else for (const { name, amount, spent } of changes) this.#enqueue(name, amount, spent);
  }

  #enqueue(name: string, amount: Quantity, spent?: Spent): void {
    const waiting = this.#queue.get(name);
    if (waiting) {
      waiting.amount.money += amount.money;
      waiting.amount.tokens += amount.tokens;
      if (spent && spent.version >= (waiting.spent?.version ?? 0)) waiting.spent = spent;
    } else this.#queue.set(name, { name, amount: { ...amount }, ...(spent && { spent }) });
    if (this.#queue.size >= NAMES_PER_CALL_MAX) this.#flush();
    else this.#flushSoon();
  }

  #flushSoon(): void {
    this.#cancelFlush ??= this.options.clock.after(CHANGE_DELAY_MS, () => this.#flush());
  }

  #flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = null;
    // A change must not overtake the sums that it changes.
    if (this.#entering) {
      this.#flushSoon();
      return;
    }
    const changes = [...this.#queue.values()];
    this.#queue.clear();
    if (changes.length === 0) return;
    const args = changes.flatMap(({ amount, spent }) => [
      ...numbers(amount),
      ...(spent ? numbers(spent.version, spent) : ["", "", ""]),
    ]);
    const asInstance = this.#instance;
    const { scripts, log } = this.options;
    scripts
      .run(
        CHANGE,
        changes.map(({ name }) => HOLDS + name),
        [asInstance, ...args],
      )
      .then(
        (answer) => {
          if (answer === UNKNOWN_INSTANCE)
            inBackground(log, "telling Redis of this instance", this.#unknown(asInstance));
        },
        () => {
          this.#uncertain = true;
        },
      );
  }

  async #beat(): Promise<void> {
    const { scripts } = this.options;
    if (!scripts.available) return;
    if (this.#uncertain) return this.#enter();
    const asInstance = this.#instance;
    const known = await scripts.run(BEAT, [], [asInstance]).catch(() => 1);
    if (known === 0) await this.#unknown(asInstance);
  }

  /** Redis does not know this id: it lost its data, unless we have taken a new id since. */
  #unknown(asInstance: string): Promise<void> {
    if (asInstance !== this.#instance) return this.#entering ?? Promise.resolve();
    this.options.log.warn("Redis lost the holds; every instance sends them again");
    this.options.bus.publish(FORGOTTEN, "");
    return this.#enter(FORGOTTEN_PAUSE_MS);
  }

  /** Sends Redis everything that this instance has reserved, under a new id. Holds wait for it, and for the pause. */
  #enter(pauseMs = 0): Promise<void> {
    const paused = () => new Promise<void>((resolve) => this.options.clock.after(pauseMs, resolve));
    this.#entering ??= this.#tellAll()
      .then(() => (pauseMs > 0 ? paused() : undefined))
      .catch((error) => this.options.log.warn("sending holds to Redis failed", { error }))
      .finally(() => {
        this.#entering = null;
      });
    return this.#entering;
  }

  async #tellAll(): Promise<void> {
    const { scripts, ids } = this.options;
    const before = this.#instance;
    this.#instance = ids.uuid();
    this.#uncertain = true;
    this.#queue.clear();
    const all = [...this.#local.entries()].map(([name, { money, tokens }]) => ({ name, money, tokens }));
    for (let at = 0; at === 0 || at < all.length; at += NAMES_PER_CALL_MAX) {
      const some = all.slice(at, at + NAMES_PER_CALL_MAX);
      const args = some.flatMap((quantity) => numbers(quantity));
      await scripts.run(
        ENTER,
        some.map(({ name }) => HOLDS + name),
        [this.#instance, before, ...args],
      );
    }
    this.#uncertain = false;
  }

  async close(): Promise<void> {
    this.#endBeating();
    this.#endListening();
    this.#cancelFlush?.();
    const { scripts, ids } = this.options;
    // A clean shutdown frees its reservations at once.
    if (scripts.available) await scripts.run(ENTER, [], [ids.uuid(), this.#instance]).catch(() => {});
  }
}

const numbers = (...values: (number | Quantity)[]): string[] =>
  values.flatMap((value) =>
    typeof value === "number" ? [String(value)] : [finite(value.money), finite(value.tokens)],
  );
/** Lua reads no "Infinity". */
const finite = (value: number): string =>
  String(value === Number.POSITIVE_INFINITY ? Number.MAX_VALUE : value);
