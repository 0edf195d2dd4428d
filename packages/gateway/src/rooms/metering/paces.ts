import { BoundedMap } from "../../kernel/bounded.ts";

/** About what the quicker models of the vendors write. */
const TOKENS_PER_SECOND_UNKNOWN = 100;
/** No model writes faster; a quicker answer was lying ready, and says nothing about one that is still written. */
const TOKENS_PER_SECOND_MOST = 3_000;
/** The time of shorter answers is mostly that until their first token: many of them say nothing about the pace. */
const TELLING_TOKENS = 500;
/** When as much has been written again, what was known weighs half. */
const HALVED_BY_TOKENS = 20_000;

/** How fast models write one choice, by their completed answers, with the tokens that nobody sees. Long ones count for more. */
export class Paces {
  readonly #of = new BoundedMap<string, { tokens: number; ms: number }>();

  /** A choice came to its end, and the upstream has said how long it was. */
  completed(model: string, tokens: number, ms: number): void {
    if (tokens < TELLING_TOKENS) return;
    const before = this.#of.get(model) ?? { tokens: 0, ms: 0 };
    const kept = HALVED_BY_TOKENS / (HALVED_BY_TOKENS + tokens);
    this.#of.set(model, {
      tokens: before.tokens * kept + tokens * tokens,
      ms: before.ms * kept + Math.max(1, ms) * tokens,
    });
  }

  tokensIn(model: string, ms: number): number {
    const known = this.#of.get(model);
    const perSecond = known ? (1_000 * known.tokens) / known.ms : TOKENS_PER_SECOND_UNKNOWN;
    return (ms * Math.min(perSecond, TOKENS_PER_SECOND_MOST)) / 1_000;
  }
}
