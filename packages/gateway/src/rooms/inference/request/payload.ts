import type { JsonBody } from "../../../backends/contract.ts";
import { fail } from "../../../kernel/errors.ts";
import type { MessagesProblem } from "./messages-problem.ts";
import { ProtectedNames, SPEND_NAMES, type SpendFields } from "./spend-fields.ts";

/** Fields that are the gateway's own; no upstream sees them. */
const OWN_FIELDS: readonly string[] = ["conversation_id", "memory", "extra", "provider"];
/** What `extra` can never set. */
const PROTECTED: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "temperature",
  "max_tokens",
  "options",
]);
/** What a request for vectors, or for a text that goes on from a prompt, is about and charged for. */
const SUBJECTS: ReadonlySet<string> = new Set(["input", "prompt"]);
/** Lists of models that OpenRouter and LiteLLM may take instead of `model`: at another price, by other rights. */
const OTHER_MODELS: ReadonlySet<string> = new Set([
  "models",
  "fallbacks",
  "context_window_fallbacks",
  "content_policy_fallbacks",
]);
/** What the price of an image, a sound or a ranking depends on. */
export const IMAGE_COUNTS = [
  "num_images",
  "num_outputs",
  "number_of_images",
  "batch_size",
  "batch_count",
  "n_iter",
  "n_samples",
  "samples",
] as const;
/** Sizes under other names than `size`. */
export const IMAGE_SIDES = ["width", "height", "resolution", "image_size", "aspect_ratio"] as const;
const PRICED_FIELDS = [
  ...IMAGE_COUNTS,
  ...IMAGE_SIDES,
  "size",
  "quality",
  "partial_images",
  "query",
  "documents",
  "file",
];
/** Where some servers look for settings besides the top level: they may obey what stands there instead. */
const INNER_SETTINGS: ReadonlySet<string> = new Set([
  "extra_body",
  "generation_config",
  "generationConfig",
  "generationconfig",
  "parameters",
  "sampling_params",
]);
/** What must not stand there, because it decides what a request costs, or which model answers. */
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
  ...PRICED_FIELDS,
  ...INNER_SETTINGS,
]);
export const SPELLED_ONE_WAY_IN_OPTIONS = new ProtectedNames(SPEND_NAMES);

/** Refuses a key that some servers would take for another one, or that has another model answer. */
export function requireName(key: string, where = ""): void {
  SPELLED_ONE_WAY.require(key, where);
  if (!OTHER_MODELS.has(key)) return;
  const field = where + key;
  fail("missing_fields", `\`${field}\` is refused: name one model, in \`model\``, {
    data: { fields: [field] },
  });
}

export const isInnerSettings = (key: string): boolean => INNER_SETTINGS.has(key);

/** Refuses a member of such settings that has to stand at the top level, where it is read. */
export function requireOutside(key: string, settings: string): void {
  NOT_INSIDE.require(key, `${settings}.`);
  if (!NOT_INSIDE.has(key)) return;
  const field = `${settings}.${key}`;
  fail("missing_fields", `\`${field}\` is refused: put \`${key}\` at the top level of the request`, {
    data: { fields: [field] },
  });
}

/** Whether the field decides what a request costs, or which model answers. */
export const isSpelledOneWay = (key: string): boolean => SPELLED_ONE_WAY.has(key);

export const isOwnField = (key: string): boolean => OWN_FIELDS.includes(key);
export const hasOwnField = (payload: Pick<Payload, "has">): boolean =>
  OWN_FIELDS.some((key) => payload.has(key));

/** Whether a member of `extra` goes into what is sent, unless the gateway sets it. Throws for a bad name. */
export function isExtraSent(payload: Pick<Payload, "has">, key: string): boolean {
  requireName(key, "extra.");
  return !PROTECTED.has(key) && !(SUBJECTS.has(key) && payload.has(key));
}

export type Kind = "string" | "array" | "empty array" | "object" | "null" | "scalar";

/** What is sent, and how long it is, before a large one is turned into bytes. */
export interface ComposedBody extends JsonBody {
  /** In bytes, or for a text that is not bytes yet, in characters. */
  size(): number;
}

/** A request body whose top level is known: the client's own bytes, or what another API's request was turned into. */
export interface Payload {
  /** What is wrong with the messages; null where nothing is, or where there are none. */
  readonly messagesProblem: MessagesProblem | null;
  /** Whether there may be images or sounds in the messages. */
  readonly mayHaveMedia: boolean;
  has(key: string): boolean;
  /** Undefined when there is no such field. */
  kindOf(key: string): Kind | undefined;
  /** The parsed value; only for fields that the gateway must understand. */
  value(key: string): unknown;
  /** How many tokens an array of token numbers, or of such arrays, has; null when the field is something else. */
  tokenCount(key: string): number | null;
  /**
   * What the request, as it will be sent, says about the size of its answer. Throws the refusal of a limit that is
   * not a number, and of a key that some servers would take for one.
   */
  spendFields(): SpendFields;
  /**
   * What is sent upstream: `set` replaces or adds fields, given as JSON texts; the gateway's own fields go; the
   * members of an `extra` object are added, in place of a field of that name, but never of one in `set`.
   */
  compose(set: ReadonlyMap<string, string>): ComposedBody;
}
