import type { Quantity, ReservedChange } from "../../bus/contract.ts";
import { isCharged } from "../../kernel/request-row.ts";
import type { Tiers } from "../billing/for-thread.ts";
import { accountKey, accountOf } from "../ledger/for-thread.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { KeySpend } from "../usage/index.ts";
import type { ChargedEntry, JournalEntry } from "./journal/codec.ts";
import { type Lines, readLines } from "./journal/segment.ts";
import { budgetNames, spendersOf } from "./key-budgets.ts";
import { nanoPoints } from "./points.ts";
import { type SettlementOptions, type Settlements, settleEntries } from "./settlement.ts";
import { windowNames } from "./windows.ts";

/** Lines of the journal that are to be brought into the database in one transaction. */
export interface SettleOrder extends Lines {
  mayExist: boolean;
  /** Whether this process reserved what they take. */
  reserved: boolean;
}

/** What changed for some people and accounts: few enough of them to be dealt with in one turn of the event loop. */
export interface SettleNews extends Settlements {
  /** `budgets`: which of its own the key's requests were held against. */
  keys: (KeySpend & { budgets: number })[];
  /** What is no longer reserved, as negative amounts. */
  freed: ReservedChange[];
}

export interface SettleReport {
  rows: number;
  /** Bytes that these are; 0 when the range holds no whole line. */
  length: number;
  damaged: string[];
  news: Iterable<SettleNews>;
}

/** Settles journaled requests: in this thread, or in another one. */
export interface Settler {
  /** One order at a time. Throws `RefusedRows` when the database will never take one of the rows. */
  settle(order: SettleOrder): Promise<SettleReport>;
}

/** The database refused what one of the rows says, and would refuse it again: not an outage. */
export class RefusedRows extends Error {
  constructor(
    message: string,
    readonly rows: number,
  ) {
    super(message);
  }
}

function isRefusal(error: unknown): boolean {
  // A figure or a time that cannot be: no database has seen it.
  if (error instanceof RangeError) return true;
  const { code, errno } = (error ?? {}) as { code?: unknown; errno?: unknown };
  // SQLSTATE classes: data exception, integrity constraint violation.
  if (typeof errno === "string" && /^2[23]/.test(errno)) return true;
  return typeof code === "string" && /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code);
}

/** Months, balances and reservations in one part of the news. */
const NEWS_PART_SIZE = 200;

/** A reservation, and the person, key or account whose it is. */
interface Reserved extends ReservedChange {
  owner: string;
}

/** What an entry takes once it is in the database; until then it stays reserved. */
export function reservedBy(entry: ChargedEntry, pointsPerUsd: number): Reserved[] {
  const { userId, project, hold, costNanoUsd, promptTokens, completionTokens } = entry;
  const month = utcMonth(entry.atMs);
  const money = costNanoUsd ?? 0;
  const reserved: Reserved[] = [];
  const add = (owner: string, names: readonly string[], amount: Quantity) =>
    reserved.push(...names.map((name) => ({ owner, name, amount })));
  if (hold === "points") {
    const name = accountKey(accountOf(entry));
    const points = nanoPoints(money, entry.costMultiplierMicros, pointsPerUsd);
    add(name, [name], { money: points, tokens: 0 });
  } else if (hold === "quota") {
    const amount = { money, tokens: promptTokens + completionTokens };
    add(userId, windowNames({ userId, month, project: project ?? WHOLE_USER }), amount);
  }
  for (const { id, budgets } of spendersOf(entry, entry.budgets))
    add(ownerOf(id), budgetNames({ keyId: id, month }, budgets), { money, tokens: 0 });
  return reserved;
}

const ownerOf = (keyId: string): string => `key ${keyId}`;

/** The news of one person, key or account. */
const emptyNews = (): SettleNews => ({ months: [], keys: [], balances: [], freed: [] });

/** Puts together what belongs to the same person, key or account: what is freed and what is spent are told at once. */
class NewsByOwner {
  readonly #owners = new Map<string, SettleNews>();
  readonly #freed = new Map<string, ReservedChange>();

  of(owner: string): SettleNews {
    let news = this.#owners.get(owner);
    if (!news) {
      news = emptyNews();
      this.#owners.set(owner, news);
    }
    return news;
  }

  free({ owner, name, amount }: Reserved): void {
    let change = this.#freed.get(name);
    if (!change) {
      change = { name, amount: { money: 0, tokens: 0 } };
      this.#freed.set(name, change);
      this.of(owner).freed.push(change);
    }
    change.amount.money -= amount.money;
    change.amount.tokens -= amount.tokens;
  }

  *parts(): Generator<SettleNews> {
    let part = emptyNews();
    for (const { months, keys, balances, freed } of this.#owners.values()) {
      part.months.push(...months);
      part.keys.push(...keys);
      part.balances.push(...balances);
      part.freed.push(...freed);
      const size = part.months.length + part.keys.length + part.balances.length + part.freed.length;
      if (size < NEWS_PART_SIZE) continue;
      yield part;
      part = emptyNews();
    }
    yield part;
  }
}

interface JournalSettlerOptions extends SettlementOptions {
  tiers: Pick<Tiers, "load" | "tier" | "tierOf">;
  pointsPerUsd: number;
}

export class JournalSettler implements Settler {
  constructor(readonly options: JournalSettlerOptions) {}

  async settle(order: SettleOrder): Promise<SettleReport> {
    const { entries, damaged, length } = readLines(order);
    const rows = entries.length + damaged.length;
    if (entries.length === 0) return { rows, length, damaged, news: [] };
    await this.options.tiers.load();
    const settled = await settleEntries(this.options, entries, order).catch((error: Error) => {
      throw isRefusal(error) ? new RefusedRows(error.message, entries.length) : error;
    });
    const news = this.#news(settled, entries, order);
    return { rows, length, damaged, news: news.parts() };
  }

  #news(
    { months, keys, balances }: Settlements,
    entries: readonly JournalEntry[],
    { reserved }: SettleOrder,
  ): NewsByOwner {
    const news = new NewsByOwner();
    const budgets = new Map<string, number>();
    for (const month of months) news.of(month.userId).months.push(month);
    for (const change of balances) news.of(accountKey(change.account)).balances.push(change);
    for (const entry of entries.filter(isCharged)) {
      for (const spender of spendersOf(entry, entry.budgets))
        budgets.set(spender.id, (budgets.get(spender.id) ?? 0) | spender.budgets);
      if (reserved) for (const each of reservedBy(entry, this.options.pointsPerUsd)) news.free(each);
    }
    for (const key of keys)
      news.of(ownerOf(key.keyId)).keys.push({ ...key, budgets: budgets.get(key.keyId) ?? 0 });
    return news;
  }
}
