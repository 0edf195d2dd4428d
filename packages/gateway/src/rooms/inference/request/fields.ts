import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { MODEL_ID_LENGTH_MAX } from "../../../kernel/request-row.ts";
import { estimateTokens } from "../../metering/index.ts";
import type { SpendFields } from "./field-rules.ts";
import type { NativeRequest, Payload } from "./payload.ts";

const TEXT_LENGTH_MAX = 256;

/** The fields of a chat request that the gateway itself uses. */
export interface ChatFields {
  model: string;
  stream: boolean;
  provider: string | null;
  conversationId: string | null;
  memory: boolean;
  spend: SpendFields;
  /** Whether the client asked for the usage chunk. */
  wantsUsage: boolean;
  streamOptions: Record<string, unknown> | null;
}

function optional<T>(payload: Payload, field: string, { is, expected }: Kind<T>): T | null {
  const value = payload.value(field) ?? null;
  if (value === null) return null;
  return is(value) ? value : failField(field, expected);
}

interface Kind<T> {
  is: (value: unknown) => value is T;
  expected: string;
}
const BOOLEAN: Kind<boolean> = {
  is: (v): v is boolean => typeof v === "boolean",
  expected: "must be true or false",
};
const NUMBER: Kind<number> = { is: (v): v is number => typeof v === "number", expected: "must be a number" };
const TEXT: Kind<string> = {
  is: (v): v is string => typeof v === "string" && v.length <= TEXT_LENGTH_MAX,
  expected: `must be a string of at most ${TEXT_LENGTH_MAX} characters`,
};
const STRING: Kind<string> = { is: (v): v is string => typeof v === "string", expected: "must be a string" };
const TOOLS: Kind<unknown[]> = { is: Array.isArray, expected: "must be an array of {type, function}" };
const OBJECT: Kind<Record<string, unknown>> = { is: isObject, expected: "must be an object" };

function modelOf(payload: Payload): string {
  const model = payload.value("model");
  if (typeof model !== "string" || model === "")
    return failField("model", "is required: a model id from GET /v1/models");
  if (model.length > MODEL_ID_LENGTH_MAX)
    return failField(
      "model",
      `is too long: at most ${MODEL_ID_LENGTH_MAX} characters, a model id from GET /v1/models`,
    );
  return model;
}

/** The same of a request in a vendor's dialect. */
export const nativeFields = ({ payload, model, stream, spend }: NativeRequest): ChatFields => ({
  model,
  stream,
  provider: optional(payload, "provider", TEXT),
  conversationId: null,
  memory: false,
  spend,
  wantsUsage: false,
  streamOptions: null,
});

function streamFields(payload: Payload): Pick<ChatFields, "stream" | "wantsUsage" | "streamOptions"> {
  const streamOptions = optional(payload, "stream_options", OBJECT);
  const wantsUsage = streamOptions?.include_usage === true;
  return { stream: optional(payload, "stream", BOOLEAN) ?? false, wantsUsage, streamOptions };
}

export function readChatFields(payload: Payload): ChatFields {
  const model = modelOf(payload);
  optional(payload, "tools", TOOLS);
  optional(payload, "temperature", NUMBER);
  const fields: ChatFields = {
    model,
    ...streamFields(payload),
    provider: optional(payload, "provider", TEXT),
    conversationId: optional(payload, "conversation_id", TEXT)?.toLowerCase() ?? null,
    memory: optional(payload, "memory", BOOLEAN) ?? true,
    spend: payload.spendFields(),
  };
  const { messagesProblem } = payload;
  if (messagesProblem) failField(messagesProblem.field, messagesProblem.expected);
  return fields;
}

/** The same of `POST /v1/completions`. */
export function readCompletionFields(payload: Payload): ChatFields {
  const model = modelOf(payload);
  const prompt = readPrompt(payload.value("prompt"));
  optional(payload, "suffix", STRING);
  const spend = payload.spendFields();
  // Each prompt gets that many answers.
  spend.choices *= prompt.count;
  spend.answers = Math.max(spend.answers, Number(payload.sent("best_of") ?? 1)) * prompt.count;
  spend.isNumbered = prompt.isNumbered;
  const extra = optional(payload, "extra", OBJECT);
  if (optional(payload, "echo", BOOLEAN) || extra?.echo)
    spend.predictionTokens += prompt.echoTokens() * spend.choices;
  return {
    model,
    ...streamFields(payload),
    provider: optional(payload, "provider", TEXT),
    conversationId: null,
    memory: false,
    spend,
  };
}

/** A text, texts, token numbers, or lists of these. Some servers read texts mixed with token numbers as one prompt. */
function readPrompt(prompt: unknown): {
  count: number;
  isNumbered: boolean;
  echoTokens(): number;
} {
  const isToken = (value: unknown): boolean => typeof value === "number";
  const isPrompt = (value: unknown): boolean =>
    typeof value === "string" || (Array.isArray(value) && value.length > 0 && value.every(isToken));
  const parts = Array.isArray(prompt) ? prompt : [prompt];
  if (parts.length === 0 || !parts.every((part) => isToken(part) || isPrompt(part)) || isToken(prompt))
    return failField("prompt", "is required: a string, an array of strings, or token numbers");
  return {
    count: Math.max(1, parts.filter((part) => !isToken(part)).length),
    isNumbered: !parts.some((part) => typeof part === "string"),
    echoTokens: () => estimateTokens(JSON.stringify(prompt)),
  };
}

export const readWorkFields = (payload: Payload): { model: string; provider: string | null } => ({
  model: modelOf(payload),
  provider: optional(payload, "provider", TEXT),
});

export function readEmbeddingsFields(payload: Payload): {
  model: string;
  provider: string | null;
  encoding: "float" | "base64";
} {
  const model = modelOf(payload);
  const input = payload.value("input");
  if (typeof input !== "string" && !(Array.isArray(input) && input.length > 0))
    failField("input", "is required: a string or an array of strings");
  const encoding = optional(payload, "encoding_format", TEXT) ?? "float";
  if (encoding !== "float" && encoding !== "base64") failField("encoding_format", "must be float or base64");
  return {
    model,
    provider: optional(payload, "provider", TEXT),
    encoding: encoding === "base64" ? "base64" : "float",
  };
}
