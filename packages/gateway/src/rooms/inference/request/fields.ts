import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { MODEL_ID_LENGTH_MAX } from "../../../kernel/request-row.ts";
import { REQUEST_TOKENS_MAX } from "../../../kernel/usage-parts.ts";
import { estimatePromptTokens, estimateTokens } from "../../metering/index.ts";
import type { NativeRequest, Payload } from "./payload.ts";

const TEXT_LENGTH_MAX = 256;

/** The fields of a chat request that the gateway itself uses. */
export interface ChatFields {
  model: string;
  stream: boolean;
  provider: string | null;
  conversationId?: string;
  memory?: boolean;
  spend: SpendFields;
  streamOptions?: Record<string, unknown> | null;
}

function optional<T>(payload: Payload, field: string, { is, expected }: Kind<T>): T | null {
  const value = payload.value(field) ?? null;
  if (value === null) return null;
  return is(value) ? value : failField(field, expected);
}

type Kind<T> = { is: (value: unknown) => value is T; expected: string };
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
  spend,
});

const streamFields = (payload: Payload): Pick<ChatFields, "stream" | "streamOptions"> => ({
  streamOptions: optional(payload, "stream_options", OBJECT),
  stream: optional(payload, "stream", BOOLEAN) ?? false,
});

export function readChatFields(payload: Payload): ChatFields {
  const model = modelOf(payload);
  optional(payload, "tools", TOOLS);
  optional(payload, "temperature", NUMBER);
  const fields: ChatFields = {
    model,
    ...streamFields(payload),
    provider: optional(payload, "provider", TEXT),
    conversationId: optional(payload, "conversation_id", TEXT)?.toLowerCase(),
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
    spend.predictionTokens += estimateTokens(JSON.stringify(payload.value("prompt"))) * spend.choices;
  return { model, ...streamFields(payload), provider: optional(payload, "provider", TEXT), spend };
}

/** A text, texts, token numbers, or lists of these. Some servers read texts mixed with token numbers as one prompt. */
function readPrompt(prompt: unknown): { count: number; isNumbered: boolean } {
  const isToken = (value: unknown): boolean => typeof value === "number";
  const isPrompt = (value: unknown): boolean =>
    typeof value === "string" || (Array.isArray(value) && value.length > 0 && value.every(isToken));
  const parts = Array.isArray(prompt) ? prompt : [prompt];
  if (parts.length === 0 || !parts.every((part) => isToken(part) || isPrompt(part)) || isToken(prompt))
    return failField("prompt", "is required: a string, an array of strings, or token numbers");
  return {
    count: Math.max(1, parts.filter((part) => !isToken(part)).length),
    isNumbered: !parts.some((part) => typeof part === "string"),
  };
}

export const readWorkFields = (payload: Payload): { model: string; provider: string | null } => ({
  model: modelOf(payload),
  provider: optional(payload, "provider", TEXT),
});

export function readEmbeddingsFields(payload: Payload) {
  const work = readWorkFields(payload);
  const input = payload.value("input");
  if (typeof input !== "string" && !(Array.isArray(input) && input.length > 0))
    failField("input", "is required: a string or an array of strings");
  const wanted = optional(payload, "encoding_format", TEXT) ?? "float";
  const encoding = (["float", "base64"] as const).find((each) => each === wanted);
  return { ...work, encoding: encoding ?? failField("encoding_format", "must be float or base64") };
}

/** The rules for field names: which decide the cost, which have one spelling, which are ours, what `extra` may set. */

/**
 * Fields that limit the output, under every name that servers use. The last two are what a case-insensitive server
 * makes of two others; they are lower case, so the check for other spellings does not catch them.
 */
const LIMIT_FIELDS = (
  "max_tokens max_completion_tokens max_output_tokens max_new_tokens max_gen_len max_length " +
  "max_tokens_to_sample num_predict n_predict maxOutputTokens maxTokens maxoutputtokens maxtokens"
).split(" ");

const COUNTS = "n best_of num_return_sequences candidate_count candidateCount candidatecount".split(" ");

/** Predicted output; what the answer does not use of it is charged as output. */
const PREDICTION = "prediction";
export const OPTIONS = "options";

/** Fields that limit or multiply the output. */
const KINDS: ReadonlyMap<string, "limit" | "count"> = new Map([
  ...LIMIT_FIELDS.map((name) => [name, "limit"] as const),
  ...COUNTS.map((name) => [name, "count"] as const),
]);
const SPEND_NAMES: readonly string[] = [...KINDS.keys(), PREDICTION, OPTIONS];

/** The number in such a field; null if it is absent or null. Throws if it is not a whole number in range. */
export function spendNumber(value: unknown, field: string): number | null {
  if (value == null) return null;
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= REQUEST_TOKENS_MAX)
    return value as number;
  const expected = `must be a whole number from 1 to ${REQUEST_TOKENS_MAX}`;
  return failField(field, `${expected}; leave it out for no limit of your own`);
}

