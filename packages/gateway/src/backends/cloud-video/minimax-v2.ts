import {
  asNumber,
  asObject,
  asText,
  contentParts,
  ratioName,
  readTaskStatus,
  refusalByStatus,
  resolutionName,
  succeeded,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

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
