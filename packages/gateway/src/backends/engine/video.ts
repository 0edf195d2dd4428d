import { VideoPollResult, VideoStartResult } from "@model-gateway/protocol/engine.ts";
import type { VideoCapability, VideoRequest } from "../contract.ts";
import { readAnswer } from "./protocol.ts";

type Call = (method: string, params: Record<string, unknown>, signal: AbortSignal) => Promise<unknown>;

const toParams = (request: VideoRequest): Record<string, unknown> => ({
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

/** Video tasks on an engine: start, poll, cancel. */
export const engineVideo = (call: Call): VideoCapability => ({
  submit: async (request, signal) =>
    readAnswer(
      VideoStartResult,
      "Engine.VideoStart",
      await call("Engine.VideoStart", toParams(request), signal),
    ).task_id,
  poll: async (taskId, signal) =>
    readAnswer(
      VideoPollResult,
      "Engine.VideoPoll",
      await call("Engine.VideoPoll", { task_id: taskId }, signal),
    ),
  cancel: async (taskId, signal) => {
    await call("Engine.VideoCancel", { task_id: taskId }, signal);
  },
});
