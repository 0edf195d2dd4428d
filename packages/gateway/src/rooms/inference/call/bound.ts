import { hasEscapedLetters, withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { estimatePromptTokens, FETCHED_TOKENS, type TokenBound } from "../../metering/index.ts";
import { OPTIONS, type SpendFields } from "../request/field-rules.ts";
import type { Payload } from "../request/payload.ts";
import type { VendorTools } from "../request/vendor-side.ts";

/** Output tokens held initially when neither the request nor the price table limits the answer. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
const CONTEXT_TOKENS_UNKNOWN = 128_000;
/** We never limit an answer to less than this, unless the client asks for less. */
const OUTPUT_TOKENS_LOWERED_MIN = 256;

export interface SentBody {
  bytes(): Uint8Array | string;
}

export const bytesOf = (body: SentBody): Uint8Array => {
  const bytes = body.bytes();
  return typeof bytes === "string" ? Buffer.from(bytes) : bytes;
};

/** Allowance for the JSON around a list of token numbers, which is not charged. */
const FRAME_TOKENS = 50;

/** Tokens of a field that holds token numbers, plus the other fields. Null when it holds something else. */
function numberedTokens(payload: Payload, field: "input" | "prompt"): number | null {
  const tokens = payload.tokenCount(field);
  if (tokens === null) return null;
  const beside = estimatePromptTokens(bytesOf(payload.compose(new Map([[field, "[]"]]))), false);
  return tokens + Math.max(0, beside - FRAME_TOKENS);
}

export class EmbeddingsBound implements TokenBound {
  readonly outputTokensMax = 0;
  readonly outputTokensMin = 0;

  constructor(
    readonly body: SentBody,
    readonly payload: Payload,
  ) {}

  #promptTokens: number | null = null;

  get promptTokens(): number {
    this.#promptTokens ??=
      numberedTokens(this.payload, "input") ?? estimatePromptTokens(bytesOf(this.body), false);
    return this.#promptTokens;
  }
}

interface ChatBoundOptions {
  body: SentBody;
  payload: Payload;
  mayHaveMedia: boolean;
  spend: SpendFields;
  answers: number;
  tools: VendorTools | null;
  /** The longest answer of this model when nothing limits it, if known. */
  usualTokens?: number;
  contextTokens: number | null;
  /** Fields that limit the answer on the backend. */
  honoured: readonly string[];
}

/** The most that a chat can cost, from what is sent and what the model can write. */
export class ChatBound implements TokenBound {
  readonly outputTokensMax: number;
  readonly outputTokensMin: number;
  readonly isLimitSent: boolean;
  readonly tools: VendorTools | null;
  readonly #body: SentBody;
  readonly #mayHaveMedia: boolean;
  readonly answers: number;
  readonly #choices: number;
  readonly #contextTokens: number | null;
  readonly #predictionTokens: number;
  /** Set when the prompt may consist of token numbers. */
  readonly #numbered: Payload | null;
  #promptTokens: number | null = null;

  constructor({
    body,
    payload,
    mayHaveMedia,
    spend,
    answers,
    tools,
    usualTokens,
    contextTokens,
    honoured,
  }: ChatBoundOptions) {
    const { choices, predictionTokens, isNumbered } = spend;
    this.#numbered = isNumbered ? payload : null;
    this.tools = tools;
    this.#body = body;
    this.#mayHaveMedia = mayHaveMedia;
    this.answers = answers;
    this.#choices = choices;
    this.#contextTokens = contextTokens;
    this.#predictionTokens = predictionTokens;
    let largest = 0;
    let isLimitSent = false;
    for (const { name, inOptions, value } of spend.limits) {
      if (value > largest) largest = value;
      if (honoured.includes(inOptions ? `${OPTIONS}.${name}` : name)) isLimitSent = true;
    }
    // The server ignores a limit under a name that it does not know.
    const perChoice = isLimitSent ? largest : Math.max(largest, usualTokens ?? OUTPUT_TOKENS_UNKNOWN);
    this.isLimitSent = isLimitSent;
    this.outputTokensMax = perChoice * choices + this.#predictionTokens;
    this.outputTokensMin = Math.min(perChoice, OUTPUT_TOKENS_LOWERED_MIN) * choices + this.#predictionTokens;
  }

  get promptTokens(): number {
    this.#promptTokens ??= this.#countPrompt();
    return this.#promptTokens;
  }
  #countPrompt(): number {
    const numbered = this.#numbered && numberedTokens(this.#numbered, "prompt");
    const tokens = numbered ?? estimatePromptTokens(bytesOf(this.#body), this.#mayHaveMedia);
    return tokens < FETCHED_TOKENS ? tokens : (this.#contextTokens ?? CONTEXT_TOKENS_UNKNOWN);
  }

  mentions(word: RegExp): boolean {
    const text = Buffer.from(bytesOf(this.#body)).toString("latin1");
    // Checking for escapes is much cheaper than decoding them.
    return word.test(text) || (hasEscapedLetters(text) && word.test(withoutEscapedLetters(text)));
  }

  /** The output limit sent to the backend, over all choices; null when none was sent. */
  limitSentFor(loweredTo: number | null): number | null {
    if (loweredTo !== null) return loweredTo * this.#choices + this.#predictionTokens;
    return this.isLimitSent ? this.outputTokensMax : null;
  }

  /** The limit for each choice when this much is held for all of them. */
  perChoice(outputTokens: number): number {
    return Math.max(1, Math.floor((outputTokens - this.#predictionTokens) / this.#choices));
  }
}

/** Fields that cap each choice at `tokens`: all that the client used, and one that the backend honours. */
export function loweredFields(
  tokens: number,
  { payload, spend, honoured }: { payload: Payload; spend: SpendFields; honoured: readonly string[] },
): [string, string][] {
  const set = new Map<string, string>();
  const options: Record<string, number> = {};
  let isLimitSent = false;
  for (const { name, inOptions, value } of spend.limits) {
    const lowered = Math.min(value, tokens);
    if (inOptions) options[name] = lowered;
    else set.set(name, String(lowered));
    if (honoured.includes(inOptions ? `${OPTIONS}.${name}` : name)) isLimitSent = true;
  }
  if (Object.keys(options).length > 0) {
    set.set(OPTIONS, JSON.stringify({ ...(payload.value(OPTIONS) as object), ...options }));
  }
  if (!isLimitSent) set.set(honoured[0]!, String(tokens));
  return [...set];
}
