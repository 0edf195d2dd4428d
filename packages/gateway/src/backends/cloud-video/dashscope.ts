import {
  asNumber,
  asObject,
  asText,
  dataUrl,
  refusalByStatus,
  resolutionName,
  succeeded,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

const ENDED_BADLY = new Set(["FAILED", "CANCELED"]);

export const dashscope: VideoDialect = {
  name: "dashscope",
  defaultSeconds: 5,
  extra: ["size", "prompt_extend", "shot_type", "audio"],
  submit(request) {
    const { prompt, negativePrompt, images, width, height, durationSeconds } = request;
    // Text to video takes a size, image to video a resolution, because the image fixes the ratio.
    const sized = images.length === 0 && width && height;
    return {
      method: "POST",
      path: "/api/v1/services/aigc/video-generation/video-synthesis",
      headers: { "x-dashscope-async": "enable" },
      body: {
        model: request.model,
        input: withExtra(
          {},
          { prompt, negative_prompt: negativePrompt, img_url: images[0] && dataUrl(images[0]) },
        ),
        parameters: withExtra(request.extra, {
          size: sized ? `${width}*${height}` : undefined,
          resolution: sized ? undefined : resolutionName(request, "P"),
          duration: durationSeconds,
        }),
      },
    };
  },
  refusal(reply) {
    const { code, message } = asObject(reply.body);
    return refusalByStatus(reply, message, code);
  },
  taskIdIn: ({ output }) => asText(asObject(output).task_id),
  poll: (taskId) => ({ method: "GET", path: `/api/v1/tasks/${encodeURIComponent(taskId)}` }),
  readPoll(body) {
    const output = asObject(body.output);
    const status = asText(output.task_status) ?? "";
    if (status === "SUCCEEDED") {
      const usage = asObject(body.usage);
      return succeeded(output.video_url, { durationSeconds: asNumber(usage.duration) }, usage);
    }
    if (ENDED_BADLY.has(status)) {
      return {
        state: "failed",
        error: asText(output.message) ?? asText(output.code) ?? `the upstream reports ${status}`,
      };
    }
    return { state: "pending" };
  },
  cancel: (taskId) => ({ method: "POST", path: `/api/v1/tasks/${encodeURIComponent(taskId)}/cancel` }),
};
