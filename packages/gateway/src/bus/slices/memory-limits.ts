import type { Clock } from "../../kernel/clock.ts";
import { Window, Windows } from "../in-process/windows.ts";
import {
  CALM_MS,
  LEFT_PER_AHEAD,
  type LimitAnswer,
  type LimitOrder,
  RECALL,
  RECALL_WAIT_MS,
  SLICE_MS,
} from "./contract.ts";

class SharedWindow extends Window {
  /** When the last slice ends. */
  sliceEndMs = Number.NEGATIVE_INFINITY;
  recalledAtMs = Number.NEGATIVE_INFINITY;
}

/** Counts the hits of all instances in the memory of one process: what the script on Redis does. */
export class MemoryLimits {
  readonly #windows = new Windows((windowMs) => new SharedWindow(windowMs));

  constructor(
    readonly clock: Clock,
    readonly leftPerAhead = LEFT_PER_AHEAD,
  ) {}

  hit(orders: readonly LimitOrder[]): LimitAnswer[] {
    const nowMs = this.clock.elapsed();
    return orders.map((order) => this.#hit(order, nowMs));
  }

  #hit({ key, limit, windowMs, hits, ahead, ended, isFinal }: LimitOrder, nowMs: number): LimitAnswer {
    const window = this.#windows.of(key, windowMs, nowMs);
    if (ended) window.endAhead(ended.slice, ended.unused, nowMs);
    const counted = window.count(hits, limit, nowMs);
    if (counted < hits) {
      const isRecall = !isFinal && this.#recalls(window, nowMs);
      return {
        counted,
        waitMs: isRecall ? RECALL : Math.max(1, Math.ceil(window.waitMs(nowMs))),
        ahead: 0,
        slice: "",
      };
    }
    const given = this.#given(window, { limit, ahead }, nowMs);
    const untilMs = nowMs + SLICE_MS;
    const slice = given > 0 ? window.countAhead(given, untilMs) : null;
    if (slice === null) return { counted, waitMs: 0, ahead: 0, slice: "" };
    window.sliceEndMs = untilMs;
    return { counted, waitMs: 0, ahead: given, slice };
  }

  #given(window: SharedWindow, { limit, ahead }: Pick<LimitOrder, "limit" | "ahead">, nowMs: number): number {
    if (nowMs - window.recalledAtMs <= CALM_MS) return 0;
    return Math.min(ahead, Math.floor(window.left(limit) / this.leftPerAhead));
  }

  /** Whether instances are to be asked for what they do not need, before a hit is refused. */
  #recalls(window: SharedWindow, nowMs: number): boolean {
    if (window.sliceEndMs <= nowMs) return false;
    if (nowMs - window.recalledAtMs > CALM_MS) window.recalledAtMs = nowMs;
    return nowMs - window.recalledAtMs < RECALL_WAIT_MS;
  }
}
