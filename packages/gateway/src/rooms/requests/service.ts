import type { Bus, EventHub } from "../../bus/contract.ts";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { type Ids, timeOfId } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { RequestRecord } from "../../kernel/request-record.ts";
import type { Metrics } from "../../observe/metrics.ts";
import type { Database, Sweep } from "../../storage/contract.ts";
import type { Groups } from "../groups/index.ts";
import { BlockStore, type ListedPage } from "./block-store.ts";
import { BUCKET_MS } from "./blocks.ts";
import { Captures } from "./captures.ts";
import { type Filter, isEveryone } from "./filter.ts";
import { DAY_MS, type Facet, firstIdAt, HOUR_MS, MINUTE_MS } from "./rows.ts";
import { binsOf, groupsOf, totalsOf } from "./stats.ts";
import { type Period, RequestStore } from "./store.ts";
import { Tail } from "./tail.ts";
import { viewOf } from "./view.ts";
import { RecordWriter, type WriterOptions } from "./writer.ts";

/** How long a reader waits for the requests that have just ended. */
const READ_FLUSH_MS = 1_000;
const CLOSE_FLUSH_MS = 2_000;
const LIST = { fallback: 50, max: 500 };
/** Bars of the histogram at most. */
const BINS_MAX = 100;
const ASKERS_SHOWN_MAX = 20;
const PERIOD_MS = { fallback: DAY_MS, max: 400 * DAY_MS };
/** Sums by minute are for the last hours; those by hour and day outlive the records, to compare with. */
const MINUTE_SUMS_KEPT_MS = 3 * DAY_MS;
const SUMS_OUTLIVE_FACTOR = 2;
/** The cut by number of rows is used for a while. */
const CUT_KEPT_MS = MINUTE_MS;

export interface RequestsOptions extends Pick<WriterOptions, "knownModel"> {
  db: Database;
  bus: Bus;
  events: EventHub;
  clock: Clock;
  ids: Ids;
  log: Log;
  metrics: Metrics;
  groups: Pick<Groups, "requireAdmin">;
  /** How long records are kept; 0: none are made. */
  keptDays: number;
  /** How many are kept. */
  keptMax: number;
}

/** Whose requests, and which of them. */
export interface Wanted {
  everyone?: boolean | undefined;
  group_id?: string | undefined;
  user_id?: string | undefined;
  key_id?: string | undefined;
  surface?: string | undefined;
  model?: string | undefined;
  backend?: string | undefined;
  code?: string | undefined;
  outcome?: Filter["outcome"] | undefined;
  since?: string | undefined;
  until?: string | undefined;
}

/** A record of every request, answered or not. */
export class Requests {
  readonly #store: RequestStore;
  readonly #blocks: BlockStore;
  readonly #writer: RecordWriter;
  readonly #tail: Tail;
  readonly #captures: Captures;
  #cut: { id: string | null; foundMs: number } | null = null;

