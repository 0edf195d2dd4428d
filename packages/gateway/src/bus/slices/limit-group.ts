import { inBackground } from "../../kernel/background.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { Bus, RateLimiter } from "../contract.ts";
import {
  type LimitAnswer,
  type LimitOrder,
  type LimitServer,
  RECALL,
  RECALL_WAIT_MS,
  SLICE_MS,
} from "./contract.ts";

const KEYS_PER_CALL_MAX = 200;
const HITS_PER_KEY_MAX = 256;
/** A slice from which nothing was used for so many of these goes back. */
const PERIOD_MS = 250;
const IDLE_PERIODS = 4;
/** After asks within half a slice's time more is wanted ahead of need, after two such times nothing. */
const CLOSE_SLICES = 0.5;
const FAR_SLICES = 2;
/** Ahead of need: the least, how much more each time, and at most so many times what is asked for. */
const AHEAD = { least: 8, growth: 4, most: 1_024 };
/** The topic on which hits that others do not need are asked for. */
const RECALLED = "limits-recalled";

interface LimitGroupOptions {
  server: LimitServer;
  /** Counts while the server is unreachable: limits then apply per instance. */
  fallback: RateLimiter;
  bus: Bus;
  clock: Clock;
  log: Log;
}

/** A hit that waits for its answer. */
interface Waiting {
  limit: number;
  windowMs: number;
  isFinal: boolean;
  resolve(waitMs: number): void;
}

/** Hits that may be used without asking. */
interface Slice {
  id: string;
  left: number;
  untilMs: number;
  /** The limit that it was given under; a changed one is asked for. */
  limit: number;
  windowMs: number;
}

class LimitKey {
  slice: Slice | null = null;
  readonly line: Waiting[] = [];
  isSending = false;
  recalls = 0;
  recalledAtMs = Number.NEGATIVE_INFINITY;
  askedAtMs = Number.NEGATIVE_INFINITY;
  ahead = 0;
  /** How long the last slice could be used. */
  sliceMs = SLICE_MS;
  /** Periods since a hit was last taken from the slice. */
  idlePeriods = 0;

  constructor(readonly key: string) {}

  /** Takes a hit from the slice, where that has one for this limit. */
  takes(limit: number, windowMs: number, nowMs: number): boolean {
    const { slice } = this;
    if (!slice || slice.left === 0 || slice.limit !== limit || slice.windowMs !== windowMs) return false;
    if (nowMs >= slice.untilMs) return false;
    slice.left--;
    this.idlePeriods = 0;
    return true;
  }

  get isIdle(): boolean {
    return !this.isSending && this.slice === null && this.line.length === 0 && this.recalls === 0;
  }
}

interface Sent {
  key: LimitKey;
  hits: readonly Waiting[];
  order: LimitOrder;
}

/**
 * The limits that one server counts. Hits are taken from a slice that was counted ahead of need, as of the time at
 * which it ends, so that no window ever has more than the limit. For each key at most one message is on its way.
 */
export class LimitGroup {
  readonly #keys = new Map<string, LimitKey>();
  readonly #asking = new Set<LimitKey>();
  #willAsk = false;
  readonly #ends: (() => void)[];

  constructor(readonly options: LimitGroupOptions) {
    const { clock, bus } = options;
    this.#ends = [
      clock.every(PERIOD_MS, () => this.#giveBackIdle()),
      bus.subscribe(RECALLED, (key) => this.#giveBack(this.#keys.get(key))),
    ];
  }

  hit(key: string, limit: number, windowMs: number): number | Promise<number> {
    const { server, fallback, clock } = this.options;
    if (!server.available) return fallback.hit(key, limit, windowMs);
    let known = this.#keys.get(key);
    if (known?.takes(limit, windowMs, clock.elapsed())) return 0;
    if (!known) {
      known = new LimitKey(key);
      this.#keys.set(key, known);
    }
    const asked = known;
    return new Promise((resolve) => {
      asked.line.push({ limit, windowMs, isFinal: false, resolve });
      this.#askSoon(asked);
    });
  }

  /** All hits of one turn of the event loop go in one message. */
  #askSoon(key: LimitKey): void {
    this.#asking.add(key);
    if (this.#willAsk) return;
    this.#willAsk = true;
    queueMicrotask(() => {
      this.#willAsk = false;
      this.#send();
    });
  }

  #send(): void {
    let batch: Sent[] = [];
    for (const key of this.#asking) {
      if (key.isSending) continue;
      this.#asking.delete(key);
      const sent = this.#next(key);
      if (sent) batch.push(sent);
      if (batch.length < KEYS_PER_CALL_MAX) continue;
      this.#count(batch);
      batch = [];
    }
    if (batch.length > 0) this.#count(batch);
  }

