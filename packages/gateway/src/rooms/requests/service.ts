import type { z } from "zod";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { type RecordSink, RequestRecord } from "../../kernel/request-record.ts";
import type { RequestLine } from "../../kernel/request-row.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Counter } from "../../observe/metrics.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Captures } from "../captures/index.ts";
import type { Needs } from "../foundation.ts";
import type { Groups } from "../groups/index.ts";
import type { Metering } from "../metering/index.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS, NANO_PER_USD, type Usage } from "../usage/index.ts";
import { type Filter, isOfPerson, matches } from "./filter.ts";
import type { StatsParams, Wanted } from "./methods.ts";
import { requestsEnded } from "./notifications.ts";
import { binsOf, firstTokensOf, groupsOf, outcomesOf, totalsOf } from "./stats.ts";
import { type Period, RequestStore } from "./store.ts";
import { listedOf, viewOf } from "./view.ts";

const LIST = { fallback: 50, max: 500 };
const BINS_MAX = 100;
const FAILURES_SHOWN = 50;
const PERIOD_MS = { fallback: DAY_MS, max: 400 * DAY_MS };
/** Sums by hour are kept longer than rows, to compare a period with the one before. */
const MINUTE_SUMS_KEPT_MS = 3 * DAY_MS;
const SUMS_OUTLIVE_FACTOR = 2;
/** Uncharged requests written per minute of one account, or of unknown callers. More are only counted. */
export const UNCHARGED_PER_MINUTE_MAX = 1_000;
const ACCOUNTS_MAX = 10_000;

export interface RequestsOptions
  extends Needs<"db" | "bus" | "events" | "clock" | "ids" | "log" | "metrics"> {
  captures: Captures;
  groups: Pick<Groups, "requireAdmin">;
  metering: Pick<Metering, "write">;
  usage: Pick<Usage, "settled">;
  /** The model for a name; null if no backend or route serves it. */
  knownModel(asked: string): string | null;
  /** How long uncharged requests are kept, and charged ones are listed; 0: none are recorded. */
  settings: { readonly requestRecordsDays: number; readonly requestRecordsMax: number };
}

export class Requests implements RecordSink {
  readonly clock: Clock;
  readonly #store: RequestStore;
  readonly #tail: Tail;
  readonly #unwritten: Counter;
  readonly #uncharged = new Map<string | null, number>();
  readonly #endMinutes: () => void;

