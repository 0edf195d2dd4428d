import { z } from "zod";
import { defineMethod, GivenId, WholeNumber } from "../../kernel/method.ts";
import { Job, VideoTask } from "./schemas.ts";

const JobId = z.object({ job_id: GivenId });
const LIST_DEFAULT = 20;
const LIST_MAX = 100;
const JobWithId = Job.extend({ job_id: z.uuid() });

export const create = defineMethod({
  name: "video.create",
  summary: "Submit a video task; its progress arrives on stream_id and on the job id",
  auth: "jwt",
  audit: false,
  recorded: true,
  notifies: ["video.progress", "video.done", "video.failed"],
  params: VideoTask,
  result: z.object({ job_id: z.uuid(), stream_id: z.uuid() }),
  handler: async ({ params, actor, rooms, record }) => {
    const payer = await rooms.metering.payerOf(actor);
    const { job, streamId } = await rooms.video.create(payer, params, { record, opener: actor });
    return { job_id: job.id, stream_id: streamId };
  },
});

export const get = defineMethod({
  name: "video.get",
  summary: "One of your video jobs",
  auth: "jwt",
  params: JobId,
  result: JobWithId,
  handler: async ({ params, actor, rooms }) => {
    const job = await rooms.video.get(actor.userId, params.job_id);
    return { ...job, job_id: job.id };
  },
});

export const list = defineMethod({
  name: "video.list",
  summary: "Your video jobs, newest first",
  auth: "jwt",
  params: z.object({ limit: WholeNumber.default(LIST_DEFAULT).describe(`Clamped to 1-${LIST_MAX}`) }),
  result: z.object({ jobs: z.array(JobWithId) }),
  handler: async ({ params, actor, rooms }) => {
    const jobs = await rooms.video.list(actor.userId, Math.min(LIST_MAX, Math.max(1, params.limit)));
    return { jobs: jobs.map((job) => ({ ...job, job_id: job.id })) };
  },
});

export const cancel = defineMethod({
  name: "video.cancel",
  summary: "Cancel one of your video jobs; nothing is charged",
  auth: "jwt",
  audit: false,
  params: JobId,
  handler: ({ params, actor, rooms }) => rooms.video.cancel(actor.userId, params.job_id),
});