  /** Hits of one limit are counted together. */
  #next(key: LimitKey): Sent | null {
    const { slice, line } = key;
    const [first] = line;
    if (!first && !slice) return null;
    const { limit, windowMs, isFinal } = first ?? { ...slice!, isFinal: true };
    const different = line.findIndex(
      (each) => each.limit !== limit || each.windowMs !== windowMs || each.isFinal !== isFinal,
    );
    const count = Math.min(different < 0 ? line.length : different, HITS_PER_KEY_MAX);
    const hits = line.splice(0, count);
    const isShort = !slice || slice.left === 0;
    if (slice) key.ahead -= slice.left;
    const order = {
      key: key.key,
      limit,
      windowMs,
      hits: count,
      ahead: count > 0 ? this.#wantedAhead(key, count, isShort) : 0,
      ended: slice && { slice: slice.id, unused: slice.left },
      isFinal,
    };
    key.slice = null;
    key.isSending = true;
    return { key, hits, order };
  }

  #wantedAhead(key: LimitKey, hits: number, isShort: boolean): number {
    const nowMs = this.options.clock.elapsed();
    const sinceMs = nowMs - key.askedAtMs;
    key.askedAtMs = nowMs;
    if (sinceMs >= FAR_SLICES * key.sliceMs) return 0;
    const { least, growth, most } = AHEAD;
    const isMore = isShort && sinceMs < CLOSE_SLICES * key.sliceMs;
    return Math.min(isMore ? Math.max(growth * key.ahead, least, hits) : key.ahead, most * hits);
  }

  #count(batch: readonly Sent[]): void {
    const { server, clock, log, fallback } = this.options;
    const sentAtMs = clock.elapsed();
    const counted = server.hit(batch.map(({ order }) => order)).then(
      (answers) => {
        for (const [index, sent] of batch.entries()) this.#answered(sent, answers[index]!, sentAtMs);
      },
      async (error) => {
        if (server.available) log.warn("shared rate limit failed; counting locally", { error });
        for (const { key, hits, order } of batch) {
          for (const { resolve } of hits) resolve(await fallback.hit(key.key, order.limit, order.windowMs));
          this.#go(key);
        }
      },
    );
    inBackground(log, "counting shared limits", counted);
  }

  #answered({ key, hits, order }: Sent, answer: LimitAnswer, sentAtMs: number): void {
    const { counted, waitMs, ahead, slice, sliceMs } = answer;
    if (order.ahead > 0) key.ahead = ahead;
    key.idlePeriods = 0;
    if (ahead > 0) {
      const { limit, windowMs } = order;
      key.slice = { id: slice, left: ahead, untilMs: sentAtMs + sliceMs, limit, windowMs };
      key.sliceMs = sliceMs;
    }
    for (const [index, hit] of hits.entries()) {
      if (index < counted) hit.resolve(0);
      else if (waitMs === RECALL) this.#recall(key, hit);
      else hit.resolve(waitMs);
    }
    this.#go(key);
  }

  #go(key: LimitKey): void {
    key.isSending = false;
    const { line } = key;
    const nowMs = this.options.clock.elapsed();
    // What came meanwhile is taken from what has just been given.
    while (line.length > 0 && key.takes(line[0]!.limit, line[0]!.windowMs, nowMs)) line.shift()!.resolve(0);
    if (line.length > 0) this.#askSoon(key);
  }

  /** Others are asked for what they do not need before a hit is refused. */
  #recall(key: LimitKey, hit: Waiting): void {
    const { bus, clock } = this.options;
    const nowMs = clock.elapsed();
    if (nowMs - key.recalledAtMs >= RECALL_WAIT_MS) {
      key.recalledAtMs = nowMs;
      bus.publish(RECALLED, key.key);
    }
    hit.isFinal = true;
    key.recalls++;
    clock.after(RECALL_WAIT_MS, () => {
      key.recalls--;
      key.line.push(hit);
      this.#askSoon(key);
    });
  }

  #giveBack(key: LimitKey | undefined): void {
    if (key?.slice) this.#askSoon(key);
  }

  #giveBackIdle(): void {
    const nowMs = this.options.clock.elapsed();
    for (const key of this.#keys.values()) {
      const { slice } = key;
      if (slice) {
        if (++key.idlePeriods >= IDLE_PERIODS || slice.untilMs <= nowMs) this.#askSoon(key);
      } else if (key.isIdle && nowMs - key.askedAtMs >= FAR_SLICES * key.sliceMs) this.#keys.delete(key.key);
    }
  }

  async close(): Promise<void> {
    for (const end of this.#ends) end();
    const { server } = this.options;
    const ended = [...this.#keys.values()].filter(({ slice, isSending }) => slice && !isSending);
    const orders = ended.flatMap((key) => this.#next(key)?.order ?? []);
    for (let at = 0; at < orders.length && server.available; at += KEYS_PER_CALL_MAX)
      await server.hit(orders.slice(at, at + KEYS_PER_CALL_MAX)).catch(() => {});
  }
}

/** Limits that are shared with other instances, and counted from slices of what all of them may count. */
export class SlicedRateLimiter implements RateLimiter {
  constructor(
    readonly groups: readonly LimitGroup[],
    readonly groupOf: (name: string) => number,
  ) {}

  hit(key: string, limit: number, windowMs: number): number | Promise<number> {
    if (limit <= 0) return windowMs;
    return this.groups[this.groupOf(key)]!.hit(key, limit, windowMs);
  }

  async close(): Promise<void> {
    await Promise.all(this.groups.map((group) => group.close()));
  }
}
