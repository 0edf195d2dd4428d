import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";

/** The part of the chat-completions request that the other APIs are turned into. */
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

/** Fields of the gateway's own chat body that every API may carry. */
export const GATEWAY_FIELDS = ["conversation_id", "memory", "provider", "extra"] as const;

/** The named fields that are there and not null. */
export function pick(body: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  const picked: Record<string, unknown> = {};
  for (const name of names) if (body[name] != null) picked[name] = body[name];
  return picked;
}

/** What streaming needs: the answer's usage comes as a chunk only when it is asked for. */
export const streamFields = (stream: unknown): Record<string, unknown> =>
  stream === true ? { stream: true, stream_options: { include_usage: true } } : {};

export const invalid = (path: string, problem: string): never =>
  fail("invalid_params", `\`${path}\`: ${problem}`);

export function stringAt(value: unknown, path: string): string {
  return typeof value === "string" ? value : invalid(path, "must be a string");
}

/** Checked here, where the field still has the name that the client gave it. */
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

/** The model of a request that is not read further. */
export function requireModelName(payload: { value(name: string): unknown }): string {
  return requestAt({ model: payload.value("model") }).model;
}

/** The request's body and its model, which every API calls the same. */
export function requestAt(value: unknown): { body: Record<string, unknown>; model: string } {
  const body = objectAt(value, "body");
  const model = stringAt(body.model, "model");
  if (model === "") invalid("model", "is required: an id from GET /v1/models");
  return { body, model };
}
