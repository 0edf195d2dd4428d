import type { Quantity, ReservedChange } from "../../bus/contract.ts";
import { isCharged } from "../../kernel/request-row.ts";
import type { Tiers } from "../billing/for-thread.ts";
import { accountKey, accountOf } from "../ledger/for-thread.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { ChargedEntry, JournalEntry } from "./journal/codec.ts";
import { type Lines, readLines } from "./journal/segment.ts";
import { budgetNames, spendersOf, spentOfKey } from "./key-budgets.ts";
import { spentPoints } from "./limits.ts";
import { nanoPoints } from "./points.ts";
import { type SettlementOptions, type Settlements, settleEntries } from "./settlement.ts";
import { spentNames, windowNames } from "./windows.ts";

/** Lines of the journal that are to be brought into the database in one transaction. */
export interface SettleOrder extends Lines {
  mayExist: boolean;
  /** Whether this process reserved what they take. */
  reserved: boolean;
}

/** What a batch has changed, or a part of that which can be dealt with in one turn of the event loop. */
export interface SettleNews extends Settlements {
  /** What is no longer reserved, as negative amounts, together with what is spent instead. */
  changes: ReservedChange[];
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

/** Months, balances and changes in one part of the news. */
const NEWS_PART_SIZE = 200;

const noNews = (): SettleNews => ({ months: [], keys: [], balances: [], changes: [] });

/** What is spent comes before what is free because of it: until then its room is taken twice, never given twice. */
function* partsOf(news: SettleNews): Generator<SettleNews> {
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
    const news = { ...settled, changes: this.#changes(settled, entries, order) };
    return { rows, length, damaged, news: partsOf(news) };
  }

  /** By name, what is free and what is spent together: told one by one, a request could find the same room twice. */
  #changes(
    { months, keys, balances }: Settlements,
    entries: readonly JournalEntry[],
    { reserved }: SettleOrder,
  ): ReservedChange[] {
    const changes = new Map<string, ReservedChange>();
    const changeOf = (name: string): ReservedChange => {
      const change = changes.get(name) ?? { name, amount: { money: 0, tokens: 0 } };
      changes.set(name, change);
      return change;
    };
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
