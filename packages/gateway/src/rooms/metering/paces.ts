import { BoundedMap } from "../../kernel/bounded.ts";

const MODELS_MAX = 10_000;
/** Of a model that has not completed an answer yet: about what the quicker ones of the vendors write. */
const TOKENS_PER_SECOND_UNKNOWN = 100;
/** What an answer still weighs when the next one has come. */
const KEPT_SHARE = 0.9;

/** How fast models write, by their completed answers, with the tokens that nobody sees. */
export class Paces {
  readonly #of = new BoundedMap<string, { tokens: number; ms: number }>(MODELS_MAX);

  /** An answer came to its end, and the upstream has said how long it was. */
  completed(model: string, tokens: number, ms: number): void {
    const before = this.#of.get(model);
    this.#of.set(model, {
      tokens: (before?.tokens ?? 0) * KEPT_SHARE + tokens,
      ms: (before?.ms ?? 0) * KEPT_SHARE + Math.max(1, ms),
    });
  }

  /** What the model can have written in this time. */
  tokensIn(model: string, ms: number): number {
    const known = this.#of.get(model);
    return Math.ceil(ms * (known ? known.tokens / known.ms : TOKENS_PER_SECOND_UNKNOWN / 1_000));
  }
}
