import { type Dispatch, type Flight, isBrokenOff } from "./flights.ts";
import { type ModelClass, PRICES } from "./plot.ts";
import { isPlausible } from "./upstream/usage.ts";

/**
 * The allowance for what nobody could know exactly: where the upstream's figures are missing, impossible, or
 * never arrived, the gateway may fall short of the upstream's count by this share, and by a few tokens that
 * chat templates add. Reported figures have no allowance.
 */
export const ESTIMATE_SLACK = { share: 0.2, tokens: 16 } as const;

export interface Tokens {
  prompt: number;
  completion: number;
  /** Of the prompt: read from the upstream's cache. */
  cached?: number;
}

export const NOTHING: Tokens = { prompt: 0, completion: 0 };

const estimated = (tokens: number): number =>
  Math.max(0, Math.floor(tokens * (1 - ESTIMATE_SLACK.share)) - ESTIMATE_SLACK.tokens);
const least = (a: Tokens, b: Tokens): Tokens => ({
  prompt: Math.min(a.prompt, b.prompt),
  completion: Math.min(a.completion, b.completion),
  cached: Math.max(a.cached ?? 0, b.cached ?? 0) || undefined,
});

/** What was said of a cache, where it can be true: a part of the prompt that is more than all of it is not believed. */
const cachedIn = ({ reported }: Dispatch): number | undefined =>
  reported?.cached !== undefined && isPlausible(reported.prompt) && reported.cached <= reported.prompt
    ? reported.cached
    : undefined;

/** Tokens of the pieces of an answer that the client really received. */
function deliveredOf({ outcome }: Flight, { pieces }: Dispatch): number {
  let sum = 0;
  for (const piece of outcome.seen) sum += pieces[piece] ?? 0;
  return sum;
}

export const deliveredTokens = (flight: Flight): number =>
  flight.dispatches.reduce((sum, dispatch) => sum + deliveredOf(flight, dispatch), 0);

/** What reached the client, with the prompt that it took: the settlement of an answer that was cut short. */
const counted = (flight: Flight, dispatch: Dispatch): Tokens => ({
  prompt: isUnderstated(flight) ? 0 : estimated(dispatch.promptTokens),
  completion: estimated(deliveredOf(flight, dispatch)),
  cached: cachedIn(dispatch),
});

/** A voice session whose upstream once reported less than it had heard: how much there is is then not known. */
const isUnderstated = ({ asked, dispatches }: Flight): boolean =>
  asked.responses !== undefined &&
  dispatches.some(
    ({ reported, promptTokens }) => isPlausible(reported?.prompt) && reported.prompt < promptTokens,
  );

/** The settlement of an answer that came to its end: the upstream's figures where they can be true. */
function finished(flight: Flight, dispatch: Dispatch): Tokens {
  const { reported } = dispatch;
  const count = counted(flight, dispatch);
  if (reported && isPlausible(reported.prompt) && isPlausible(reported.completion))
    return { prompt: reported.prompt, completion: reported.completion, cached: cachedIn(dispatch) };
  // One impossible figure may discredit the other one or not.
  return {
    prompt: isPlausible(reported?.prompt) ? Math.min(count.prompt, reported.prompt) : count.prompt,
    completion: isPlausible(reported?.completion)
      ? Math.min(count.completion, reported.completion)
      : count.completion,
  };
}

/** The tokens that the usage rows of a request must have at least; of a voice session, for all its responses. */
export const owedTokens = (flight: Flight): Tokens =>
  flight.dispatches.reduce((sum, dispatch) => {
    const { prompt, completion, cached = 0 } = owedFor(flight, dispatch);
    return {
      prompt: sum.prompt + prompt,
      completion: sum.completion + completion,
      cached: cached + (sum.cached ?? 0) || undefined,
    };
  }, NOTHING);

function owedFor(flight: Flight, dispatch: Dispatch): Tokens {
  const { outcome } = flight;
  const delivered = deliveredOf(flight, dispatch);
  const cut = counted(flight, dispatch);
  // A voice that began to answer on its own was silenced before anyone heard it.
  if (flight.asked.responses && delivered === 0 && !outcome.left) return NOTHING;
  switch (dispatch.end) {
    case "failed":
      // An upstream that fails without having said anything is not paid.
      return delivered > 0 ? cut : NOTHING;
    case "whole": {
      if (outcome.status !== 200 && !outcome.left) return NOTHING;
      if (delivered === 0 && dispatch.reported === null && !outcome.left) return NOTHING;
      const whole = finished(flight, dispatch);
      // It was over before it was broken off, or it was not: the gateway may have seen either.
      return isBrokenOff(outcome) && dispatch === flight.dispatch ? least(whole, cut) : whole;
    }
    default:
      return cut;
  }
}

const MILLION = 1_000_000;
export const classOf = (model: string): ModelClass =>
  (Object.keys(PRICES) as ModelClass[]).find((name) => model.includes(`${name}-`)) ?? "free";

/** The price of tokens of a model in USD; null: it has none. */
export function usdOf(model: string, { prompt, completion, cached = 0 }: Tokens): number | null {
  const price: { input: number; output: number; cached_input?: number } | null = PRICES[classOf(model)];
  if (price === null) return null;
  const read = Math.min(cached, prompt);
  const fresh = (prompt - read) * price.input + read * (price.cached_input ?? price.input);
  return (fresh + completion * price.output) / MILLION;
}
