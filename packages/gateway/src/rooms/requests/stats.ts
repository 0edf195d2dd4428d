import { isoTime } from "../../kernel/clock.ts";
import { quantile } from "../../kernel/quantile.ts";
import { BUCKET_COUNT, BUCKETS_MS, NANO_PER_USD, SUM_COLUMNS, type Time } from "../usage/index.ts";
import { type Outcome, outcomeOf } from "./filter.ts";
import type { KindCount, KindSums } from "./store.ts";

const GROUPS_SHOWN_MAX = 50;
const FIRST_TOKEN_AT = SUM_COLUMNS.indexOf("first_token_0");
const CACHE_AT = SUM_COLUMNS.indexOf("cached_tokens");
const DURATION_AT = SUM_COLUMNS.indexOf("duration_0");

const noCounts = (): Record<Outcome, number> => ({ ok: 0, refused: 0, failed: 0, left: 0 });
const noSums = (): number[] => SUM_COLUMNS.map(() => 0);

function addTo(sums: number[], more: readonly number[]): void {
  for (let i = 0; i < more.length; i++) sums[i]! += more[i]!;
}

class Tally {
  readonly counts = noCounts();
  readonly sums = noSums();
  /** Without refusals, which are quick and would make everything look fast. */
  readonly answered = noSums();

  add({ status, sums }: KindSums): void {
    const outcome = outcomeOf(status);
    this.counts[outcome] += sums[0]!;
    addTo(this.sums, sums);
    if (outcome === "ok") addTo(this.answered, sums);
  }

  get figures() {
    const [requests, promptTokens, completionTokens, costNanoUsd] = this.sums;
    const [cached, written, saved] = this.sums.slice(CACHE_AT);
    return {
      requests: requests!,
      ...this.counts,
      prompt_tokens: promptTokens!,
      completion_tokens: completionTokens!,
      cost_usd: costNanoUsd! / NANO_PER_USD,
      cached_tokens: cached!,
      cache_write_tokens: written!,
      cache_saved_usd: saved! / NANO_PER_USD,
      first_token: timesOf(this.answered, FIRST_TOKEN_AT),
      duration: timesOf(this.answered, DURATION_AT),
    };
  }
}

function timesOf(sums: readonly number[], at: number) {
  const counts = sums.slice(at, at + BUCKET_COUNT);
  const of = (share: number) => quantile({ counts, bounds: BUCKETS_MS }, share);
  const count = counts.reduce((total, each) => total + each, 0);
  return { count, p50_ms: of(0.5), p95_ms: of(0.95) };
}

export function totalsOf(kinds: readonly KindSums[]) {
  const tally = new Tally();
  for (const kind of kinds) tally.add(kind);
  return tally.figures;
}

export function groupsOf(kinds: readonly KindSums[], by: "surface" | "model" | "backend" | "code") {
  const counted = by === "code" ? kinds.filter(({ code }) => code !== "") : kinds;
  return Array.from(
    Map.groupBy(counted, (kind) => kind[by]),
    ([name, group]) => ({ name: name || null, ...totalsOf(group) }),
  )
    .sort((a, b) => b.requests - a.requests || ((a.name ?? "") < (b.name ?? "") ? -1 : 1))
    .slice(0, GROUPS_SHOWN_MAX);
}

interface Bins extends Time {
  binMs: number;
}

/** One bin for each part of the period, empty ones too. */
function binned<Name extends string>(
  counts: readonly KindCount[],
  { fromMs, belowMs, binMs }: Bins,
  empty: () => Record<Name, number>,
  nameOf: (count: KindCount) => Name,
) {
  const bins = Array.from({ length: Math.ceil((belowMs - fromMs) / binMs) }, empty);
  for (const count of counts) {
    const bin = bins[Math.floor((count.start_ms - fromMs) / binMs)];
    if (bin) bin[nameOf(count)] += count.requests;
  }
  return bins.map((bin, i) => ({ at: isoTime(fromMs + i * binMs), ...bin }));
}

export const binsOf = (counts: readonly KindCount[], bins: Bins) =>
  binned(counts, bins, noCounts, ({ status }) => outcomeOf(status));

const noOutcomes = () => ({ ok: 0, client_error: 0, upstream_error: 0, gateway_error: 0, client_left: 0 });

/** `gateway_error`: our own fault, or there was no backend. */
export const outcomesOf = (counts: readonly KindCount[], bins: Bins) =>
  binned(counts, bins, noOutcomes, ({ status, reached }) => {
    const failed = reached ? "upstream_error" : "gateway_error";
    return ({ ok: "ok", refused: "client_error", left: "client_left", failed } as const)[outcomeOf(status)];
  });

export function firstTokensOf(kinds: readonly KindSums[]) {
  const models = groupsOf(kinds, "model").flatMap(({ name: model, first_token }) =>
    model === null || first_token.count === 0 ? [] : [{ model, ...first_token }],
  );
  return { ...totalsOf(kinds).first_token, models };
}
