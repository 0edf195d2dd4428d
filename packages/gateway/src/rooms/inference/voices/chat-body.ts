import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";

/** The parts of a chat-completions request that other APIs are translated to. */
export type ChatPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string; detail?: string } }
  | { type: "file"; file: { file_data: string; filename?: string } }
  | { type: "input_audio"; input_audio: unknown };

export interface ChatToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface ChatMessage {
  role: "system" | "user" | "assistant" | "tool";
  content: string | ChatPart[] | null;
  reasoning_content?: string;
  tool_calls?: ChatToolCall[];
  tool_call_id?: string;
}

export interface ChatTool {
  type: "function";
  function: { name: string; description?: string; parameters?: unknown; strict?: boolean };
}

export interface ChatBody {
  model: string;
  messages: ChatMessage[];
  tools?: ChatTool[];
  stream?: boolean;
  [field: string]: unknown;
}

/** The gateway's own fields, which every API may carry. */
export const GATEWAY_FIELDS = ["conversation_id", "memory", "provider", "extra"] as const;

/** Those of the named fields that are present and not null. */
export function pick(body: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  const picked: Record<string, unknown> = {};
  for (const name of names) if (body[name] != null) picked[name] = body[name];
  return picked;
}

/** The fields for streaming: usage comes as a chunk only if it is requested. */
export const streamFields = (stream: unknown): Record<string, unknown> =>
  stream === true ? { stream: true, stream_options: { include_usage: true } } : {};

export const invalid = (path: string, problem: string): never =>
  fail("invalid_params", `\`${path}\`: ${problem}`);

export function stringAt(value: unknown, path: string): string {
  return typeof value === "string" ? value : invalid(path, "must be a string");
}

/** Checked here, where the field still has its original name. */
export function countAt(value: unknown, path: string): number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0
    ? value
    : invalid(path, "must be a whole number, 0 or more");
}

export function objectAt(value: unknown, path: string): Record<string, unknown> {
  return isObject(value) ? value : invalid(path, "must be an object");
}

export function arrayAt(value: unknown, path: string): unknown[] {
  return Array.isArray(value) ? value : invalid(path, "must be an array");
}

/** The model of a request that passes verbatim. */
export function requireModelName(payload: { value(name: string): unknown }): string {
  return requestAt({ model: payload.value("model") }).model;
}

/** The request's body and its model, a field that every API has. */
export function requestAt(value: unknown): { body: Record<string, unknown>; model: string } {
  const body = objectAt(value, "body");
  const model = stringAt(body.model, "model");
  if (model === "") invalid("model", "is required: an id from GET /v1/models");
  return { body, model };
}
