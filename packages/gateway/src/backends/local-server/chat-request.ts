import { isObject } from "../../kernel/json.ts";
import { type OllamaMessage, toOllamaMessages } from "./messages.ts";

interface OllamaChatRequest {
  model: string;
  messages: OllamaMessage[];
  stream: boolean;
  tools?: unknown;
  format?: unknown;
  think?: unknown;
  options?: Record<string, unknown>;
  [field: string]: unknown;
}

/** Fields of the native API beside the ones converted here; they pass as they are. */
const NATIVE_FIELDS = ["keep_alive", "truncate", "shift", "logprobs", "top_logprobs"] as const;

/** Runtime options that have the same name and meaning in a chat-completions body. */
const OPTION_FIELDS = (
  "temperature top_p top_k min_p typical_p seed frequency_penalty presence_penalty repeat_penalty " +
  "repeat_last_n num_ctx num_batch num_gpu main_gpu use_mmap num_thread num_keep num_predict"
).split(" ");

const EFFORTS: ReadonlyMap<unknown, boolean | string> = new Map<unknown, boolean | string>([
  ["none", false],
  ["minimal", "low"],
  ["low", "low"],
  ["medium", "medium"],
  ["high", "high"],
  ["xhigh", "max"],
  ["max", "max"],
]);

/** Only what the client set: a default of ours would override the model's own. */
function optionsOf(body: Record<string, unknown>): Record<string, unknown> | undefined {
  const set: Record<string, unknown> = {};
  const put = (name: string, value: unknown) => {
    if (value !== undefined && value !== null) set[name] = value;
  };
  for (const name of OPTION_FIELDS) put(name, body[name]);
  put("repeat_penalty", body.repeat_penalty ?? body.repetition_penalty);
  put("num_predict", body.max_completion_tokens ?? body.max_tokens ?? body.num_predict);
  put("stop", typeof body.stop === "string" ? [body.stop] : body.stop);
  // A field of its own says more than the same option inside `options`, so it wins.
  const all = { ...(isObject(body.options) ? body.options : {}), ...set };
  return Object.keys(all).length > 0 ? all : undefined;
}

/** The native `format`: given as such, or meant by `response_format`. */
function formatOf({ format, response_format: wanted }: Record<string, unknown>): unknown {
  if (format !== undefined) return format;
  if (!isObject(wanted)) return undefined;
  if (wanted.type === "json_object") return "json";
  if (wanted.type === "json_schema" && isObject(wanted.json_schema)) return wanted.json_schema.schema;
  return undefined;
}

function thinkOf({ think, reasoning_effort: effort, reasoning }: Record<string, unknown>): unknown {
  return think ?? EFFORTS.get(effort ?? (isObject(reasoning) ? reasoning.effort : undefined));
}

export function toOllamaChat(
  body: Record<string, unknown>,
  { model, stream }: { model: string; stream: boolean },
): OllamaChatRequest {
  const request: OllamaChatRequest = { model, messages: toOllamaMessages(body.messages), stream };
  const put = (name: string, value: unknown) => {
    if (value !== undefined && value !== null) request[name] = value;
  };
  for (const name of NATIVE_FIELDS) put(name, body[name]);
  put("options", optionsOf(body));
  put("format", formatOf(body));
  put("think", thinkOf(body));
  // The native API has no tool_choice; leaving the tools out is the one choice that can be kept.
  if (body.tool_choice !== "none") put("tools", body.tools);
  return request;
}