/** Unicode case folding: besides capitals, only these two letters fold to a plain ASCII one. */
const folded = (key: string): string => key.toLowerCase().replaceAll("\u017f", "s").replaceAll("\u212a", "k");

/** Names that no other key may fold to: a case-insensitive server would read such a key as the name. */
class ProtectedNames {
  readonly names: ReadonlySet<string>;
  readonly #byFold: ReadonlyMap<string, string>;

  constructor(names: Iterable<string>) {
    this.names = new Set(names);
    this.#byFold = new Map(Array.from(this.names, (name) => [folded(name), name]));
  }

  /** Refuses another spelling of a protected name. Most keys are plain lower case and pass the first check. */
  require(key: string, where = ""): void {
    if (!UNUSUAL.test(key)) return;
    const name = this.#byFold.get(folded(key));
    if (name === undefined || this.names.has(key)) return;
    failField(where + key, `is refused: write \`${name}\`, the only spelling of this field`);
  }
}
const UNUSUAL = /[^a-z0-9_]/;

/** An output limit and where it is in the request. */
export interface OutputLimit {
  name: string;
  inOptions: boolean;
  value: number;
}

/** What a request says about the size of its answer. */
export class SpendFields {
  readonly limits: OutputLimit[] = [];
  /** Answers to hold for: the largest count under any name that some server knows. */
  choices = 1;
  /** Answers that will be written: the count under the API's own name. */
  answers = 1;
  predictionTokens = 0;
  /** The prompt consists of token numbers: count those, not their digits. */
  isNumbered = false;

  /** Records one of these fields; `where` is for the error message. */
  add(name: string, value: unknown, where: "" | "options." | "extra."): void {
    const number = spendNumber(value, where + name);
    if (number === null) return;
    if (name === "n" && where !== "options.") this.answers = number;
    if (KINDS.get(name) === "count") this.choices = Math.max(this.choices, number);
    else this.limits.push({ name, inOptions: where === "options.", value: number });
  }
}

/** The gateway's own fields, which no upstream sees. */
const OWN_FIELDS: readonly string[] = ["conversation_id", "memory", "extra", "provider"];
const PROTECTED: ReadonlySet<string> = new Set(
  "model messages stream temperature max_tokens options".split(" "),
);
/** The input that embeddings and text completions are charged for. */
const SUBJECTS: ReadonlySet<string> = new Set(["input", "prompt"]);
/** Model lists that let OpenRouter and LiteLLM replace `model`, at another price and past the key's model rules. */
const OTHER_MODELS: ReadonlySet<string> = new Set(
  "models fallbacks context_window_fallbacks content_policy_fallbacks".split(" "),
);
/** Objects in which some servers look for settings, and may prefer them to the top level. */
const INNER_SETTINGS: ReadonlySet<string> = new Set(
  "extra_body generation_config generationConfig generationconfig parameters sampling_params".split(" "),
);
/** Settings with which vendors charge more than the model's price; only these values pass. */
const TIERS = ["auto", "default", "standard", "standard_only", "flex"];
const PLAIN_WORDS: ReadonlyMap<string, readonly string[]> = new Map([
  ["service_tier", TIERS],
  ["serviceTier", TIERS],
  ["speed", ["standard"]],
  ["inference_geo", ["global"]],
]);
/** Fields that decide cost or model, and so must be at the top level. */
const NOT_INSIDE = new ProtectedNames(["model", "messages", ...SUBJECTS, ...SPEND_NAMES, ...OTHER_MODELS]);
const SPELLED_ONE_WAY = new ProtectedNames([
  ...PROTECTED,
  ...SUBJECTS,
  ...OWN_FIELDS,
  ...SPEND_NAMES,
  ...OTHER_MODELS,
  "stream_options",
  "tools",
  "echo",
  ...INNER_SETTINGS,
  ...PLAIN_WORDS.keys(),
]);
const SPELLED_ONE_WAY_IN_OPTIONS = new ProtectedNames(SPEND_NAMES);