  constructor(readonly options: RequestsOptions) {
    const { db, bus, events, clock, ids, log, metrics, knownModel } = options;
    this.#store = new RequestStore(db);
    this.#blocks = new BlockStore(db);
    this.#captures = new Captures({ db, clock, log });
    this.#tail = new Tail({ bus, events, clock, ids });
    const dropped = metrics.counter(
      "gateway_request_records_dropped_total",
      "Request records dropped because the database did not take them in time",
    );
    this.#writer = new RecordWriter({
      store: this.#store,
      clock,
      ids,
      log,
      dropped,
      knownModel,
      written: (written) => this.#tail.written(written),
      captured: (record) => this.#captures.take(record),
    });
  }

  /** The record of a request that begins; null when none are kept. */
  open(surface: string, id: string): RequestRecord | null {
    return this.options.keptDays === 0 ? null : new RequestRecord(this.#writer, surface, id);
  }

  async list(actor: Actor, wanted: Wanted & { cursor?: string | undefined; limit?: number | undefined }) {
    const filter = await this.#filter(actor, wanted, "requests.list");
    await this.#writer.flush(READ_FLUSH_MS);
    const limit = Math.min(LIST.max, Math.max(1, wanted.limit ?? LIST.fallback));
    const nowMs = this.options.clock.now();
    const fromMs = wanted.since ? Date.parse(wanted.since) : nowMs - PERIOD_MS.max;
    const belowMs = wanted.until ? Date.parse(wanted.until) : nowMs + HOUR_MS;
    const belowId = wanted.cursor && timeOfId(wanted.cursor) < belowMs ? wanted.cursor : firstIdAt(belowMs);
    const { records, nextCursor } = await this.#find(filter, { fromMs, belowId, limit });
    return { records: records.map(viewOf), next_cursor: nextCursor };
  }

  /** Only the times that hold such requests are looked through, the newest first. */
  async #find(
    filter: Filter,
    { fromMs, belowId, limit }: { fromMs: number; belowId: string; limit: number },
  ): Promise<ListedPage> {
    // Each hour has at least one, but for the first and the last, which may reach out of the period. One more than
    // asked for says whether there is another page.
    const within = { fromMs, belowMs: timeOfId(belowId) + 1, limit: limit + 3 };
    const marked = (await this.#store.marks(within)).map(({ from_ms, below_ms }) => ({
      startMs: from_ms,
      endMs: below_ms,
    }));
    const summed = isEveryone(filter.scope)
      ? (await this.#store.hours(filter, within)).map((startMs) => ({ startMs, endMs: startMs + HOUR_MS }))
      : (await this.#store.hoursOfAsker(filter, within)).map(({ first_ms, last_ms }) => ({
          startMs: first_ms,
          endMs: last_ms + 1,
        }));
    const ranges = joined([...marked, ...summed])
      .map(({ startMs, endMs }) => {
        const end = firstIdAt(endMs);
        return { fromId: firstIdAt(Math.max(startMs, fromMs)), belowId: end < belowId ? end : belowId };
      })
      .filter((range) => range.fromId < range.belowId);
    return this.#blocks.list(filter, ranges, limit);
  }

  async get(actor: Actor, id: string) {
    await this.#writer.flush(READ_FLUSH_MS);
    const found = await this.#blocks.find(id);
    const isOwn = found?.user_id === actor.userId;
    if (found && !isOwn && !actor.isAdmin) {
      if (found.group_id === null) fail("not_found", NOT_FOUND);
      await this.options.groups
        .requireAdmin(actor, found.group_id, "requests.get")
        .catch(() => fail("not_found", NOT_FOUND));
    }
    const record = viewOf(found ?? fail("not_found", NOT_FOUND));
    // Prompts are their author's and the operator's, not the group's.
    const captured = isOwn || actor.isAdmin ? await this.#captures.of(id) : null;
    return { ...record, captured };
  }

  /** Deletes the prompts that were captured of a key. */
  forgetCaptured(keyId: string): Promise<number> {
    return this.#captures.forget(keyId);
  }

  get sweepCaptures(): Sweep {
    return this.#captures.sweep;
  }

  async stats(actor: Actor, wanted: Wanted & { with_keys?: boolean | undefined }) {
    const filter = await this.#filter(actor, wanted, "requests.stats");
    await this.#writer.flush(READ_FLUSH_MS);
    const { period, binMs, before } = this.#periods(wanted);
    const [facetRows, sums, sumsBefore, bins, askers] = await Promise.all([
      this.#store.facets(),
      this.#store.sums(filter, period),
      this.#store.sums(filter, before),
      this.#store.bins(filter, period),
      wanted.with_keys ? this.#store.askers(filter, period, ASKERS_SHOWN_MAX) : [],
    ]);
    const facets = new Map(facetRows.map((facet): [number, Facet] => [facet.id, facet]));
    const { fromMs, belowMs } = period;
    return {
      since: isoTime(fromMs),
      until: isoTime(belowMs),
      bin_seconds: binMs / 1_000,
      bins: binsOf(bins, facets, { fromMs, belowMs, binMs }),
      totals: totalsOf(sums, facets),
      before: totalsOf(sumsBefore, facets),
      surfaces: groupsOf(sums, facets, "surface"),
      models: groupsOf(sums, facets, "model"),
      backends: groupsOf(sums, facets, "backend"),
      codes: groupsOf(sums, facets, "code"),
      keys: askers.map(({ cost_nano_usd, ...asker }) => ({ ...asker, cost_usd: cost_nano_usd / 1e9 })),
    };
  }

  /** The period in whole parts of its sums, the one of the same length before it, and how wide a bar is. */
  #periods({ since, until }: Wanted): { period: Period; before: Period; binMs: number } {
    const nowMs = this.options.clock.now();
    const untilMs = until ? Math.min(Date.parse(until), nowMs + DAY_MS) : nowMs;
    const sinceMs = Math.max(
      since ? Date.parse(since) : untilMs - PERIOD_MS.fallback,
      untilMs - PERIOD_MS.max,
      0,
    );
    if (sinceMs >= untilMs) fail("bad_since", "`since` must be before `until`");
    const lengthMs = untilMs - sinceMs;
    const isRecent = sinceMs - lengthMs > nowMs - MINUTE_SUMS_KEPT_MS;
    const grainMs =
      lengthMs <= DAY_MS + HOUR_MS && isRecent ? MINUTE_MS : lengthMs <= 8 * DAY_MS ? HOUR_MS : DAY_MS;
    const binMs = grainMs * Math.ceil(lengthMs / grainMs / BINS_MAX);
    const fromMs = sinceMs - (sinceMs % binMs);
    const belowMs = fromMs + Math.ceil((untilMs - fromMs) / binMs) * binMs;
    const period = { grainMs, fromMs, belowMs };
    return { period, before: { grainMs, fromMs: fromMs - (belowMs - fromMs), belowMs: fromMs }, binMs };
  }

  async #filter(actor: Actor, wanted: Wanted, method: string): Promise<Filter> {
    const { everyone, group_id, user_id, key_id, surface, model, backend, code, outcome } = wanted;
    if (group_id !== undefined) await this.options.groups.requireAdmin(actor, group_id, method);
    else if (everyone && !actor.isAdmin)
      fail("admin_required", "admin access required: everyone's requests are for administrators");
    const isOwn = group_id === undefined && !everyone;
    return {
      scope: {
        userId: isOwn ? actor.userId : (user_id ?? null),
        groupId: group_id ?? null,
        keyId: key_id ?? null,
      },
      surface: surface ?? null,
      model: model ?? null,
      backend: backend ?? null,
      code: code ?? null,
      outcome: outcome ?? null,
    };
  }

  /** Sends ended requests to a channel, until it is no longer renewed. */
  async watch(actor: Actor, wanted: Wanted & { stream_id?: string | undefined }) {
    const filter = await this.#filter(actor, wanted, "requests.watch");
    return this.#tail.watch(actor, filter, wanted.stream_id);
  }

  /** Removes records that are too old or too many. */
  readonly sweepRecords: Sweep = async (nowMs, rowsMax) => {
    const { keptDays, keptMax } = this.options;
    const old = await this.#blocks.deleteUpTo(firstIdAt(nowMs - keptDays * DAY_MS), rowsMax);
    if (old >= rowsMax) return old;
    if (!this.#cut || nowMs - this.#cut.foundMs > CUT_KEPT_MS)
      this.#cut = { id: await this.#store.idAfterNewest(keptMax), foundMs: nowMs };
    if (this.#cut.id === null) return old;
    return old + (await this.#blocks.deleteUpTo(this.#cut.id, rowsMax - old));
  };

  readonly sweepSums: Sweep = async (nowMs, rowsMax) => {
    const keptMs = this.options.keptDays * DAY_MS * SUMS_OUTLIVE_FACTOR;
    const limits: [number, number][] = [
      [MINUTE_MS, Math.min(MINUTE_SUMS_KEPT_MS, keptMs)],
      [HOUR_MS, keptMs],
      [DAY_MS, keptMs],
    ];
    let removed = 0;
    for (const [grainMs, ageMs] of limits) {
      if (removed < rowsMax)
        removed += await this.#store.deleteSumsBefore(grainMs, nowMs - ageMs, rowsMax - removed);
    }
    return (
      removed + (await this.#store.sweepMarks({ beforeMs: nowMs - keptMs, newId: this.options.ids.uuid() }))
    );
  };

  /** Resolves when what has ended so far can be read, or cannot be for now. */
  flush(timeoutMs: number): Promise<void> {
    return this.#writer.flush(timeoutMs);
  }

  async close(): Promise<void> {
    this.#tail.close();
    await this.#writer.close(CLOSE_FLUSH_MS);
    await this.#captures.close();
  }
}

const NOT_FOUND = "There is no such request, or it is no longer kept; requests.list shows yours";

interface Time {
  startMs: number;
  endMs: number;
}

/** Newest first; those that overlap, follow each other or share a block are one. */
function joined(times: readonly Time[]): Time[] {
  const all: Time[] = [];
  for (const { startMs, endMs } of times.toSorted((a, b) => b.endMs - a.endMs)) {
    const newer = all.at(-1);
    if (newer && endMs + BUCKET_MS > newer.startMs) newer.startMs = Math.min(newer.startMs, startMs);
    else all.push({ startMs, endMs });
  }
  return all;
}
