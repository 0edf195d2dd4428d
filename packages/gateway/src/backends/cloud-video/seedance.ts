import {
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

const TASKS = "/api/v3/contents/generations/tasks";
/** Settings at the end of a prompt, such as `--resolution 1080p --dur 10`; the vendor's models obey them. */
const PROMPT_SETTING = /--([a-z_]+)[\s=:]+([^\s-]\S*)/gi;
const LONG_NAMES = new Map([
  ["rs", "resolution"],
  ["dur", "duration"],
]);

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
  refusal(reply) {
    const { message, code } = asObject(asObject(reply.body).error);
    return refusalByStatus(reply, message, code);
  },
  taskIdIn: ({ id }) => asText(id),
  poll: (taskId) => ({ method: "GET", path: `${TASKS}/${encodeURIComponent(taskId)}` }),
  readPoll(task) {
    const { duration, resolution, frames, framespersecond } = task;
    return readTaskStatus(task, () =>
      succeeded(asObject(task.content).video_url, {}, { duration, resolution, frames, framespersecond }),
    );
  },
};