/** Refuses a key that some servers read as another one, or that selects another model. */
export function requireName(key: string, where = ""): void {
  SPELLED_ONE_WAY.require(key, where);
  if (OTHER_MODELS.has(key)) failField(where + key, "is refused: name one model, in `model`");
}

/** Refuses a bad field name, and nested settings that must be at the top level. */
export function requireField(name: string, value: unknown, where = ""): void {
  requireName(name, where);
  requirePlain(name, value, where);
  if (!INNER_SETTINGS.has(name) || !isObject(value)) return;
  const settings = where + name;
  for (const [key, inner] of Object.entries(value)) {
    NOT_INSIDE.require(key, `${settings}.`);
    requirePlain(key, inner, `${settings}.`);
    if (NOT_INSIDE.names.has(key))
      failField(`${settings}.${key}`, `is refused: put \`${key}\` at the top level of the request`);
  }
}

function requirePlain(name: string, value: unknown, where: string): void {
  const words = PLAIN_WORDS.get(name);
  if (!words || value === null || typeof value === "number" || words.includes(String(value).toLowerCase()))
    return;
  const dearer = "is refused: it would cost more than the model's price";
  failField(where + name, `${dearer}; leave it out, or write ${words.at(-1)}`);
}

export const isOwnField = (key: string): boolean => OWN_FIELDS.includes(key);
export const hasOwnField = (payload: Payload): boolean => OWN_FIELDS.some((key) => payload.has(key));

export interface InnerField {
  name: string;
  value: unknown;
  /** Key and value, as they are sent. */
  member: Buffer | string;
}

export interface ExtraField extends InnerField {
  /** Whether it is sent, unless the gateway sets the field itself. */
  isSent: boolean;
}

/** The members of `extra`, each name once; throws if one is not allowed. */
export function readExtra(payload: Payload): ExtraField[] {
  if (!payload.has("extra")) return [];
  const byName = new Map(payload.inner("extra").map((field) => [field.name, field]));
  return Array.from(byName.values(), (field) => {
    const { name, value } = field;
    requireField(name, value, "extra.");
    return { ...field, isSent: !PROTECTED.has(name) && (!payload.has(name) || isOwnField(name)) };
  });
}

/** What a request, as it will be sent, says about the size of its answer. Throws if a limit is not a number. */
export function readSpendFields(payload: Payload): SpendFields {
  const spend = new SpendFields();
  const { extra } = payload;
  for (const name of payload.names()) {
    if (name === PREDICTION) spend.predictionTokens = tokensOf(payload.value(name));
    else if (name === OPTIONS) {
      for (const option of payload.inner(OPTIONS)) {
        SPELLED_ONE_WAY_IN_OPTIONS.require(option.name, "options.");
        if (KINDS.has(option.name)) spend.add(option.name, option.value, "options.");
      }
    } else if (KINDS.has(name)) spend.add(name, payload.value(name), "");
  }
  for (const { name, value, isSent } of extra) {
    if (isSent && name === PREDICTION) spend.predictionTokens = tokensOf(value);
    if (!KINDS.has(name)) continue;
    if (isSent) spend.add(name, value, "extra.");
    else spendNumber(value, `extra.${name}`);
  }
  return spend;
}

/** The same for Gemini, which has such fields in `settings` as well. */
export function geminiSpend(payload: Payload, settings: string): SpendFields {
  const spend = readSpendFields(payload);
  const given = payload.value(settings) ?? {};
  if (!isObject(given)) failField(settings, "must be an object");
  for (const { name, value } of payload.inner(settings)) {
    const field = `${settings}.${name}`;
    NOT_INSIDE.require(name, `${settings}.`);
    if (name === "candidateCount")
      spend.answers = spend.choices = Math.max(spend.choices, spendNumber(value, field) ?? 1);
    else if (name === "maxOutputTokens") {
      const limit = spendNumber(value, field);
      if (limit !== null) spend.limits.push({ name: field, inOptions: false, value: limit });
    } else if (NOT_INSIDE.names.has(name)) failField(field, "is refused: Gemini's API has no such setting");
  }
  return spend;
}

const tokensOf = (value: unknown): number =>
  estimatePromptTokens(Buffer.from(JSON.stringify(value) ?? ""), false);
