import type { Quantity, ReservedChange } from "../../bus/contract.ts";
import { isOrderedId } from "../../kernel/ids.ts";
import { isCharged } from "../../kernel/request-row.ts";
import type { Database, Transaction } from "../../storage/contract.ts";
import type { Tiers } from "../billing/for-thread.ts";
import { accountKey, accountOf } from "../ledger/for-thread.ts";
import type { BalanceChange, Ledger, QuotaPayer, Settled, Settlement } from "../ledger/index.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { MonthKey, RequestRow, UsageStore, WrittenSums } from "../usage/index.ts";
import { type ChargedEntry, type JournalEntry, takesPoints } from "./journal/codec.ts";
import { type Lines, readLines } from "./journal/segment.ts";
import { budgetNames, spendersOf, spentOfKey } from "./key-budgets.ts";
import { limitOf, nanoPoints, spentPoints } from "./limits.ts";
import { nameOf, spentNames, type Used, usedOf, windowNames } from "./windows.ts";

/** Journal lines to bring into the database in one transaction. */
export interface SettleOrder extends Lines {
  /** Some of the rows may be in the database already. */
  mayExist: boolean;
  /** This process holds reservations for them. */
  reserved: boolean;
}

/** What a committed batch left, or a part that can be processed in one turn of the event loop. */
export interface SettleNews extends WrittenSums {
  balances: BalanceChange[];
  /** Reservations that end, as negative amounts, together with what is spent instead. */
  changes: ReservedChange[];
}

export interface SettleReport {
  rows: number;
  /** Bytes of these rows; 0 if the range holds no whole line. */
  length: number;
  damaged: string[];
  news: Iterable<SettleNews>;
}

/** Settles journaled requests, in this thread or in another one. */
export interface Settler {
  /** One order at a time. Throws `RefusedRows` if the database will never take one of the rows. */
  settle(order: SettleOrder): Promise<SettleReport>;
}

/** The database refused the contents of a row and would refuse them again: not an outage. */
export class RefusedRows extends Error {
  constructor(
    message: string,
    readonly rows: number,
  ) {
    super(message);
  }
}

function isRefusal(error: unknown): boolean {
  // An impossible figure or time, refused before the database saw it.
  if (error instanceof RangeError) return true;
  const { code, errno } = (error ?? {}) as { code?: unknown; errno?: unknown };
  // SQLSTATE classes: data exception, integrity constraint violation.
  if (typeof errno === "string" && /^2[23]/.test(errno)) return true;
  return typeof code === "string" && /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code);
}

/** Months, keys, balances and changes in one part of the news. */
const NEWS_PART_SIZE = 200;

/** Sums precede the reservations that end: until then room counts as taken twice, never as free twice. */
function* partsOf(news: SettleNews): Generator<SettleNews> {
  const noNews = (): SettleNews => ({ months: [], keys: [], balances: [], changes: [] });
  let [part, size] = [noNews(), 0];
  for (const list of ["months", "keys", "balances", "changes"] as const)
    for (const item of news[list]) {
      (part[list] as unknown[]).push(item);
      if (++size < NEWS_PART_SIZE) continue;
      yield part;
      [part, size] = [noNews(), 0];
    }
  yield part;
}

/** What an entry takes once it is in the database; until then it stays reserved. */
export function reservedBy(entry: ChargedEntry, pointsPerUsd: number): ReservedChange[] {
  const { userId, project, hold, costNanoUsd, promptTokens, completionTokens } = entry;
  const month = utcMonth(entry.atMs);
  const money = costNanoUsd ?? 0;
  const reserved: ReservedChange[] = [];
  const add = (names: readonly string[], amount: Quantity) =>
    reserved.push(...names.map((name) => ({ name, amount })));
  if (hold === "points") {
    const points = nanoPoints(money, entry.costMultiplierMicros, pointsPerUsd);
    add([accountKey(accountOf(entry))], { money: points, tokens: 0 });
  } else if (hold === "quota") {
    const amount = { money, tokens: promptTokens + completionTokens };
    add(windowNames({ userId, month, project: project ?? WHOLE_USER }), amount);
  }
  for (const { id, budgets } of spendersOf(entry, entry.budgets))
    add(budgetNames({ keyId: id, month }, budgets), { money, tokens: 0 });
  return reserved;
}

