import type { ReservedChange } from "../../bus/contract.ts";
import type { Tiers } from "../billing/settling.ts";
import { accountKey, accountOf } from "../ledger/settling.ts";
import { MonthNames } from "../usage/settling.ts";
import type { JournalEntry } from "./journal/codec.ts";
import { type Lines, readLines } from "./journal/segment.ts";
import { nanoPoints } from "./points.ts";
import { type SettlementOptions, type Settlements, settleEntries } from "./settlement.ts";
import { windowNames } from "./windows.ts";

/** Lines of the journal that are to be brought into the database in one transaction. */
export interface SettleOrder extends Lines {
  /** Whether rows may be in the database already. */
  mayExist: boolean;
  /** Whether this process reserved what they take. */
  reserved: boolean;
}

/** What changed for some people and accounts: few enough of them to be dealt with in one turn of the event loop. */
export interface SettleNews extends Settlements {
  /** What is no longer reserved, as negative amounts. */
  freed: ReservedChange[];
}

export interface SettleReport {
  /** Lines that were taken, damaged ones included. */
  rows: number;
  /** Bytes that these are; 0 when the range holds no whole line. */
  length: number;
  /** Lines among them that cannot be read. */
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
    /** How many were in the transaction. */
    readonly rows: number,
  ) {
    super(message);
  }
}

function isRefusal(error: unknown): boolean {
  const { code, errno } = (error ?? {}) as { code?: unknown; errno?: unknown };
  // SQLSTATE classes: data exception, integrity constraint violation.
  if (typeof errno === "string" && /^2[23]/.test(errno)) return true;
  return typeof code === "string" && /^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code);
}

/** Months, balances and reservations in one part of the news. */
const NEWS_PART_SIZE = 200;

/** What an entry takes once it is in the database; until then it stays reserved. */
export function reservedBy(
  entry: JournalEntry,
  { pointsPerUsd, names }: { pointsPerUsd: number; names: (entry: JournalEntry) => readonly string[] },
): readonly ReservedChange[] {
  if (entry.hold === "none") return NO_CHANGES;
  if (entry.hold === "points") {
    const { costNanoUsd, costMultiplierMicros } = entry;
    const money = nanoPoints(costNanoUsd ?? 0, costMultiplierMicros, pointsPerUsd);
    return [{ name: accountKey(accountOf(entry)), amount: { money, tokens: 0 } }];
  }
  const amount = { money: entry.costNanoUsd ?? 0, tokens: entry.promptTokens + entry.completionTokens };
  return names(entry).map((name) => ({ name, amount }));
}
const NO_CHANGES: readonly ReservedChange[] = [];

/** The news of one person or account. */
const emptyNews = (): SettleNews => ({ months: [], balances: [], freed: [] });

/** Puts together what belongs to the same person or account: what is freed and what is spent are told at once. */
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

  free(owner: string, { name, amount }: ReservedChange): void {
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
    for (const { months, balances, freed } of this.#owners.values()) {
      part.months.push(...months);
      part.balances.push(...balances);
      part.freed.push(...freed);
      if (part.months.length + part.balances.length + part.freed.length < NEWS_PART_SIZE) continue;
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

/** Settles in the thread that it is made in. */
export class JournalSettler implements Settler {
  readonly #months = new MonthNames();

  constructor(readonly options: JournalSettlerOptions) {}

  async settle(order: SettleOrder): Promise<SettleReport> {
    const { entries, damaged, length } = readLines(order);
    const rows = entries.length + damaged.length;
    if (entries.length === 0) return { rows, length, damaged, news: [] };
    await this.options.tiers.load();
    const settled = await settleEntries(this.options, entries, order).catch((error: Error) => {
      throw isRefusal(error) ? new RefusedRows(error.message, entries.length) : error;
    });
    const news = this.#news(settled, order.reserved ? entries : []);
    return { rows, length, damaged, news: news.parts() };
  }

  #news({ months, balances }: Settlements, reserved: readonly JournalEntry[]): NewsByOwner {
    const news = new NewsByOwner();
    for (const month of months) news.of(month.userId).months.push(month);
    for (const change of balances) news.of(accountKey(change.account)).balances.push(change);
    for (const entry of reserved) {
      const owner = entry.hold === "points" ? accountKey(accountOf(entry)) : entry.userId;
      for (const change of this.#reservedBy(entry)) news.free(owner, change);
    }
    return news;
  }

  #reservedBy(entry: JournalEntry): readonly ReservedChange[] {
    const names = ({ userId, project, atMs }: JournalEntry) =>
      windowNames({ userId, project, month: this.#months.at(atMs) });
    return reservedBy(entry, { pointsPerUsd: this.options.pointsPerUsd, names });
  }
}
