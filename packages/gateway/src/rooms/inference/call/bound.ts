import { limitFieldsOf } from "../../../backends/contract.ts";
import type { ModelLimits } from "../../billing/index.ts";
import { estimatePromptTokens, samplePromptTokens, type TokenBound } from "../../metering/index.ts";
import type { Route } from "../../routing/index.ts";
import type { Payload } from "../request/payload.ts";
import { OPTIONS, type SpendFields } from "../request/spend-fields.ts";

/** What is held for at first when neither the request nor the price table says how long an answer may be. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
/** What an answer is not lowered below, unless its client asks for less. */
const OUTPUT_TOKENS_LOWERED_MIN = 256;

/** What is sent: its bytes are there once it was put together for a backend. */
export interface SentBody {
  bytes(): Uint8Array | string;
}

const bytesOf = (body: SentBody): Uint8Array => {
  const bytes = body.bytes();
  return typeof bytes === "string" ? Buffer.from(bytes) : bytes;
};

/** The most that an embeddings request can cost. */
export class EmbeddingsBound implements TokenBound {
  readonly outputTokensMax = 0;
  readonly outputTokensMin = 0;

  constructor(
    readonly body: SentBody,
    readonly payload: Payload,
  ) {}

  get promptTokens(): number {
    return this.payload.tokenCount("input") ?? samplePromptTokens(bytesOf(this.body), false);
  }
  /** The same from all of it, for what is settled by it. */
  countPromptTokens(): number {
    return this.payload.tokenCount("input") ?? estimatePromptTokens(bytesOf(this.body), false);
  }
}

export interface ChatBoundOptions {
  body: SentBody;
  /** Whether there may be images or sounds in it. */
  mayHaveMedia: boolean;
  spend: SpendFields;
  route: Route;
  limits: ModelLimits;
}

/** The most that a chat can cost, from what is sent and what the model can write. */
export class ChatBound implements TokenBound {
  readonly outputTokensMax: number;
  readonly outputTokensMin: number;
  /** Whether the backend is told a limit that it keeps to. */
  readonly isTold: boolean;
  readonly #body: SentBody;
  readonly #mayHaveMedia: boolean;
  readonly #choices: number;
  readonly #predictionTokens: number;
  readonly #promptTokens: number | null;

  constructor({ body, mayHaveMedia, spend, route, limits }: ChatBoundOptions) {
    const { choices, predictionTokens, promptTokens } = spend;
    this.#promptTokens = promptTokens;
    this.#body = body;
    this.#mayHaveMedia = mayHaveMedia;
    this.#choices = choices;
    this.#predictionTokens = predictionTokens;
    const honoured = limitFieldsOf(route.backend, route.model);
    const usual = limits.outputTokensMax ?? OUTPUT_TOKENS_UNKNOWN;
    let largest = 0;
    let isTold = false;
    for (const { name, inOptions, value } of spend.limits) {
      if (value > largest) largest = value;
      if (honoured.includes(inOptions ? `${OPTIONS}.${name}` : name)) isTold = true;
    }
    // A limit under a name that the server does not know is none.
    const perChoice = isTold ? largest : Math.max(largest, usual);
    this.isTold = isTold;
    this.outputTokensMax = perChoice * choices + this.#predictionTokens;
    this.outputTokensMin = Math.min(perChoice, OUTPUT_TOKENS_LOWERED_MIN) * choices + this.#predictionTokens;
  }

  get promptTokens(): number {
    return this.#promptTokens ?? samplePromptTokens(bytesOf(this.#body), this.#mayHaveMedia);
  }
  /** The same from all of it, for what is settled by it. */
  countPromptTokens(): number {
    return this.#promptTokens ?? estimatePromptTokens(bytesOf(this.#body), this.#mayHaveMedia);
  }

  /** The output tokens that the backend was told to keep to, all choices together; null when it was told nothing. */
  toldFor(loweredTo: number | null): number | null {
    if (loweredTo !== null) return loweredTo * this.#choices + this.#predictionTokens;
    return this.isTold ? this.outputTokensMax : null;
  }

  /** What each choice may have when this much is held for all of them. */
  perChoice(outputTokens: number): number {
    return Math.max(1, Math.floor((outputTokens - this.#predictionTokens) / this.#choices));
  }
}

/** Fields to set so that no choice becomes longer than `tokens`: those that the client used, and one that counts. */
export function loweredFields(
  tokens: number,
  { payload, spend, route }: { payload: Payload; spend: SpendFields; route: Route },
): [string, string][] {
  const honoured = limitFieldsOf(route.backend, route.model);
  const set = new Map<string, string>();
  const options: Record<string, number> = {};
  let isTold = false;
  for (const { name, inOptions, value } of spend.limits) {
    const lowered = Math.min(value, tokens);
    if (inOptions) options[name] = lowered;
    else set.set(name, String(lowered));
    if (honoured.includes(inOptions ? `${OPTIONS}.${name}` : name)) isTold = true;
  }
  if (Object.keys(options).length > 0) {
    set.set(OPTIONS, JSON.stringify({ ...(payload.value(OPTIONS) as object), ...options }));
  }
  if (!isTold) set.set(honoured[0]!, String(tokens));
  return [...set];
}