interface JournalSettlerOptions {
  db: Database;
  ledger: Pick<Ledger, "settleBatch" | "takeChanges" | "noteBalances">;
  store: UsageStore;
  tiers: Pick<Tiers, "load" | "tier" | "tierOf">;
  pointsPerUsd: number;
}

type Settlements = Omit<SettleNews, "changes">;

export class JournalSettler implements Settler {
  constructor(readonly options: JournalSettlerOptions) {}

  async settle(order: SettleOrder): Promise<SettleReport> {
    const { entries, damaged, length } = readLines(order);
    const rows = entries.length + damaged.length;
    if (entries.length === 0) return { rows, length, damaged, news: [] };
    await this.options.tiers.load();
    const settled = await this.#settle(entries, order).catch((error: Error) => {
      throw isRefusal(error) ? new RefusedRows(error.message, entries.length) : error;
    });
    const news = { ...settled, changes: this.#changes(settled, entries, order) };
    return { rows, length, damaged, news: partsOf(news) };
  }

  /** Writes the requests, their points and their sums in one transaction, each request once. */
  async #settle(entries: readonly JournalEntry[], { mayExist, reserved }: SettleOrder): Promise<Settlements> {
    const { db, ledger, store, tiers } = this.options;
    const byId = new Map(entries.map((entry) => [entry.requestId, entry]));
    let used: Transaction | undefined;
    const written = await db.transaction(async (tx) => {
      used = tx;
      const fresh = new Map(byId);
      const known: ChargedEntry[] = [];
      for (const id of await this.#existing(tx, [...byId.keys()], mayExist)) {
        const entry = byId.get(id)!;
        if (isCharged(entry)) known.push(entry);
        fresh.delete(id);
      }
      const priced = [...fresh.values()].filter(takesPoints);
      const quota = new TierQuota([...fresh.values()].filter(isCharged), { store, tiers });
      let inserted: Awaited<ReturnType<UsageStore["insertExceptSums"]>> = { months: [], keys: [], sums: [] };
      const meanwhile = async (settled: readonly Settled[]) => {
        let next = 0;
        const rows = Array.from(fresh.values(), (entry) =>
          toRow(entry, takesPoints(entry) ? settled[next++]! : null),
        );
        if (rows.length > 0) inserted = await store.insertExceptSums(tx, rows);
      };
      await ledger.settleBatch(tx, priced.map(toSettlement), { mayExist, quota, meanwhile });
      const { sums, months, keys } = inserted;
      await store.addSums(tx, sums);
      if (known.length === 0) return { months, keys };
      // An earlier attempt committed these but could not report the sums.
      const ids = new Set(known.flatMap((entry) => spendersOf(entry, entry.budgets).map(({ id }) => id)));
      for (const id of ids) keys.push(await store.keySpend(id, tx));
      if (!reserved) return { months, keys };
      await ledger.noteBalances(tx, known.map(accountOf));
      return { months: [...months, ...(await store.months(tx, known.flatMap(monthsOf)))], keys };
    });
    return { ...written, balances: used ? ledger.takeChanges(used) : [] };
  }

  /** The ids that have a row. A job's cost may be recorded again later, so its id is always looked up. */
  async #existing(tx: Transaction, ids: readonly string[], mayExist: boolean): Promise<Iterable<string>> {
    const recurring = ids.filter((id) => !isOrderedId(id)).sort();
    for (const id of recurring) await tx.lock(`usage ${id}`);
    const wanted = mayExist ? ids : recurring;
    return wanted.length === 0 ? [] : this.options.store.existing(tx, wanted);
  }

  /** One change per name: if room became free and was spent in two steps, a request could take it in between. */
  #changes(
    { months, keys, balances }: Settlements,
    entries: readonly JournalEntry[],
    { reserved }: SettleOrder,
  ): ReservedChange[] {
    const changes = new Map<string, ReservedChange>();
    const changeOf = (name: string): ReservedChange =>
      changes.getOrInsertComputed(name, () => ({ name, amount: { money: 0, tokens: 0 } }));
    const budgets = new Map<string, number>();
    for (const entry of entries.filter(isCharged)) {
      for (const spender of spendersOf(entry, entry.budgets))
        budgets.set(spender.id, (budgets.get(spender.id) ?? 0) | spender.budgets);
      for (const { name, amount } of reserved ? reservedBy(entry, this.options.pointsPerUsd) : []) {
        const freed = changeOf(name).amount;
        freed.money -= amount.money;
        freed.tokens -= amount.tokens;
      }
    }
    for (const { name, spent } of [
      ...months.flatMap(spentNames),
      ...keys.flatMap((key) => spentOfKey(key, budgets.get(key.keyId) ?? 0)),
      ...balances.map((change) => ({ name: accountKey(change.account), spent: spentPoints(change) })),
    ])
      changeOf(name).spent = spent;
    return [...changes.values()];
  }
}

