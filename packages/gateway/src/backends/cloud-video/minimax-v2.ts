import {
  type ApiReply,
  asNumber,
  asObject,
  asText,
  contentParts,
  isTransientStatus,
  type Refusal,
  ratioName,
  readTaskStatus,
  resolutionName,
  succeeded,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

function refusal({ status, body }: ApiReply): Refusal | null {
  if (status < 400) return null;
  const message = asText(asObject(asObject(body).error).message);
  return { error: message ?? `status ${status}`, transient: isTransientStatus(status) };
}

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
  readSubmit(reply) {
    const refused = refusal(reply);
    if (refused) return refused;
    const taskId = asText(asObject(reply.body).task_id);
    return taskId ? { taskId } : { error: "the upstream named no task", transient: false };
  },
  poll: (taskId) => ({ method: "GET", path: `/v2/query/video_generation/${encodeURIComponent(taskId)}` }),
  readPoll(reply) {
    const refused = refusal(reply);
    if (refused) return refused;
    const task = asObject(asObject(reply.body).task);
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