  constructor(readonly options: RequestsOptions) {
    const { db, bus, events, clock, ids, metrics } = options;
    this.clock = clock;
    this.#store = new RequestStore(db);
    this.#tail = new Tail({ bus, events, clock, ids });
    this.#unwritten = metrics.counter(
      "gateway_requests_unwritten_total",
      "Requests without a charge that were counted only: a flood, or the journal was full",
    );
    this.#endMinutes = clock.every(MINUTE_MS, () => this.#uncharged.clear());
  }

  /** A record for a request that begins; null if none are kept. */
  open(surface: string, id: string): RequestRecord | null {
    return this.options.settings.requestRecordsDays === 0 ? null : new RequestRecord(this, surface, id);
  }

  ended(record: RequestRecord, nowMs: number): void {
    try {
      if (record.details.capture) this.options.captures.take(record);
      record.line ??= this.#written(record, nowMs);
      if (record.line) this.#tail.ended(record.line);
    } catch (error) {
      // Not thrown: the caller must still close the client's connection.
      this.#unwritten.add();
      this.options.log.error("a request could not be noted", { request_id: record.id, error });
    }
  }

  #written(record: RequestRecord, nowMs: number): RequestLine | null {
    const { principal, modelAsked, route, details } = record;
    const userId = principal?.userId ?? details.userId;
    const count = (this.#uncharged.get(userId) ?? 0) + 1;
    if (this.#uncharged.size < ACCOUNTS_MAX || count > 1) this.#uncharged.set(userId, count);
    const known = route === null ? modelAsked && this.options.knownModel(modelAsked) : route.model;
    const model = known ? known.replaceAll("\u0000", "").slice(0, MODEL_LENGTH_MAX) : null;
    const line: RequestLine = {
      ...record.facts(nowMs, known, null),
      requestId: record.id,
      atMs: nowMs,
      userId,
      keyId: principal?.keyId ?? null,
      attribution: principal?.keyPrefix ?? (userId === null ? null : `jwt-${userId}`),
      project: principal?.project ?? null,
      groupId: principal?.group?.id ?? null,
      model,
      promptTokens: record.promptTokens,
      completionTokens: record.completionTokens,
      estimated: record.isEstimated,
      costNanoUsd: record.costNanoUsd,
      channel: null,
      refId: details.refId,
    };
    if (count <= UNCHARGED_PER_MINUTE_MAX && this.options.metering.write(line)) return line;
    this.#unwritten.add();
    return null;
  }

  async list(actor: Actor, wanted: Wanted & { cursor?: string | undefined; limit?: number | undefined }) {
    const filter = await this.#filter(actor, wanted, "requests.list");
    await this.options.usage.settled();
    const limit = Math.min(LIST.max, Math.max(1, wanted.limit ?? LIST.fallback));
    const nowMs = this.clock.now();
    const rows = await this.#store.list(filter, {
      fromMs: Math.max(
        wanted.since ? Date.parse(wanted.since) : 0,
        nowMs - this.options.settings.requestRecordsDays * DAY_MS,
      ),
      belowMs: wanted.until ? Date.parse(wanted.until) : nowMs + HOUR_MS,
      cursor: wanted.cursor === undefined ? null : await this.#store.placeOf(wanted.cursor),
      // One more row shows whether there is another page.
      limit: limit + 1,
    });
    const records = rows.slice(0, limit);
    return { records: records.map(viewOf), next_cursor: rows.length > limit ? records.at(-1)!.id : null };
  }

  async get(actor: Actor, id: string) {
    await this.options.usage.settled();
    const notFound = () => fail("not_found", NOT_FOUND);
    const found = (await this.#store.find(id)) ?? notFound();
    const mayReadPrompts = found.user_id === actor.userId || actor.isAdmin;
    if (!mayReadPrompts && found.group_id === null) notFound();
    if (!mayReadPrompts && found.group_id !== null)
      await this.options.groups.requireAdmin(actor, found.group_id, "requests.get").catch(notFound);
    // Admins of the group may not read prompts.
    return { ...viewOf(found), captured: mayReadPrompts ? await this.options.captures.of(id) : null };
  }

  async stats(actor: Actor, wanted: z.output<typeof StatsParams>) {
    const filter = await this.#filter(actor, wanted, "requests.stats");
    await this.options.usage.settled();
    const { period, binMs, before } = this.#periods(wanted, isOfPerson(filter));
    const [{ kinds, counts }, earlier, askers] = await Promise.all([
      this.#store.sums(filter, period),
      this.#store.sums(filter, before),
      wanted.by ? this.#store.askers(filter, wanted.by, period) : [],
    ]);
    const { fromMs, belowMs } = period;
    return {
      since: isoTime(fromMs),
      until: isoTime(belowMs),
      bin_seconds: binMs / 1_000,
      bins: binsOf(counts, { fromMs, belowMs, binMs }),
      totals: totalsOf(kinds),
      before: totalsOf(earlier.kinds),
      surfaces: groupsOf(kinds, "surface"),
      models: groupsOf(kinds, "model"),
      backends: groupsOf(kinds, "backend"),
      codes: groupsOf(kinds, "code"),
      askers: askers.map(({ cost_nano_usd: nano, ...who }) => ({ ...who, cost_usd: nano / NANO_PER_USD })),
    };
  }

  /** The last hour of all instances, for operators. */
  async lastHour() {
    await this.options.usage.settled();
    const belowMs = (Math.floor(this.clock.now() / MINUTE_MS) + 1) * MINUTE_MS;
    const fromMs = belowMs - HOUR_MS;
    const [{ kinds, counts }, failures] = await Promise.all([
      this.#store.sums({}, { fromMs, belowMs, grainMs: MINUTE_MS }),
      this.#store.failuresSince(fromMs, FAILURES_SHOWN),
    ]);
    return {
      minutes: outcomesOf(counts, { fromMs, belowMs, binMs: MINUTE_MS }),
      first_token: firstTokensOf(kinds),
      failures: failures.map(({ id, ended_ms, ...same }) => ({
        ...same,
        at: isoTime(ended_ms),
        request_id: id,
        code: same.code ?? "",
        message: same.message ?? "",
      })),
    };
  }

  /** The period in whole bins, the one of the same length before it, and the width of a bin. */
  #periods({ since, until }: Wanted, isByDay: boolean): { period: Period; before: Period; binMs: number } {
    const nowMs = this.options.clock.now();
    const untilMs = until ? Math.min(Date.parse(until), nowMs + DAY_MS) : nowMs;
    const askedMs = since ? Date.parse(since) : untilMs - PERIOD_MS.fallback;
    const sinceMs = Math.max(askedMs, untilMs - PERIOD_MS.max, 0);
    if (sinceMs >= untilMs) fail("bad_since", "`since` must be before `until`");
    const lengthMs = untilMs - sinceMs;
    const isRecent = sinceMs - lengthMs > nowMs - MINUTE_SUMS_KEPT_MS;
    const isShort = lengthMs <= DAY_MS + HOUR_MS;
    // A person has no sums by hour, and counting the requests of a week takes seconds.
    const isByHour = isShort || (lengthMs <= 8 * DAY_MS && !isByDay);
    const grainMs = isShort && isRecent ? MINUTE_MS : isByHour ? HOUR_MS : DAY_MS;
    const binMs = grainMs * Math.ceil(lengthMs / grainMs / BINS_MAX);
    const fromMs = sinceMs - (sinceMs % binMs);
    const belowMs = fromMs + Math.ceil((untilMs - fromMs) / binMs) * binMs;
    const period = { grainMs, fromMs, belowMs };
    return { period, before: { grainMs, fromMs: fromMs - (belowMs - fromMs), belowMs: fromMs }, binMs };
  }

  async #filter(actor: Actor, wanted: Wanted, method: string): Promise<Filter> {
    const { everyone, group_id, user_id, key_id, project, ref_id } = wanted;
    const { surface, model, backend, code, outcome } = wanted;
    if (group_id !== undefined) await this.options.groups.requireAdmin(actor, group_id, method);
    else if (everyone && !actor.isAdmin)
      fail("admin_required", "admin access required: everyone's requests are for administrators");
    const isOwn = group_id === undefined && !everyone;
    const kind = { surface, model, backend, code, outcome };
    return { ...kind, group_id, key_id, project, ref_id, user_id: isOwn ? actor.userId : user_id };
  }

  async watch(actor: Actor, wanted: Wanted & { stream_id?: string | undefined }) {
    const filter = await this.#filter(actor, wanted, "requests.watch");
    return this.#tail.watch(actor, filter, wanted.stream_id);
  }

  readonly sweepRows: Sweep = (nowMs, rowsMax) => {
    const { requestRecordsDays: keptDays, requestRecordsMax: keptMax } = this.options.settings;
    return this.#store.deleteUncharged({ beforeMs: nowMs - keptDays * DAY_MS, keptMax }, rowsMax);
  };

  /** Sums by day are kept for good. */
  readonly sweepSums: Sweep = async (nowMs, rowsMax) => {
    const keptMs = this.options.settings.requestRecordsDays * DAY_MS * SUMS_OUTLIVE_FACTOR;
    const minutes = nowMs - Math.min(MINUTE_SUMS_KEPT_MS, keptMs);
    const removed = await this.#store.deleteSumsBefore(MINUTE_MS, minutes, rowsMax);
    if (removed >= rowsMax) return removed;
    return removed + (await this.#store.deleteSumsBefore(HOUR_MS, nowMs - keptMs, rowsMax - removed));
  };

  close(): void {
    this.#endMinutes();
    this.#tail.close();
  }
}