const toSettlement = (entry: ChargedEntry): Settlement => ({
  account: accountOf(entry),
  userId: entry.userId,
  requestId: entry.requestId,
  costNanoUsd: BigInt(entry.costNanoUsd ?? 0),
  multiplierMicros: entry.costMultiplierMicros,
  atMs: entry.atMs,
});

const toRow = (entry: JournalEntry, settled: Settled): RequestRow => ({
  ...entry,
  points: settled === null ? null : settled.points,
  accountType: settled === null || !isCharged(entry) ? null : accountOf(entry).type,
});

/** The whole user's month, then the project's if there is one. */
function monthsOf({ userId, project, atMs }: ChargedEntry): MonthKey[] {
  const month = utcMonth(atMs);
  const whole = { userId, month, project: WHOLE_USER };
  return project === null ? [whole] : [whole, { userId, month, project }];
}

/** A month as the rollups have it, and as it is while the batch is charged. */
interface BatchWindow {
  key: MonthKey;
  stored: Used;
  now: Used;
}

/** Where an entry counts, and up to which limit; null if the tier has none. */
type Counted = { limit: Quantity; whole: BatchWindow; own: BatchWindow | undefined } | null;

const nothingUsed = (): Used => ({ all: { money: 0, tokens: 0 }, byKeys: { money: 0, tokens: 0 } });
const copyOf = ({ all, byKeys }: Used): Used => ({ all: { ...all }, byKeys: { ...byKeys } });

/** The tier quotas while a batch is settled. A request is paid as a whole while any quota is left. */
class TierQuota implements QuotaPayer {
  readonly #windows = new Map<string, BatchWindow>();
  readonly #counted: { entry: ChargedEntry; counted: Counted }[] = [];
  /** Position in the batch up to which entries without points have been counted. */
  #at = 0;

  constructor(
    readonly entries: readonly ChargedEntry[],
    readonly options: Pick<JournalSettlerOptions, "store" | "tiers">,
  ) {}

  async load(tx: Transaction): Promise<void> {
    const { store, tiers } = this.options;
    for (const entry of this.entries) {
      const limit = limitOf(tiers.tier(entry.tier ?? (await tiers.tierOf(entry.userId))));
      const [whole, own] = limit ? monthsOf(entry).map((key) => this.#window(key)) : [];
      this.#counted.push({ entry, counted: limit && { limit, whole: whole!, own } });
    }
    const keys = Array.from(this.#windows.values(), ({ key }) => key);
    for (const month of await store.lockMonths(tx, keys)) this.#window(month).stored = usedOf(month);
  }

  #window(key: MonthKey): BatchWindow {
    return this.#windows.getOrInsertComputed(nameOf(key), () => ({
      key,
      stored: nothingUsed(),
      now: nothingUsed(),
    }));
  }

  begin(): void {
    this.#at = 0;
    for (const window of this.#windows.values()) window.now = copyOf(window.stored);
  }

  pays({ requestId }: Settlement): boolean {
    let next = this.#counted[this.#at];
    for (; next && next.entry.requestId !== requestId; next = this.#counted[++this.#at])
      if (!takesPoints(next.entry)) add(next.entry, next.counted);
    if (!next) throw new Error(`the quota was asked for ${requestId}, which does not follow in its batch`);
    if (next.counted && isDrained(next.counted)) return false;
    add(next.entry, next.counted);
    return true;
  }
}

function isDrained({ whole, own, limit }: NonNullable<Counted>): boolean {
  const reaches = ({ money, tokens }: Quantity) => money >= limit.money || tokens >= limit.tokens;
  return own ? reaches(own.now.all) || reaches(whole.now.byKeys) : reaches(whole.now.all);
}

function add({ costNanoUsd, promptTokens, completionTokens }: ChargedEntry, counted: Counted): void {
  if (!counted) return;
  const { whole, own } = counted;
  for (const used of own ? [whole.now.all, whole.now.byKeys, own.now.all] : [whole.now.all]) {
    used.money += costNanoUsd ?? 0;
    used.tokens += promptTokens + completionTokens;
  }
}
