import { z } from "zod";
import type { VideoCapability, VideoRequest } from "../contract.ts";
import { readAnswer } from "./protocol.ts";

type Call = (method: string, params: Record<string, unknown>, signal: AbortSignal) => Promise<unknown>;

const Started = z.object({ task_id: z.string().min(1).max(512) });
const DEFAULT_SECONDS = 5;
const Clip = z.object({
  url: z.url(),
  mime_type: z.string().default("video/mp4"),
  width: z.number().optional(),
  height: z.number().optional(),
  duration_seconds: z.number().optional(),
  expires_at: z.string().optional(),
});
/** Engines may report more of what they made, such as its frames. */
const Made = Clip.loose();
const Polled = z.discriminatedUnion("state", [
  z.object({ state: z.literal("pending"), progress: z.number().optional() }),
  z.object({ state: z.literal("succeeded"), result: Made }),
  z.object({ state: z.literal("failed"), error: z.string() }),
]);

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
  asked(request) {
    const { images: _, ...members } = toParams(request);
    return { members, defaultSeconds: DEFAULT_SECONDS };
  },
  submit: async (request, signal) =>
    readAnswer(Started, "Engine.VideoStart", await call("Engine.VideoStart", toParams(request), signal))
      .task_id,
  async poll(taskId, signal) {
    const answer = await call("Engine.VideoPoll", { task_id: taskId }, signal);
    const polled = readAnswer(Polled, "Engine.VideoPoll", answer);
    if (polled.state !== "succeeded") return polled;
    return { state: "succeeded", result: Clip.parse(polled.result), made: polled.result };
  },
  cancel: async (taskId, signal) => {
    await call("Engine.VideoCancel", { task_id: taskId }, signal);
  },
});
