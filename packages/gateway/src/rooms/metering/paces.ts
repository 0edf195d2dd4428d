import { BoundedMap } from "../../kernel/bounded.ts";

/** Typical for the faster vendor models. */
const TOKENS_PER_SECOND_UNKNOWN = 100;
/** No model writes faster: a quicker answer was cached and says nothing about the pace. */
const TOKENS_PER_SECOND_MOST = 3_000;
/** Shorter answers say little about the pace, because most of their time passes before the first token. */
export const TELLING_TOKENS = 500;
/** After this many new tokens, older knowledge has half its weight. */
const HALVED_BY_TOKENS = 20_000;

export interface LongAnswer {
  model: string;
  /** Of one choice, including hidden ones. */
  tokens: number;
  ms: number;
}

type Pace = Pick<LongAnswer, "tokens" | "ms">;

/** How fast models write one choice, learned from completed answers. Long answers count more. */
export class Paces {
  readonly #own = new BoundedMap<string, Pace>();
  /** From the rows of other instances and earlier runs, for models that this process has not seen. */
  readonly #others = new BoundedMap<string, Pace>();

  completed(answer: LongAnswer): void {
    add(this.#own, answer);
  }

  /** The middle one of a model's answers counts: rows do not tell over how many choices their tokens are spread. */
  learn(answers: readonly LongAnswer[]): void {
    this.#others.clear();
    for (const [model, known] of Map.groupBy(answers, (answer) => answer.model)) {
      const slowestFirst = known.sort((one, other) => one.tokens / one.ms - other.tokens / other.ms);
      this.#others.set(model, slowestFirst[(known.length - 1) >> 1]!);
    }
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
