import {
  asNumber,
  asObject,
  asText,
  dataUrl,
  readTaskStatus,
  refusalByStatus,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

const VIDEOS = "/v1/videos";
const at = (taskId: string): string => `${VIDEOS}/${encodeURIComponent(taskId)}`;

/** OpenAI's videos, as vLLM-Omni and SGLang serve them on one's own GPUs. The clip stays with the server. */
export const videos: VideoDialect = {
  name: "videos",
  defaultSeconds: 5,
  extra: [
    ...["num_frames", "num_inference_steps", "guidance_scale", "guidance_scale_2"],
    ...["boundary_ratio", "flow_shift"],
  ],
  submit: (request) => ({
    method: "POST",
    path: VIDEOS,
    fileField: "input_reference",
    body: withExtra(request.extra, {
      model: request.model,
      prompt: request.prompt,
      negative_prompt: request.negativePrompt,
      input_reference: request.images[0] && dataUrl(request.images[0]),
      seconds: request.durationSeconds,
      size: request.width && request.height ? `${request.width}x${request.height}` : undefined,
    }),
  }),
  refusal(reply) {
    const { error, detail } = asObject(reply.body);
    // A list names what is wrong with each field.
    const [first] = Array.isArray(detail) ? detail.map((each) => JSON.stringify(each)) : [];
    return refusalByStatus(reply, asObject(error).message, detail, first);
  },
  listing: { method: "GET", path: `${VIDEOS}?limit=1` },
  taskIdIn: ({ id }) => asText(id),
  poll: (taskId) => ({ method: "GET", path: at(taskId) }),
  readPoll(task) {
    const { status, seconds, size, num_frames, fps } = task;
    const progress = asNumber(task.progress);
    const reading = readTaskStatus(
      { ...task, status: status === "completed" ? "succeeded" : status },
      () => ({
        state: "succeeded",
        result: { url: "", mime_type: "video/mp4" },
        made: withExtra({}, { seconds, size, num_frames, fps }),
      }),
    );
    return reading.state === "pending" && progress !== undefined ? { ...reading, progress } : reading;
  },
  content: (taskId) => ({
    method: "GET",
    path: `${at(taskId)}/content`,
    headers: { accept: "video/*", "accept-encoding": "identity" },
  }),
  cancel: (taskId) => ({ method: "DELETE", path: at(taskId) }),
};
