import {
  EmbeddingsResult,
  ENGINE_PROTOCOL_VERSION,
  HandshakeResult,
  ModelsResult,
} from "@model-gateway/protocol/engine.ts";
import type { z } from "zod";
import { isObject } from "../../kernel/json.ts";
import { BackendError, type CapabilityName, type ModelInfo } from "../contract.ts";
import type { ChatDelta, Completion, ToolCallDelta } from "../shared/chat-events.ts";
import { boundedModels } from "../shared/probe.ts";

/** What an engine may declare, besides that its chats stream; unknown names are left for later versions. */
export const ENGINE_CAPABILITIES = ["chat", "embeddings", "video", "realtime", "invoke"] as const;
const CHAT_STREAM = "chat_stream";

/** An answer as its schema has it; anything else breaks the protocol. */
export function readAnswer<S extends z.ZodType>(schema: S, method: string, value: unknown): z.output<S> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const field = parsed.error.issues[0]?.path.map(String).join(".") || "result";
  throw new BackendError(
    "transport",
    `the engine answered ${method} in a form that it does not have: ${field}`,
  );
}

const known = (names: readonly string[]): CapabilityName[] =>
  ENGINE_CAPABILITIES.filter(
    (name) => names.includes(name) || (name === "chat" && names.includes(CHAT_STREAM)),
  );

export interface EngineIdentity {
  capabilities: ReadonlySet<CapabilityName>;
  /** Whether answers can be streamed; without that, a stream is one event. */
  streams: boolean;
}

export function readHandshake(result: unknown): EngineIdentity {
  const { protocol, capabilities } = readAnswer(HandshakeResult, "Engine.Handshake", result);
  if (protocol !== ENGINE_PROTOCOL_VERSION) {
    throw new BackendError(
      "transport",
      `the engine speaks protocol ${protocol}, this gateway speaks ${ENGINE_PROTOCOL_VERSION}`,
    );
  }
  return { capabilities: new Set(known(capabilities)), streams: capabilities.includes(CHAT_STREAM) };
}

export const readModels = (result: unknown): ModelInfo[] =>
  boundedModels(
    readAnswer(ModelsResult, "Engine.Models", result).models.map(({ id, capabilities }) => ({
      id,
      ...(capabilities && { capabilities: known(capabilities) }),
    })),
  );

export function readEmbeddings(result: unknown): { vectors: number[][]; promptTokens: number } {
  const { data, usage } = readAnswer(EmbeddingsResult, "Engine.Embeddings", result);
  return { vectors: data, promptTokens: usage?.prompt_tokens ?? 0 };
}

export function toChatParams(body: Record<string, unknown>, model: string): Record<string, unknown> {
  const { stream: _, stream_options: __, ...rest } = body;
  return { ...rest, model };
}

/** Tool calls with text arguments and the type that clients insist on; pieces stay pieces. */
function toolCallsOf(calls: readonly unknown[]): ToolCallDelta[] {
  return calls.filter(isObject).map((call, position) => {
    const fn = isObject(call.function) ? call.function : {};
    const args = fn.arguments ?? "";
    const opens = typeof fn.name === "string" || typeof call.id === "string";
    return {
      index: Number.isInteger(call.index) ? (call.index as number) : position,
      ...(typeof call.id === "string" && { id: call.id }),
      ...(opens && { type: "function" as const }),
      function: {
        ...(typeof fn.name === "string" && { name: fn.name }),
        arguments: typeof args === "string" ? args : JSON.stringify(args),
      },
    };
  });
}

/** A message or a piece of one, with reasoning under the name that clients read. */
export function toDelta(message: unknown): ChatDelta {
  if (!isObject(message)) return {};
  const { reasoning, tool_calls: calls, ...rest } = message;
  return {
    ...rest,
    ...(typeof reasoning === "string" && !("reasoning_content" in rest) && { reasoning_content: reasoning }),
    ...(Array.isArray(calls) && calls.length > 0 && { tool_calls: toolCallsOf(calls) }),
  };
}

export function readCompletion(result: unknown): Completion {
  if (!isObject(result) || !isObject(result.message))
    throw new BackendError("transport", "the engine answered Engine.Chat without a message");
  const { tool_calls: calls, ...message } = toDelta(result.message);
  const finish = typeof result.finish_reason === "string" ? result.finish_reason : null;
  return {
    message: {
      role: "assistant",
      content: "",
      ...message,
      ...(calls && { tool_calls: calls.map(({ index: _, ...call }) => call) }),
    },
    finishReason: finish ?? (calls ? "tool_calls" : "stop"),
    usage: result.usage,
  };
}
