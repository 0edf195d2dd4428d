import {
  EmbeddingsResult,
  ENGINE_PROTOCOL_VERSION,
  HandshakeResult,
  ModelsResult,
  VideoClip,
  VideoPollResult,
  VideoStartResult,
} from "@model-gateway/protocol/engine.ts";
import type { z } from "zod";
import { isObject, membersOf } from "../../kernel/json.ts";
import { CLIP_FIELDS } from "../../kernel/known-fields.ts";
import {
  BackendError,
  type CapabilityName,
  type ModelInfo,
  type VideoCapability,
  type VideoRequest,
} from "../contract.ts";
import type { ChatDelta, Completion, ToolCallDelta } from "../shared/chat-events.ts";
import { boundedModels } from "../shared/probe.ts";

/** What an engine may declare besides `chat_stream`. Unknown names are ignored. */
export const ENGINE_CAPABILITIES = ["chat", "embeddings", "video", "realtime", "invoke"] as const;
const CHAT_STREAM = "chat_stream";

function readAnswer<S extends z.ZodType>(schema: S, method: string, value: unknown): z.output<S> {
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
  /** False: a stream is one event. */
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

/** Tool calls or pieces of them, with arguments as text and the `type` that clients require. */
function toolCallsOf(calls: readonly unknown[]): ToolCallDelta[] {
  return calls.filter(isObject).map((call, position) => {
    const fn = membersOf(call.function);
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

/** A message or a piece of one, with the name for reasoning that clients know. */
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

type EngineCall = (method: string, params: Record<string, unknown>, signal: AbortSignal) => Promise<unknown>;

const DEFAULT_VIDEO_SECONDS = 5;
export const ENGINE_CLIP = [
  ...CLIP_FIELDS,
  ...["size", "num_frames", "frame_rate", "n", "guidance_scale", "sampler", "scheduler", "strength"],
];

const toVideoParams = (request: VideoRequest): Record<string, unknown> => ({
  ...request.extra,
  model: request.model,
  prompt: request.prompt,
  negative_prompt: request.negativePrompt,
  images: request.images.map(({ dataBase64, mimeType }) => ({
    data_base64: dataBase64,
    mime_type: mimeType,
  })),
  duration_seconds: request.durationSeconds,
  width: request.width,
  height: request.height,
});

export const engineVideo = (call: EngineCall, fields: readonly string[] = []): VideoCapability => ({
  asked(request) {
    const { images: _, ...members } = toVideoParams(request);
    return { members, known: [...ENGINE_CLIP, ...fields], defaultSeconds: DEFAULT_VIDEO_SECONDS };
  },
  async submit(request, signal) {
    const answer = await call("Engine.VideoStart", toVideoParams(request), signal);
    return readAnswer(VideoStartResult, "Engine.VideoStart", answer).task_id;
  },
  async poll(taskId, signal) {
    const answer = await call("Engine.VideoPoll", { task_id: taskId }, signal);
    const polled = readAnswer(VideoPollResult, "Engine.VideoPoll", answer);
    if (polled.state !== "succeeded") return polled;
    return { state: "succeeded", result: VideoClip.parse(polled.result), made: polled.result };
  },
  async cancel(taskId, signal) {
    await call("Engine.VideoCancel", { task_id: taskId }, signal);
  },
});
