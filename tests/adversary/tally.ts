import { rowsByFlight } from "./checks.ts";
import { type Flight, REVOKED } from "./flights.ts";
import type { Verdict } from "./judge.ts";
import { deliveredTokens, usdOf } from "./owed.ts";

/** What a storm was made of: a proof is worth as much as what it tried. */
export class Tally {
  rounds = 0;
  requests = 0;
  servedUsd = 0;
  recordedUsd = 0;
  letThrough = 0;
  readonly #counts = new Map<string, number>();

  #count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  times(what: string): number {
    return this.#counts.get(what) ?? 0;
  }

  add({ round, books }: Verdict): void {
    this.rounds++;
    for (const [flight, rows] of rowsByFlight(books.rows, round.flights)) {
      this.requests++;
      this.#count(`surface: ${flight.asked.surface}`);
      this.#count(`outcome: ${outcomeOf(flight)}`);
      if (flight.outcome.left) this.#count(`left: at ${flight.asked.leave.at}`);
      if (flight.outcome.loweredTo !== null) this.#count("limit lowered by the gateway");
      if (rows[0]) this.#count(rows[0].points === null ? "paid by quota" : "paid by points");
      const { dispatch } = flight;
      if (!dispatch) continue;
      this.#count(`reports: ${flight.asked.plan.report}`);
      const tokens = { prompt: dispatch.promptTokens, completion: deliveredTokens(flight) };
      this.servedUsd += usdOf(dispatch.model, tokens) ?? 0;
      for (const { costUsd } of rows) this.recordedUsd += costUsd ?? 0;
    }
    for (const { step, task, left, status, words } of round.works)
      this.#count(
        `${step.kind}: ${left ? "left" : isRevoked(words) ? "revoked" : task.end === "whole" ? "served" : task.worthUsd === null ? `refused (${status})` : "failed upstream"}`,
      );
    for (const { jobId, status } of round.clips) this.#count(`clips: ${jobId === null ? "refused" : status}`);
    for (const debt of books.debts.values()) if (debt > 0) this.#count("debts");
  }

  lines(): string[] {
    const head = [
      `${this.rounds} rounds, ${this.requests} requests`,
      `served ${this.servedUsd.toFixed(2)} USD by the upstream's count, recorded ${this.recordedUsd.toFixed(2)} USD`,
    ];
    if (this.letThrough > 0) head.push(`${this.letThrough} checks were given up and let through`);
    return [
      ...head,
      ...[...this.#counts].sort().map(([what, times]) => `${String(times).padStart(7)}  ${what}`),
    ];
  }
}

const isRevoked = (words: string): boolean => words.includes(REVOKED);

function outcomeOf({ outcome, dispatch }: Flight): string {
  if (dispatch && isRevoked(outcome.words)) return "revoked";
  if (dispatch) return outcome.left ? "left" : outcome.status === 200 ? "served" : "failed upstream";
  return outcome.left ? "left before the upstream had it" : `refused (${outcome.status})`;
}
