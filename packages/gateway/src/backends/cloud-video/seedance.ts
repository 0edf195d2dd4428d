import {
  type ApiReply,
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

const TASKS = "/api/v3/contents/generations/tasks";

function refusal({ status, body }: ApiReply): Refusal | null {
  if (status < 400) return null;
  const { message, code } = asObject(asObject(body).error);
  return {
    error: asText(message) ?? asText(code) ?? `status ${status}`,
    transient: isTransientStatus(status),
  };
}

export const seedance: VideoDialect = {
  name: "seedance",
  submit: (request) => ({
    method: "POST",
    path: TASKS,
    body: withExtra(request.extra, {
      model: request.model,
      content: contentParts(request),
      resolution: resolutionName(request, "p"),
      ratio: ratioName(request),
      duration: request.durationSeconds,
    }),
  }),
  readSubmit(reply) {
    const refused = refusal(reply);
    if (refused) return refused;
    const taskId = asText(asObject(reply.body).id);
    return taskId ? { taskId } : { error: "the upstream named no task", transient: false };
  },
  poll: (taskId) => ({ method: "GET", path: `${TASKS}/${encodeURIComponent(taskId)}` }),
  readPoll(reply) {
    const refused = refusal(reply);
    if (refused) return refused;
    const task = asObject(reply.body);
    return readTaskStatus(task, () => succeeded(asObject(task.content).video_url));
  },
};
