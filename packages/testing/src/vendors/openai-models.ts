/** What OpenAI's models take and cost, on chat completions and Responses alike. */
import type { Rates } from "./bill.ts";
import { type Desk, type ModelTurn, Refusal, spokenTokens, thinkingTokens, within } from "./model.ts";
import { readBySteps } from "./prefix-cache.ts";

// biome-ignore lint/suspicious/noExplicitAny: request bodies as they came
export type Json = any;

const CACHE_TOKENS_MIN = 1024;
const CACHE_STEP_TOKENS = 128;
const CACHE_TTL_MS = 30 * 60_000;
const OUTPUT_TOKENS_MAX = 128_000;
const LONG_PROMPT_TOKENS = 272_000;

export interface GptModel {
  rates: Rates;
  /** Writing to the cache is reported, and has a price. */
  isWriteBilled: boolean;
  efforts: readonly string[];
  /** What is in force when none is named. */
  effort: string | null;
  /** Tools on chat: with any effort; only where none is named; only with the explicit effort none; never. */
  chatTools: "always" | "unnamed" | "none" | "never";
  isChat: boolean;
  /** Thoughts are shown in `reasoning_content`, and have to come back with the calls that they led to, as DeepSeek has it. */
  showsThoughts?: boolean;
}

const rates = (input: number, cached: number, output: number, write?: number): Rates => {
  const plain = { input, cached, output, ...(write !== undefined && { write5m: write }) };
  const long = {
    input: input * 2,
    cached: cached * 2,
    output: output * 1.5,
    ...(write !== undefined && { write5m: write * 2 }),
  };
  return write === undefined ? plain : { ...plain, above: { promptTokens: LONG_PROMPT_TOKENS, rates: long } };
};
const EFFORTS = ["none", "low", "medium", "high", "xhigh"];

export const GPT_MODELS: Record<string, GptModel> = {
  "gpt-4.1": {
    ...{ rates: rates(2, 0.5, 8), isWriteBilled: false, efforts: [], effort: null },
    ...{ chatTools: "always", isChat: true },
  },
  "gpt-5.4": {
    ...{ rates: rates(2.5, 0.25, 15), isWriteBilled: false, efforts: EFFORTS, effort: "none" },
    ...{ chatTools: "unnamed", isChat: true },
  },
  "gpt-5.6-sol": {
    ...{ rates: rates(4, 0.4, 20, 5), isWriteBilled: true, efforts: EFFORTS, effort: "medium" },
    ...{ chatTools: "none", isChat: true },
  },
  "gpt-6.1-sol": {
    ...{ rates: rates(2, 0.1, 10, 2.5), isWriteBilled: true, efforts: EFFORTS.slice(1), effort: "medium" },
    ...{ chatTools: "never", isChat: true },
  },
  "gpt-5.5-pro": {
    ...{ rates: rates(30, 30, 180), isWriteBilled: false, efforts: EFFORTS.slice(2), effort: "high" },
    ...{ chatTools: "never", isChat: false },
  },
  "deepseek-v4-pro": {
    ...{ rates: rates(0.66, 0.022, 1.98), isWriteBilled: false, efforts: EFFORTS, effort: "high" },
    ...{ chatTools: "always", isChat: true, showsThoughts: true },
  },
};

const SAMPLING_FIELDS = ["temperature", "top_p", "logprobs"];

export interface RefusalFields {
  status?: number;
  param?: string | null;
  code?: string | null;
}

export function refuse(
  message: string,
  { status = 400, param = null, code = null }: RefusalFields = {},
): never {
  throw new Refusal(status, { error: { message, type: "invalid_request_error", param, code } });
}

export const modelOf = (id: string): GptModel =>
  GPT_MODELS[id] ??
  refuse(`The model \`${id}\` does not exist or you do not have access to it.`, {
    status: 404,
    code: "model_not_found",
  });

export function checkEffort(effort: string, model: GptModel, param: string): void {
  if (!model.efforts.includes(effort))
    refuse(`Unsupported value: '${param}' does not support '${effort}' with this model.`, {
      param,
      code: "unsupported_value",
    });
}

export function checkSampling(body: Json, effort: string | null): void {
  if (effort === null || effort === "none") return;
  const field = SAMPLING_FIELDS.find((name) => body[name] !== undefined);
  if (field)
    refuse(`Unsupported parameter: '${field}' is not supported with this model.`, {
      param: field,
      code: "unsupported_parameter",
    });
}

export interface Ran {
  turn: ModelTurn & { isCut: boolean };
  model: GptModel;
  promptTokens: number;
  cachedTokens: number;
  writtenTokens: number;
  reasoningTokens: number;
  outputTokens: number;
  /** Adds the request to the bill, whole or up to where the client left. */
  charge(id: string, share: number): void;
}

interface RunOptions {
  body: Json;
  /** All that the model reads, in the order in which it is cached. */
  prompt: string;
  step: number;
  tools: readonly string[];
  limit: number | undefined;
  isReasoning: boolean;
}

/** One turn of the model, with what it reads from the cache. */
export function run(desk: Desk, { body, prompt, step, tools, limit, isReasoning }: RunOptions): Ran {
  const model = modelOf(body.model);
  const asked = desk.script({ model: body.model, step, tools });
  const turn = within(
    { ...asked, thinking: isReasoning ? asked.thinking : undefined },
    limit ?? OUTPUT_TOKENS_MAX,
  );
  const { promptTokens, cachedTokens, writtenTokens, commit } = readBySteps(desk.cache, {
    scope: JSON.stringify([body.model, body.prompt_cache_key ?? null]),
    prompt,
    minTokens: CACHE_TOKENS_MIN,
    stepTokens: CACHE_STEP_TOKENS,
    ttlMs: CACHE_TTL_MS,
  });
  commit();
  const written = model.isWriteBilled ? writtenTokens : 0;
  const outputTokens = thinkingTokens(turn) + spokenTokens(turn);
  return {
    ...{ turn, model, promptTokens, cachedTokens, writtenTokens: written, outputTokens },
    reasoningTokens: thinkingTokens(turn),
    charge: (id, share) =>
      desk.bill.add(
        {
          ...{ id, model: body.model, cached: cachedTokens, write5m: written, write1h: 0 },
          fresh: promptTokens - cachedTokens - written,
          output: Math.ceil(outputTokens * share),
        },
        model.rates,
      ),
  };
}
