import type { Clock } from "../../kernel/clock.ts";
import { quantile } from "../../kernel/quantile.ts";
import type { HistogramReading, Metrics } from "../../observe/metrics.ts";
import { CLIENT_LEFT_OUTCOME } from "../../observe/request-records.ts";

const MINUTE_MS = 60_000;
const MINUTES_KEPT = 60;
const MODELS_SHOWN_MAX = 20;
const REQUESTS = "gateway_inference_requests_total";
const REFUSALS = "gateway_inference_refusals_total";
const FIRST_CHUNK = "gateway_time_to_first_chunk_seconds";

/** How requests ended, as an operator sorts them. `gateway_error`: our own fault, or nobody there to serve it. */
const OUTCOME_NAMES = ["ok", "client_error", "upstream_error", "gateway_error", "client_left"] as const;
type Outcomes = Record<(typeof OUTCOME_NAMES)[number], number>;
/** Outcomes that the upstream did not cause; it caused all others. */
const OUTCOME_OF: Readonly<Record<string, keyof Outcomes>> = {
  ok: "ok",
  [CLIENT_LEFT_OUTCOME]: "client_left",
  request: "client_error",
  internal: "gateway_error",
};
const nothing = (): Outcomes => ({
  ok: 0,
  client_error: 0,
  upstream_error: 0,
  gateway_error: 0,
  client_left: 0,
});

type CountsByModel = Record<string, number[]>;

/** Counter values, or how much they rose. */
interface Reading {
  outcomes: Outcomes;
  firstTokens: CountsByModel;
}

/** What happened in one minute. Instances send each other the same form. */
export interface Minute extends Reading {
  atMs: number;
}

/**
 * The last hour, minute by minute, from readings of the metrics, at no cost to requests. What is kept is
 * bounded by the minutes and by the label sets that the metrics themselves allow.
 */
export class LastHour {
  /** Whole minutes, oldest first. */
  readonly #minutes: Minute[] = [];
  #base: Reading;
  #baseAtMs: number;
  readonly #stop: () => void;

  constructor(
    readonly clock: Clock,
    readonly metrics: Metrics,
  ) {
    this.#base = this.#read();
    this.#baseAtMs = clock.now();
    this.#stop = clock.every(MINUTE_MS, () => this.#turn());
  }

  close(): void {
    this.#stop();
  }

  #turn(): void {
    const now = this.#read();
    this.#minutes.push({ atMs: this.#baseAtMs, ...difference(now, this.#base) });
    if (this.#minutes.length > MINUTES_KEPT) this.#minutes.shift();
    this.#base = now;
    this.#baseAtMs = this.clock.now();
  }

  #read(): Reading {
    const outcomes = nothing();
    for (const { labels, value } of this.metrics.readCounter(REQUESTS))
      outcomes[OUTCOME_OF[labels.outcome ?? ""] ?? "upstream_error"] += value;
    for (const { labels, value } of this.metrics.readCounter(REFUSALS))
      outcomes[Number(labels.status) < 500 ? "client_error" : "gateway_error"] += value;
    const { series } = this.metrics.readHistogram(FIRST_CHUNK);
    const firstTokens = Object.fromEntries(
      series.map(({ labels, counts }) => [labels.model ?? "", [...counts]]),
    );
    return { outcomes, firstTokens };
  }

  /** The minutes of this process so far, the one under way last. */
  minutes(): Minute[] {
    const running = { atMs: this.#baseAtMs, ...difference(this.#read(), this.#base) };
    return [...this.#minutes, running].slice(-MINUTES_KEPT);
  }

  /** The minutes of all, by those of this process, and how long first tokens took in them. */
  report(others: readonly Minute[] = []) {
    const minutes = this.minutes().map((each) => structuredClone(each));
    for (const { atMs, outcomes, firstTokens } of others) {
      const same = minutes.findLast((each) => each.atMs <= atMs + MINUTE_MS / 2) ?? minutes[0]!;
      for (const name of OUTCOME_NAMES) same.outcomes[name] += outcomes[name];
      addTo(same.firstTokens, firstTokens);
    }
    const { bounds } = this.metrics.readHistogram(FIRST_CHUNK);
    const byModel: CountsByModel = {};
    for (const { firstTokens } of minutes) addTo(byModel, firstTokens);
    const all = Object.values(byModel).reduce<number[] | undefined>(sum, undefined);
    const models = Object.entries(byModel)
      .map(([model, counts]) => ({ model, ...figuresOf(counts, bounds) }))
      .sort((a, b) => b.count - a.count)
      .slice(0, MODELS_SHOWN_MAX);
    return {
      minutes: minutes.map(({ atMs, outcomes }) => ({ at: new Date(atMs).toISOString(), ...outcomes })),
      first_token: { ...figuresOf(all ?? [], bounds), models },
    };
  }
}

const sum = (a: readonly number[] | undefined, b: readonly number[]): number[] =>
  a ? a.map((value, i) => value + (b[i] ?? 0)) : [...b];

function addTo(total: CountsByModel, more: CountsByModel): void {
  for (const [model, counts] of Object.entries(more)) total[model] = sum(total[model], counts);
}

function difference(now: Reading, before: Reading): Reading {
  const outcomes = nothing();
  for (const name of OUTCOME_NAMES) outcomes[name] = now.outcomes[name] - before.outcomes[name];
  const firstTokens: CountsByModel = {};
  for (const [model, counts] of Object.entries(now.firstTokens)) {
    const past = before.firstTokens[model];
    const rise = past ? counts.map((value, i) => value - (past[i] ?? 0)) : counts;
    if (rise.some((value) => value > 0)) firstTokens[model] = rise;
  }
  return { outcomes, firstTokens };
}

function figuresOf(counts: readonly number[], bounds: HistogramReading["bounds"]) {
  const count = counts.reduce((total, value) => total + value, 0);
  const at = (share: number) => {
    const seconds = quantile({ counts, bounds }, share);
    return seconds === null ? null : Math.round(seconds * 10_000) / 10;
  };
  return { count, p50_ms: at(0.5), p95_ms: at(0.95) };
}
