import { isoTime } from "../../kernel/clock.ts";
import { quantile } from "../../kernel/quantile.ts";
import type { Outcome } from "./filter.ts";
import {
  addSums,
  BUCKETS_MS,
  durationCounts,
  type Facet,
  firstTokenCounts,
  noSums,
  SUM_COLUMNS,
} from "./rows.ts";

const NANO_PER_USD = 1e9;
/** Rows of one breakdown; the rest is in the totals. */
const GROUPS_MAX = 50;

type Counts = Record<Outcome, number>;
const noCounts = (): Counts => ({ ok: 0, refused: 0, failed: 0, left: 0 });

export function outcomeOf(status: number): Outcome {
  if (status === 499) return "left";
  return status < 400 ? "ok" : status < 500 ? "refused" : "failed";
}

/** Requests of one kind: how they ended and what they took. */
class Tally {
  readonly counts = noCounts();
  readonly sums = noSums();
  /** Of what was answered: a refusal is quick, and would make everything look fast. */
  readonly answered = noSums();

  add(status: number, sums: readonly number[]): void {
    const outcome = outcomeOf(status);
    this.counts[outcome] += sums[0]!;
    addSums(this.sums, sums);
    if (outcome === "ok") addSums(this.answered, sums);
  }

  get figures() {
    const [requests, prompt_tokens, completion_tokens, costNanoUsd] = this.sums as [
      number,
      number,
      number,
      number,
    ];
    return {
      requests,
      ...this.counts,
      prompt_tokens,
      completion_tokens,
      cost_usd: costNanoUsd / NANO_PER_USD,
      first_token: timesOf(firstTokenCounts(this.answered)),
      duration: timesOf(durationCounts(this.answered)),
    };
  }
}

function timesOf(counts: readonly number[]) {
  const at = (share: number) => quantile({ counts, bounds: BUCKETS_MS, share });
  return { p50_ms: at(0.5), p95_ms: at(0.95) };
}

type SumsByFacet = readonly ({ facet_id: number } & Record<string, number>)[];

const valuesOf = (row: Record<string, number>): number[] => SUM_COLUMNS.map((column) => row[column] ?? 0);

/** Everything together. */
export function totalsOf(rows: SumsByFacet, facets: ReadonlyMap<number, Facet>) {
  const tally = new Tally();
  for (const row of rows) tally.add(facets.get(row.facet_id)?.status ?? 0, valuesOf(row));
  return tally.figures;
}

/** By one of the facets' members, the most frequent first. */
export function groupsOf(
  rows: SumsByFacet,
  facets: ReadonlyMap<number, Facet>,
  by: "surface" | "model" | "backend" | "code",
) {
  const tallies = new Map<string, Tally>();
  for (const row of rows) {
    const facet = facets.get(row.facet_id);
    if (!facet || (by === "code" && facet.code === "")) continue;
    let tally = tallies.get(facet[by]);
    if (!tally) {
      tally = new Tally();
      tallies.set(facet[by], tally);
    }
    tally.add(facet.status, valuesOf(row));
  }
  return Array.from(tallies, ([name, tally]) => ({ name: name || null, ...tally.figures }))
    .sort((a, b) => b.requests - a.requests || ((a.name ?? "") < (b.name ?? "") ? -1 : 1))
    .slice(0, GROUPS_MAX);
}

/** One bin for each part of the period, empty ones too. */
export function binsOf(
  rows: readonly { start_ms: number; facet_id: number; requests: number }[],
  facets: ReadonlyMap<number, Facet>,
  { fromMs, belowMs, binMs }: { fromMs: number; belowMs: number; binMs: number },
) {
  const bins: Counts[] = Array.from({ length: Math.ceil((belowMs - fromMs) / binMs) }, noCounts);
  for (const { start_ms, facet_id, requests } of rows) {
    const bin = bins[Math.floor((start_ms - fromMs) / binMs)];
    if (bin) bin[outcomeOf(facets.get(facet_id)?.status ?? 0)] += requests;
  }
  return bins.map((counts, i) => ({ at: isoTime(fromMs + i * binMs), ...counts }));
}
