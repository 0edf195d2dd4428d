import { BoundedMap } from "../../kernel/bounded.ts";

/** About what the quicker models of the vendors write. */
const TOKENS_PER_SECOND_UNKNOWN = 100;
/** No model writes faster; a quicker answer was lying ready, and says nothing about one that is still written. */
const TOKENS_PER_SECOND_MOST = 3_000;
/** The time of shorter answers is mostly that until their first token: many of them say nothing about the pace. */
export const TELLING_TOKENS = 500;
/** When as much has been written again, what was known weighs half. */
const HALVED_BY_TOKENS = 20_000;

export interface LongAnswer {
  model: string;
  /** Of one choice, with those that nobody sees. */
  tokens: number;
  ms: number;
}

type Pace = Pick<LongAnswer, "tokens" | "ms">;

/** How fast models write one choice, by their completed answers. Long ones count for more. */
export class Paces {
  readonly #own = new BoundedMap<string, Pace>();
  /** Of models that this process has not seen write, from the rows of others and of earlier runs. */
  readonly #others = new BoundedMap<string, Pace>();

  /** A choice came to its end, and the upstream has said how long it was. */
  completed(answer: LongAnswer): void {
    add(this.#own, answer);
  }

  learn(answers: readonly LongAnswer[]): void {
    this.#others.clear();
    for (const answer of answers) add(this.#others, answer);
  }

  tokensIn(model: string, ms: number): number {
    const known = this.#own.get(model) ?? this.#others.get(model);
    const perSecond = known ? (1_000 * known.tokens) / known.ms : TOKENS_PER_SECOND_UNKNOWN;
    return (ms * Math.min(perSecond, TOKENS_PER_SECOND_MOST)) / 1_000;
  }
}

function add(paces: BoundedMap<string, Pace>, { model, tokens, ms }: LongAnswer): void {
  if (tokens < TELLING_TOKENS) return;
  const before = paces.get(model) ?? { tokens: 0, ms: 0 };
  const kept = HALVED_BY_TOKENS / (HALVED_BY_TOKENS + tokens);
  paces.set(model, {
    tokens: before.tokens * kept + tokens * tokens,
    ms: before.ms * kept + Math.max(1, ms) * tokens,
  });
}
