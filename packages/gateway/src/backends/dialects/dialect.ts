import { isObject, membersOf, textOf } from "../../kernel/json.ts";
import type { AuthName, BackendError, DialectName, ModelInfo, NativeDialect } from "../contract.ts";
import type { ChatDelta } from "../shared/chat-events.ts";
import { boundedModels } from "../shared/probe.ts";
import type { AssistantTurn, ChatCall } from "./chat-turns.ts";

export interface ChatUsage {
  prompt_tokens: unknown;
  completion_tokens: unknown;
  total_tokens: unknown;
  prompt_tokens_details?: unknown;
  completion_tokens_details?: unknown;
  /** What the upstream charges for the request, in dollars. */
  cost?: unknown;
  /** The vendor's tier that answered, if it has its own rates. */
  service_tier?: unknown;
}

const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;

/** A stream's counts are running totals, so the largest of each wins. Invalid counts are kept, so that they show. */
export function largerCounts(before: object, now: object): Record<string, unknown> {
  const counts: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(now)) {
    const known = counts[name];
    if (value !== null && !(isCount(value) && isCount(known) && value < known)) counts[name] = value;
  }
  return counts;
}

/** The sum of those present; an invalid count is returned instead, so that it shows. */
export function sumOf(...counts: unknown[]): unknown {
  const given = counts.filter((count) => count != null);
  if (given.length === 0) return undefined;
  return given.find((count) => !isCount(count)) ?? given.reduce((a, b) => (a as number) + (b as number));
}

/** Counts are passed on as reported: the meter decides which of them can be true. */
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
  const given = Object.entries(membersOf(fields)).filter(([, value]) => value != null);
  return given.length > 0 ? Object.fromEntries(given) : null;
}

export interface ChatRequestOptions {
  model: string;
  stream: boolean;
  /** The original of an answer in the history, in the dialect's own form; null: unknown. */
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
  /** The answer in the dialect's own form, if it has parts that a chat lacks and must send back; else null. */
  content: unknown[] | null;
}

export type JsonObject = Record<string, unknown>;

export interface StreamConverter {
  /** Set once the answer is complete; later objects are ignored. */
  readonly answer: ChatAnswer | null;
  deltas(object: JsonObject): ChatDelta[];
  /** The stream has ended; this may complete the answer. */
  ended?(): void;
  failureOf(object: JsonObject): BackendError | null;
}

export interface Translation {
  request(body: Record<string, unknown>, options: ChatRequestOptions): Record<string, unknown>;
  answer(body: Record<string, unknown>): ChatAnswer;
  stream(): StreamConverter;
  usualOutputTokens?(model: string): number;
}

export interface Dialect {
  name: DialectName;
  /** The address before its paths, from the registered URL. */
  base(url: string): string;
  path(call: { model: string; stream: boolean }): string;
  auth: AuthName;
  headers?: Readonly<Record<string, string>>;
  /** Its list of models; `next` is the path of the next page, if there is one. */
  listing: {
    path: string;
    next?(body: unknown): string | null;
  };
  /** Absent: chat completions, which the gateway uses inside. */
  translation?: Translation;
  /** For requests that are passed on unchanged; absent for chat completions, which always are. */
  native?: Omit<NativeDialect, "post">;
}

/** `…/v1`, `…/v4`, `…/v1beta/openai`: a path with a version is used as it is. */
const VERSIONED = /\/v\d+[a-z0-9]*(\/|$)/i;
/** People paste whole endpoints from API references. */
const ENDPOINT = /\/(chat\/completions|completions|embeddings|models|responses|messages)$/i;

/** The registered URL, with `version` added if it has none. */
export function apiBase(url: string, version = "v1"): string {
  const base = url.replace(/\/+$/, "").replace(ENDPOINT, "");
  return VERSIONED.test(base) ? base : `${base}/${version}`;
}

/** The models of a listing in any of the usual wrappers; null: it is not a listing. */
export function modelsOfListing(body: unknown): ModelInfo[] | null {
  const list = Array.isArray(body) ? body : isObject(body) ? (body.data ?? body.models) : null;
  if (!Array.isArray(list)) return null;
  return boundedModels(list.flatMap((item) => modelOf(isObject(item) ? item : { id: item })));
}

function modelOf(item: Record<string, unknown>): ModelInfo[] {
  const listed = item.id ?? item.name;
  // Gateways like this one also list models that they cannot serve now.
  if (typeof listed !== "string" || item.available === false) return [];
  // Google's listing prefixes its ids.
  const id = listed.replace(/^models\//, "");
  const meta = metaOf(item);
  return [meta ? { id, meta } : { id }];
}

const META_MEMBERS_MAX = 32;
const META_CHARS_MAX = 256;

/** Numbers and short texts from llama.cpp's `meta`, and vLLM's context length. */
function metaOf({ meta, max_model_len }: Record<string, unknown>): Record<string, unknown> | null {
  const all = { ...membersOf(meta), ...(max_model_len !== undefined && { max_model_len }) };
  const plain = Object.entries(all).filter(
    ([name, value]) =>
      name.length <= META_CHARS_MAX &&
      (typeof value === "string" ? value.length <= META_CHARS_MAX : !(value instanceof Object)),
  );
  return plain.length > 0 ? Object.fromEntries(plain.slice(0, META_MEMBERS_MAX)) : null;
}

export const eventText = (data: object, name?: string): string =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;

export const errorMessage = (error: unknown): string =>
  textOf(membersOf(error).message) || "the upstream failed";

/** Renames an encrypted member to `data`, which is counted as encoded data; as text it would count several times. */
export function sealed(written: unknown, member: string): unknown {
  if (!isObject(written) || written[member] === undefined) return written;
  const { [member]: data, ...rest } = written;
  return { ...rest, data };
}
