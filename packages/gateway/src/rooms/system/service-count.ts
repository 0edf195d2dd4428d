import { BoundedMap } from "../../kernel/bounded.ts";
import type { Needs } from "../foundation.ts";

const TOPIC = "service-count";
/** Counts are published at most this often. */
const TOLD_EVERY_MS = 50;
/** Maximum number of processes whose counts are kept, including ended ones. */
const PROCESSES_MAX = 1_000;

interface CountNews {
  startedAtMs: number;
  /** Counts by process: a process's own, or all known ones for a process that has just joined. */
  totals: [process: string, total: number][];
  isAnswer?: boolean;
}

/** A count over the last 60 seconds, in one-second slots. */
class PerMinute {
  #slots = new Uint32Array(60);
  #second = 0;

  #advance(nowMs: number): number {
    const second = Math.floor(nowMs / 1000);
    const passed = second - this.#second;
    if (passed >= 60 || passed < 0) this.#slots.fill(0);
    else for (let s = this.#second + 1; s <= second; s++) this.#slots[s % 60] = 0;
    this.#second = second;
    return second % 60;
  }

  add(count: number, nowMs: number): void {
    this.#slots[this.#advance(nowMs)]! += count;
  }

  sum(nowMs: number): number {
    this.#advance(nowMs);
    return this.#slots.reduce((total, count) => total + count, 0);
  }
}

/** Request count and age of the whole service. Processes exchange their counts. */
export class ServiceCount {
  readonly #me = crypto.randomUUID();
  readonly #totals = new BoundedMap<string, number>(PROCESSES_MAX);
  readonly #perMinute = new PerMinute();
  #own = 0;
  #startedAtMs: number;
  #cancelTelling: (() => void) | null = null;

  constructor(readonly options: Needs<"bus" | "clock">) {
    const { bus, clock } = options;
    this.#startedAtMs = clock.now();
    if (!bus.shared) return;
    bus.subscribe(TOPIC, (message) => this.#heard(JSON.parse(message) as CountNews));
    bus.onGap(() => this.join());
  }

  /** Announces this process; the others answer with what they know. */
  join(): void {
    this.#tell([]);
  }

  close(): void {
    this.#cancelTelling?.();
  }

  add(): void {
    const { bus, clock } = this.options;
    this.#own++;
    this.#perMinute.add(1, clock.now());
    if (!bus.shared) return;
    this.#cancelTelling ??= clock.after(TOLD_EVERY_MS, () => {
      this.#cancelTelling = null;
      this.#tell([[this.#me, this.#own]]);
    });
  }

  #tell(totals: CountNews["totals"], isAnswer?: true): void {
    const told: CountNews = { startedAtMs: this.#startedAtMs, totals, isAnswer };
    this.options.bus.publish(TOPIC, JSON.stringify(told));
  }

  #heard({ startedAtMs, totals, isAnswer }: CountNews): void {
    this.#startedAtMs = Math.min(this.#startedAtMs, startedAtMs);
    for (const [process, total] of totals) {
      const more = process === this.#me ? 0 : total - (this.#totals.get(process) ?? 0);
      if (more <= 0) continue;
      this.#totals.set(process, total);
      if (!isAnswer) this.#perMinute.add(more, this.options.clock.now());
    }
    if (totals.length === 0 && !isAnswer)
      this.#tell([...this.#totals.entries(), [this.#me, this.#own]], true);
  }

  report() {
    const nowMs = this.options.clock.now();
    const others = [...this.#totals.entries()].reduce((sum, [, total]) => sum + total, 0);
    return {
      requests_total: this.#own + others,
      requests_per_minute: this.#perMinute.sum(nowMs),
      uptime_seconds: Math.max(0, Math.floor((nowMs - this.#startedAtMs) / 1000)),
    };
  }
}
