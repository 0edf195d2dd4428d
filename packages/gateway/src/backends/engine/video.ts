import { VideoClip, VideoPollResult, VideoStartResult } from "@model-gateway/protocol/engine.ts";
import { CLIP_FIELDS } from "../../kernel/known-fields.ts";
import type { VideoCapability, VideoRequest } from "../contract.ts";
import { readAnswer } from "./protocol.ts";

type EngineCall = (method: string, params: Record<string, unknown>, signal: AbortSignal) => Promise<unknown>;

const DEFAULT_SECONDS = 5;
export const ENGINE_CLIP = [
  ...CLIP_FIELDS,
  ...["size", "num_frames", "frame_rate", "n", "guidance_scale", "sampler", "scheduler", "strength"],
];

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

export const engineVideo = (call: EngineCall, fields: readonly string[] = []): VideoCapability => ({
  asked(request) {
    const { images: _, ...members } = toParams(request);
    return { members, known: [...ENGINE_CLIP, ...fields], defaultSeconds: DEFAULT_SECONDS };
  },
  submit: async (request, signal) =>
    readAnswer(
      VideoStartResult,
      "Engine.VideoStart",
      await call("Engine.VideoStart", toParams(request), signal),
    ).task_id,
  async poll(taskId, signal) {
    const answer = await call("Engine.VideoPoll", { task_id: taskId }, signal);
    const polled = readAnswer(VideoPollResult, "Engine.VideoPoll", answer);
    if (polled.state !== "succeeded") return polled;
    return { state: "succeeded", result: VideoClip.parse(polled.result), made: polled.result };
  },
  cancel: async (taskId, signal) => {
    await call("Engine.VideoCancel", { task_id: taskId }, signal);
  },
});
