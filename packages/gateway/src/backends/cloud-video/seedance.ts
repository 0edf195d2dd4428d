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
/** Settings at the end of a prompt, such as `--resolution 1080p --dur 10`; the vendor's models obey them. */
const PROMPT_SETTING = /--([a-z_]+)[\s=:]+([^\s-]\S*)/gi;
const LONG_NAMES = new Map([
  ["rs", "resolution"],
  ["dur", "duration"],
]);

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
  defaultSeconds: 5,
  extra: ["ratio", "framespersecond", "camera_fixed", "return_last_frame", "generate_audio", "service_tier"],
  implied: ({ prompt }) => ({
    settings: Array.from(prompt.matchAll(PROMPT_SETTING), ([, name, value]) => ({
      [LONG_NAMES.get(name!.toLowerCase()) ?? name!]: value,
    })),
  }),
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
    const { duration, resolution, frames, framespersecond } = task;
    return readTaskStatus(task, () =>
      succeeded(asObject(task.content).video_url, {}, { duration, resolution, frames, framespersecond }),
    );
  },
};