const NOT_FOUND = "There is no such request, or it is no longer kept; requests.list shows yours";
const MODEL_LENGTH_MAX = 128;

const WATCHED = "requests-watched";
/** A watcher that is not renewed in this time is dropped. */
const WATCHED_MS = 60_000;
const RENEW_SECONDS = 30;
const WATCHERS_MAX = 200;
/** Beyond this, the person's watcher that was renewed longest ago is dropped. */
const WATCHERS_PER_USER_MAX = 5;
/** Watchers are notified this often, or as soon as this many requests have ended. */
const NOTIFY_EVERY_MS = 500;
export const NOTIFY_AT_ONCE_MAX = 1_000;
/** The latest of them are shown; the rest are only counted. */
const SHOWN_MAX = 20;

interface Watcher {
  streamId: string;
  userId: string;
  filter: Filter;
  untilMs: number;
  /** Its rights may have changed; they are checked when it is renewed. */
  isPaused?: true;
}

/** Notifies watchers on all instances of requests that have just ended here. */
export class Tail {
  readonly #watchers = new Map<string, Watcher>();
  readonly #unsubscribe: (() => void)[];
  readonly #ended: RequestLine[] = [];
  #cancel: (() => void) | null = null;

  constructor(readonly options: Needs<"bus" | "events" | "clock" | "ids">) {
    this.#unsubscribe = [
      options.bus.subscribe(WATCHED, (message) => this.#watched(JSON.parse(message) as Watcher)),
      options.bus.subscribe(PRINCIPAL_CHANGED, (id) => this.#pause(id)),
    ];
  }

  watch(actor: Actor, filter: Filter, renewed: string | undefined) {
    const { bus, events, clock } = this.options;
    const { userId } = actor;
    this.#forgetOld();
    const known = renewed === undefined ? undefined : this.#watchers.get(renewed);
    if (known && known.userId !== userId) fail("not_found", "There is no such stream of yours");
    const streamId = known?.streamId ?? events.open(actor).sessionId;
    const watcher: Watcher = { streamId, userId, filter, untilMs: clock.now() + WATCHED_MS };
    bus.publish(WATCHED, JSON.stringify(watcher));
    return { stream_id: streamId, renew_after_seconds: RENEW_SECONDS };
  }

  #watched(watcher: Watcher): void {
    this.#forgetOld();
    this.#watchers.delete(watcher.streamId);
    const own = [...this.#watchers.values()].filter(({ userId }) => userId === watcher.userId);
    if (own.length >= WATCHERS_PER_USER_MAX) this.#watchers.delete(own[0]!.streamId);
    if (this.#watchers.size < WATCHERS_MAX) this.#watchers.set(watcher.streamId, watcher);
  }

  #forgetOld(): void {
    const nowMs = this.options.clock.now();
    for (const [streamId, { untilMs }] of this.#watchers)
      if (untilMs < nowMs) this.#watchers.delete(streamId);
  }

  #pause(id: string): void {
    for (const watcher of this.#watchers.values())
      if (watcher.userId === id || watcher.filter.group_id === id) watcher.isPaused = true;
  }

  ended(line: RequestLine): void {
    if (this.#watchers.size === 0) return;
    if (this.#ended.push(line) === NOTIFY_AT_ONCE_MAX) this.#notify();
    else this.#cancel ??= this.options.clock.after(NOTIFY_EVERY_MS, () => this.#notify());
  }

  #notify(): void {
    this.#cancel?.();
    this.#cancel = null;
    this.#forgetOld();
    const ended = this.#ended.splice(0).map(listedOf);
    for (const { streamId, filter, isPaused } of this.#watchers.values()) {
      if (isPaused) continue;
      const matching = ended.filter((row) => matches(filter, row));
      if (matching.length === 0) continue;
      const shown = matching.slice(-SHOWN_MAX).map(viewOf);
      const skipped = matching.length - shown.length;
      this.options.events.notify(streamId, requestsEnded, { stream_id: streamId, records: shown, skipped });
    }
  }

  close(): void {
    this.#cancel?.();
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
  }
}
