import { isObject } from "../../kernel/json.ts";
import type { AuthName, DialectName, ModelInfo, NativeDialect } from "../contract.ts";
import type { StreamConverter } from "../shared/converted-stream.ts";
import { boundedModels } from "../shared/probe.ts";
import type { AssistantTurn, ChatCall } from "./chat-turns.ts";

export interface ChatUsage {
  prompt_tokens: unknown;
  completion_tokens: unknown;
  total_tokens: unknown;
  prompt_tokens_details?: unknown;
  completion_tokens_details?: unknown;
  /** What the upstream itself asks for the request, in dollars. */
  cost?: unknown;
  /** The tier that answered, where it has rates of its own. */
  service_tier?: unknown;
}

const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;

/** Counts of a stream are running totals: of each the largest stands. What is no count stays, so that it is seen. */
export function largerCounts(before: object, now: object): Record<string, unknown> {
  const counts: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(now)) {
    const known = counts[name];
    if (value !== null && !(isCount(value) && isCount(known) && value < known)) counts[name] = value;
  }
  return counts;
}

/** The sum of those that are there; what is no count stays what it is, so that it is seen. */
export function sumOf(...counts: unknown[]): unknown {
  const given = counts.filter((count) => count !== undefined && count !== null);
  if (given.length === 0) return undefined;
  return given.find((count) => !isCount(count)) ?? given.reduce((a, b) => (a as number) + (b as number));
}

/** Figures are passed on as they were reported: the meter decides which of them can be true. */
export function chatUsageOf(usage: Omit<ChatUsage, "total_tokens">): ChatUsage | null {
  const { prompt_tokens: prompt, completion_tokens: completion, cost, service_tier } = usage;
  if (prompt == null && completion == null) return null;
  const prompts = present(usage.prompt_tokens_details);
  const completions = present(usage.completion_tokens_details);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt == null || completion == null ? undefined : sumOf(prompt, completion),
    ...(prompts && { prompt_tokens_details: prompts }),
    ...(completions && { completion_tokens_details: completions }),
    ...(cost !== undefined && { cost }),
    ...(service_tier === "flex" && { service_tier }),
  };
}

function present(fields: unknown): Record<string, unknown> | null {
  const given = Object.entries(isObject(fields) ? fields : {}).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return given.length > 0 ? Object.fromEntries(given) : null;
}

export interface ChatRequestOptions {
  model: string;
  stream: boolean;
  /** The answer that a turn of the history repeats, in the dialect's own form; null when it is not known. */
  kept(turn: AssistantTurn): unknown[] | null;
  wantsThoughts?: boolean;
}

export interface ChatAnswer {
  text: string;
  reasoning: string;
  refusal: string;
  calls: ChatCall[];
  finishReason: string;
  stopSequence?: unknown;
  usage: ChatUsage | null;
  images?: string[];
  logprobs?: unknown;
  /** The answer in the dialect's own form, where the chat form cannot hold all that has to be sent back; or null. */
  content: unknown[] | null;
}

export interface Translation {
  request(body: Record<string, unknown>, options: ChatRequestOptions): Record<string, unknown>;
  answer(body: Record<string, unknown>): ChatAnswer;
  stream(): StreamConverter;
  /** The limit of a chat that names none, where the API wants one. */
  usualOutputTokens?(model: string): number;
}

export interface Dialect {
  name: DialectName;
  /** Where its paths begin, from the URL as registered. */
  base(url: string): string;
  path(call: { model: string; stream: boolean }): string;
  auth: AuthName;
  headers?: Readonly<Record<string, string>>;
  /** The listing below the base; `next` is the page behind an answer, if there is one. */
  listing: {
    path: string;
    models(body: unknown): ModelInfo[] | null;
    next?(body: unknown): string | null;
  };
  /** Absent: the upstream speaks what the gateway speaks inside. */
  translation?: Translation;
  /** How requests pass as they are; absent where the gateway's own path does that. */
  native?: Omit<NativeDialect, "post">;
}

/** `…/v1`, `…/v4`, `…/v1beta/openai`: an operator who writes the version means exactly that path. */
const VERSIONED = /\/v\d+[a-z0-9]*(\/|$)/i;
/** Pasted from an API reference more often than one would think. */
const ENDPOINT = /\/(chat\/completions|completions|embeddings|models|responses|messages)$/i;

/** Where the paths of an API begin: the URL as registered, with `version` where it names none. */
export function apiBase(url: string, version = "v1"): string {
  const base = url.replace(/\/+$/, "").replace(ENDPOINT, "");
  return VERSIONED.test(base) ? base : `${base}/${version}`;
}

/** Ids of a model listing, in any of the usual wrappers; null when it is not a listing. */
export function modelsOfListing(body: unknown): ModelInfo[] | null {
  const list = Array.isArray(body) ? body : isObject(body) ? (body.data ?? body.models) : null;
  if (!Array.isArray(list)) return null;
  return boundedModels(list.flatMap((item) => modelOf(isObject(item) ? item : { id: item })));
}

function modelOf(item: Record<string, unknown>): ModelInfo[] {
  const listed = item.id ?? item.name;
  // Another gateway lists models that it would serve if it had a backend for them.
  if (typeof listed !== "string" || item.available === false) return [];
  // Google lists its models by their resource names, and takes them without.
  const id = listed.replace(/^models\//, "");
  const meta = metaOf(item);
  return [meta ? { id, meta } : { id }];
}

const META_MEMBERS_MAX = 32;
const META_CHARS_MAX = 256;

/** What llama.cpp says in `meta` and vLLM beside the id: plain figures and short texts, a bounded number of them. */
function metaOf({ meta, max_model_len }: Record<string, unknown>): Record<string, unknown> | null {
  const told = { ...(isObject(meta) && meta), ...(max_model_len !== undefined && { max_model_len }) };
  const plain = Object.entries(told).filter(
    ([name, value]) =>
      name.length <= META_CHARS_MAX &&
      (typeof value === "string" ? value.length <= META_CHARS_MAX : !(value instanceof Object)),
  );
  return plain.length > 0 ? Object.fromEntries(plain.slice(0, META_MEMBERS_MAX)) : null;
}

export const eventText = (data: object, name?: string): string =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;

/** The words of an error, in the forms that vendors have. */
export const wordsOf = (error: unknown): string =>
  isObject(error) && typeof error.message === "string" ? error.message : "the upstream failed";

/** What the model wrote, with a sealed member marked as encoded data: as text it would count several times as long. */
export function sealed(written: unknown, member: string): unknown {
  if (!isObject(written) || written[member] === undefined) return written;
  const { [member]: data, ...rest } = written;
  return { ...rest, data };
}
