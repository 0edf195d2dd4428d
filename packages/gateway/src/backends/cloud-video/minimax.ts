import {
  type ApiReply,
  asNumber,
  asObject,
  asText,
  contentParts,
  dataUrl,
  type Refusal,
  ratioName,
  readTaskStatus,
  refusalByStatus,
  resolutionName,
  succeeded,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

/** The vendor timed out internally: the request may have taken effect anyway. */
const TIMED_OUT = 1001;
/** Codes in a 200 answer that are worth a retry: unknown and internal errors, and rate limits. */
const TRANSIENT_CODES = new Set([1000, TIMED_OUT, 1002, 1024, 1033, 1039, 1041, 2045]);

/** MiniMax wraps failures in HTTP 200 with a code of its own. */
function refusal(reply: ApiReply): Refusal | null {
  const { status_code, status_msg } = asObject(asObject(reply.body).base_resp);
  const code = asNumber(status_code) ?? 0;
  if (code === 0) return refusalByStatus(reply);
  const error = `${asText(status_msg) ?? "error"} (${code})`;
  return { error, transient: TRANSIENT_CODES.has(code), ...(code === TIMED_OUT && { unclear: true }) };
}

export const minimaxV1: VideoDialect = {
  name: "minimax",
  defaultSeconds: 6,
  extra: ["prompt_optimizer", "fast_pretreatment", "aigc_watermark"],
  submit: (request) => ({
    method: "POST",
    path: "/v1/video_generation",
    body: withExtra(request.extra, {
      model: request.model,
      prompt: request.prompt,
      duration: request.durationSeconds,
      resolution: resolutionName(request, "P"),
      first_frame_image: request.images[0] && dataUrl(request.images[0]),
      last_frame_image: request.images[1] && dataUrl(request.images[1]),
    }),
  }),
  refusal,
  taskIdIn: ({ task_id }) => asText(task_id),
  poll: (taskId) => ({
    method: "GET",
    path: `/v1/query/video_generation?task_id=${encodeURIComponent(taskId)}`,
  }),
  readPoll(body) {
    const status = asText(body.status);
    if (status === "Fail") {
      return {
        state: "failed",
        error: asText(asObject(body.base_resp).status_msg) ?? "the upstream reports Fail",
      };
    }
    if (status !== "Success") return { state: "pending" };
    const fileId = asText(body.file_id);
    if (!fileId) return succeeded(null);
    return { state: "file", fileId, width: asNumber(body.video_width), height: asNumber(body.video_height) };
  },
  file: (fileId) => ({ method: "GET", path: `/v1/files/retrieve?file_id=${encodeURIComponent(fileId)}` }),
  readFile: ({ file }) => succeeded(asObject(file).download_url),
};

export const minimaxV2: VideoDialect = {
  name: "minimax-v2",
  defaultSeconds: 6,
  extra: ["ratio"],
  submit: (request) => ({
    method: "POST",
    path: "/v2/video_generation",
    body: withExtra(request.extra, {
      model: request.model,
      content: contentParts(request),
      duration: request.durationSeconds,
      resolution: resolutionName(request, "P"),
      ratio: ratioName(request),
    }),
  }),
  refusal: (reply) => refusalByStatus(reply, asObject(asObject(reply.body).error).message),
  taskIdIn: ({ task_id }) => asText(task_id),
  poll: (taskId) => ({ method: "GET", path: `/v2/query/video_generation/${encodeURIComponent(taskId)}` }),
  readPoll(body) {
    const task = asObject(body.task);
    const { duration, resolution } = task;
    return readTaskStatus(task, () =>
      succeeded(
        asObject(task.content).url,
        { durationSeconds: asNumber(duration) },
        { duration, resolution },
      ),
    );
  },
};
