import { COUNT_NAMES, fold, LIMIT_NAMES } from "../spelling.ts";
import { countTokens } from "../tokens.ts";

type Json = Record<string, unknown>;

/** A chat request as the upstream understands it. */
export interface ChatReading {
  model: string;
  stream: boolean;
  promptTokens: number;
  choices: number;
  /** Null: no limit, or one that means none. */
  limit: number | null;
  predictionTokens: number;
  /** Whether usage is to be reported at the end of a stream. */
  tellsUsage: boolean;
}

const MESSAGE_TOKENS = 4;
/** A photograph at high detail. */
export const IMAGE_TOKENS = 765;

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Servers written in Go match keys without regard to case, and the last one wins. */
const lookUp = (body: Json, name: string): unknown =>
  Object.entries(body).findLast(([key]) => fold(key) === name)?.[1];

/** Figures of every known name, as lenient servers read them: numbers in text count too. */
function figures(body: Json, names: readonly string[]): number[] {
  const known = new Set(names.map(fold));
  return Object.entries(body)
    .filter(([key]) => known.has(fold(key)))
    .map(([, value]) => (typeof value === "string" && value !== "" ? Number(value) : value))
    .filter((value): value is number => typeof value === "number" && !Number.isNaN(value));
}

/** Zero and less mean "no limit" to several servers; of several limits the largest is obeyed. */
const largestLimit = (limits: readonly number[]): number | null => {
  if (limits.length === 0 || limits.some((limit) => limit <= 0)) return null;
  return Math.max(1, Math.floor(Math.max(...limits)));
};

const partTokens = (part: unknown): number => {
  if (!isObject(part)) return 0;
  const { image_url: image, type: _, ...rest } = part;
  return (image ? IMAGE_TOKENS : 0) + textTokens(rest);
};

/** Every text in a value, wherever it stands. */
const textTokens = (value: unknown): number => {
  if (typeof value === "string") return countTokens(value);
  if (typeof value !== "object" || value === null) return 0;
  return Object.values(value).reduce<number>((sum, inner) => sum + textTokens(inner), 0);
};

function messageTokens(message: unknown): number {
  if (!isObject(message)) return 0;
  const { content, images, tool_calls: calls } = message;
  const text = typeof content === "string" ? countTokens(content) : 0;
  const parts = Array.isArray(content) ? content.reduce<number>((sum, part) => sum + partTokens(part), 0) : 0;
  const pictures = Array.isArray(images) ? images.length * IMAGE_TOKENS : 0;
  return MESSAGE_TOKENS + text + parts + pictures + (calls ? countTokens(JSON.stringify(calls)) : 0);
}

const promptTokensOf = (messages: unknown, tools: unknown): number =>
  (Array.isArray(messages) ? messages.reduce<number>((sum, message) => sum + messageTokens(message), 0) : 0) +
  (tools ? countTokens(JSON.stringify(tools)) : 0);

/** A server of the chat-completions kind. */
export function readChat(body: Json): ChatReading {
  const options = lookUp(body, "options");
  const inside = isObject(options) ? options : {};
  const counts = [...figures(body, COUNT_NAMES), ...figures(inside, COUNT_NAMES)];
  const prediction = body.prediction;
  const streaming = lookUp(body, "stream_options");
  return {
    model: modelOf(body),
    stream: lookUp(body, "stream") === true,
    promptTokens: promptTokensOf(lookUp(body, "messages"), lookUp(body, "tools")),
    choices: Math.max(1, Math.floor(Math.max(1, ...counts))),
    limit: largestLimit([...figures(body, LIMIT_NAMES), ...figures(inside, LIMIT_NAMES)]),
    predictionTokens: isObject(prediction) ? countTokens(String(prediction.content ?? "")) : 0,
    tellsUsage: !isObject(streaming) || lookUp(streaming, "include_usage") !== false,
  };
}

/** A server of text completions: the same, with one answer or more to each prompt. */
export function readText(body: Json): ChatReading {
  const prompt = lookUp(body, "prompt");
  const chat = readChat(body);
  const prompts = Array.isArray(prompt) && typeof prompt[0] !== "number" ? Math.max(1, prompt.length) : 1;
  return {
    ...chat,
    promptTokens: embeddingTokens(prompt) + textTokens(lookUp(body, "suffix")),
    choices: chat.choices * prompts,
    predictionTokens: 0,
  };
}

/** Ollama's own API: one answer, and one limit, in `options`, whose keys are matched exactly. */
export function readOllama(body: Json): ChatReading {
  const options = lookUp(body, "options");
  return {
    model: modelOf(body),
    stream: lookUp(body, "stream") !== false,
    promptTokens: promptTokensOf(lookUp(body, "messages"), lookUp(body, "tools")),
    choices: 1,
    limit: isObject(options)
      ? largestLimit(figures({ num_predict: options.num_predict }, ["num_predict"]))
      : null,
    predictionTokens: 0,
    tellsUsage: true,
  };
}

/** The vendors' own APIs: one answer, and one limit under its own name. Pictures are where their data is. */
export function readDialect(body: Json, path: string): ChatReading {
  const config = lookUp(body, fold("generationConfig"));
  const limits = [
    ...figures(body, ["max_tokens", "max_output_tokens"]),
    ...(isObject(config) ? figures(config, ["maxOutputTokens"]) : []),
  ];
  const read = ["messages", "system", "input", "instructions", "contents", "systemInstruction", "tools"];
  return {
    model: /models\/([^:]+):/.exec(path)?.[1] ?? modelOf(body),
    stream: lookUp(body, "stream") === true || path.includes(":stream"),
    promptTokens: read.reduce((sum, name) => sum + textTokens(lookUp(body, fold(name))), 0),
    choices: 1,
    limit: largestLimit(limits),
    predictionTokens: 0,
    tellsUsage: true,
  };
}

/** Tokens of what is to be embedded; arrays of numbers are tokens already. */
export function embeddingTokens(input: unknown): number {
  if (typeof input === "string") return countTokens(input);
  if (typeof input === "number") return 1;
  return Array.isArray(input) ? input.reduce<number>((sum, one) => sum + embeddingTokens(one), 0) : 0;
}

export const modelOf = (body: Json): string => String(lookUp(body, "model"));
export const embeddingInput = (body: Json): unknown => lookUp(body, "input");
