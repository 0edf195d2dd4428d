import type { Ids } from "../../kernel/ids.ts";
import { isObject } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";
import {
  type ChatDelta,
  ChatEvents,
  type ChatIdentity,
  completionBody,
  type ToolCallDelta,
  type Usage,
} from "../shared/chat-events.ts";
import type { StreamConverter } from "../shared/converted-stream.ts";

type Line = Record<string, unknown>;

/** Counts that are zero are left out by the server; null when it counted nothing at all. */
function usageOf({ prompt_eval_count: prompt, eval_count: completion }: Line): Usage | null {
  if (typeof prompt !== "number" && typeof completion !== "number") return null;
  const prompt_tokens = Number(prompt ?? 0);
  const completion_tokens = Number(completion ?? 0);
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
}

const finishReason = (line: Line, calledTools: boolean): string => {
  if (calledTools) return "tool_calls";
  return line.done_reason === "length" ? "length" : "stop";
};

/** Tool calls with their arguments as text, numbered on from `firstIndex`. */
function toolCallsOf(message: Line, { firstIndex, ids }: { firstIndex: number; ids: Ids }): ToolCallDelta[] {
  if (!Array.isArray(message.tool_calls)) return [];
  return message.tool_calls.filter(isObject).map((call, i) => {
    const fn = isObject(call.function) ? call.function : {};
    const args = fn.arguments ?? {};
    return {
      index: firstIndex + i,
      id: typeof call.id === "string" && call.id ? call.id : `call_${ids.uuid()}`,
      type: "function",
      function: {
        name: String(fn.name ?? ""),
        arguments: typeof args === "string" ? args : JSON.stringify(args),
      },
    };
  });
}

const logprobsOf = ({ logprobs }: Line) => (Array.isArray(logprobs) ? { content: logprobs } : undefined);
const messageOf = (line: Line): Line => (isObject(line.message) ? line.message : {});
const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The error that a line or a body reports, if any. */
export function errorOf({ error }: Line): string | null {
  if (error === undefined || error === null) return null;
  if (isObject(error) && typeof error.message === "string") return error.message;
  return typeof error === "string" ? error : JSON.stringify(error);
}

export function toCompletion(line: Line, { identity, ids }: { identity: ChatIdentity; ids: Ids }) {
  const message = messageOf(line);
  const calls = toolCallsOf(message, { firstIndex: 0, ids }).map(({ index: _, ...call }) => call);
  const thinking = text(message.thinking);
  return completionBody(identity, {
    message: {
      role: "assistant",
      content: text(message.content),
      ...(thinking && { reasoning_content: thinking }),
      ...(calls.length > 0 && { tool_calls: calls }),
    },
    finishReason: finishReason(line, calls.length > 0),
    usage: usageOf(line) ?? { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
    logprobs: logprobsOf(line),
  });
}

/** Turns the lines of a native stream into events, one at a time. */
export class ChatLineConverter implements StreamConverter {
  readonly #events: ChatEvents;
  readonly #ids: Ids;
  #toolCalls = 0;
  #done = false;

  constructor({ identity, ids }: { identity: ChatIdentity; ids: Ids }) {
    this.#events = new ChatEvents(identity);
    this.#ids = ids;
  }

  get done(): boolean {
    return this.#done;
  }

  failureOf(line: Line): BackendError | null {
    const error = errorOf(line);
    return error === null ? null : new BackendError("upstream", error, 500);
  }

  convert(line: Line): string {
    if (this.#done) return "";
    const message = messageOf(line);
    const delta: ChatDelta = {};
    const content = text(message.content);
    const thinking = text(message.thinking);
    const calls = toolCallsOf(message, { firstIndex: this.#toolCalls, ids: this.#ids });
    if (content) delta.content = content;
    if (thinking) delta.reasoning_content = thinking;
    if (calls.length > 0) {
      delta.tool_calls = calls;
      this.#toolCalls += calls.length;
    }
    let events = Object.keys(delta).length > 0 ? this.#events.delta(delta, logprobsOf(line)) : "";
    if (line.done === true) {
      this.#done = true;
      events += this.#events.end(finishReason(line, this.#toolCalls > 0), usageOf(line));
    }
    return events;
  }
}
