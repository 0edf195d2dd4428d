import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";
import { Job } from "./schemas.ts";

const { result, cost } = Job.shape;
const JobNews = z.object({ job_id: z.string(), status: Job.shape.status });

export const videoProgress = defineNotification({
  name: "video.progress",
  summary: "How far a video job is, on its stream_id and on its own id",
  params: JobNews.extend({ progress: Job.shape.progress }),
});

export const videoDone = defineNotification({
  name: "video.done",
  summary: "A video job is done",
  params: JobNews.extend({ result, cost }),
});

export const videoFailed = defineNotification({
  name: "video.failed",
  summary:
    "A video job failed, which costs nothing, or was cancelled, which costs what the vendor made of it",
  params: JobNews.extend({ error: z.string() }),
});
