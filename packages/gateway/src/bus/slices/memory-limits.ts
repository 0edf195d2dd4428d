import type { Clock } from "../../kernel/clock.ts";
import { Window, Windows } from "../in-process/windows.ts";
import {
  CALM_MS,
  LEFT_PER_AHEAD,
  type LimitAnswer,
  type LimitOrder,
  LONG_SLICE_MS,
  RECALL,
  RECALL_WAIT_MS,
  SLICE_MS,
} from "./contract.ts";

/** How much is given ahead of need, and for how long. */
const MEASURE = {
  leftPerAhead: LEFT_PER_AHEAD,
  /** A slice of at most this part of what is left, 1/64, lasts longer: it is missed by nobody. */
  leftPerLong: 64,
  /** Such a slice lasts at most for this part of the window: 1/6. */
  windowPerLong: 6,
};

interface Slice {
  hits: number;
  untilMs: number;
}

class SharedWindow extends Window {
  readonly #slices = new Map<string, Slice>();
  recalledAtMs = Number.NEGATIVE_INFINITY;

  /** Counts hits that may be used until `untilMs`, as of that time: no window has more than the limit. */
  give(id: string, slice: Slice): void {
    this.countAhead(slice.hits);
    this.#slices.set(id, slice);
  }

  /** Takes back what was not used of a slice. Nothing happens to one that is past, or of a key forgotten since. */
  end(id: string, unused: number, nowMs: number): void {
    const slice = this.#slices.get(id);
    if (!slice) return;
    this.#slices.delete(id);
    const { hits, untilMs } = slice;
    this.endAhead(hits, Math.max(0, hits - unused), Math.min(untilMs, nowMs));
  }

  /** Of a slice whose instance died nobody tells the end. */
  forgetSlices(nowMs: number): void {
    for (const [id, { hits, untilMs }] of this.#slices)
      if (nowMs - untilMs >= this.windowMs) this.end(id, hits, nowMs);
  }

  /** Whether an instance may have hits that it does not need. */
  isSlicedAt(nowMs: number): boolean {
    for (const { untilMs } of this.#slices.values()) if (untilMs > nowMs) return true;
    return false;
  }

  get hasRoomForSlice(): boolean {
    return this.hasRoom && this.#slices.size < SLICES_MAX;
  }

  protected override get oldestMs(): number {
    let oldestMs = super.oldestMs;
    for (const { untilMs } of this.#slices.values()) oldestMs = Math.min(oldestMs, untilMs);
    return oldestMs;
  }

  override isPast(nowMs: number): boolean {
    this.forgetSlices(nowMs);
    return super.isPast(nowMs) && this.#slices.size === 0;
  }
}

/** Slices of one key, so that those of instances that died are not too many. */
const SLICES_MAX = 256;

/** Counts the hits of all instances in the memory of one process: what the script on Redis does. */
export class MemoryLimits {
  readonly #windows = new Windows((windowMs) => new SharedWindow(windowMs));
  #given = 0;

  constructor(
    readonly clock: Clock,
    readonly measure = MEASURE,
  ) {}

  hit(orders: readonly LimitOrder[]): LimitAnswer[] {
    const nowMs = this.clock.elapsed();
    return orders.map((order) => this.#hit(order, nowMs));
  }

  #hit({ key, limit, windowMs, hits, ahead, ended, isFinal }: LimitOrder, nowMs: number): LimitAnswer {
    const window = this.#windows.of(key, windowMs, nowMs);
    window.forgetSlices(nowMs);
    if (ended) window.end(ended.slice, ended.unused, nowMs);
    const counted = window.count(hits, limit, nowMs);
    const none = { counted, waitMs: 0, ahead: 0, slice: "", sliceMs: 0 };
    if (counted < hits) {
      const isRecall = !isFinal && this.#recalls(window, nowMs);
      return { ...none, waitMs: isRecall ? RECALL : Math.max(1, Math.ceil(window.waitMs(nowMs))) };
    }
    if (nowMs - window.recalledAtMs <= CALM_MS || !window.hasRoomForSlice) return none;
    const { leftPerAhead, leftPerLong, windowPerLong } = this.measure;
    const left = window.left(limit);
    const given = Math.min(ahead, Math.floor(left / leftPerAhead));
    if (given <= 0) return none;
    const longMs = Math.max(SLICE_MS, Math.min(LONG_SLICE_MS, windowMs / windowPerLong));
    const sliceMs = given * leftPerLong <= left ? longMs : SLICE_MS;
    const slice = String(++this.#given);
    window.give(slice, { hits: given, untilMs: nowMs + sliceMs });
    return { ...none, ahead: given, slice, sliceMs };
  }

  /** Whether instances are to be asked for what they do not need, before a hit is refused. */
  #recalls(window: SharedWindow, nowMs: number): boolean {
    if (!window.isSlicedAt(nowMs)) return false;
    if (nowMs - window.recalledAtMs > CALM_MS) window.recalledAtMs = nowMs;
    return nowMs - window.recalledAtMs < RECALL_WAIT_MS;
  }
}
