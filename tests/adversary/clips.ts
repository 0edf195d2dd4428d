import { canaryText, type Payer } from "./flights.ts";
import type { VideoStep } from "./plot.ts";
import { objectText } from "./spelling.ts";
import type { Stage } from "./stage.ts";
import { type VideoTask, videoModel } from "./upstream/video.ts";

/** A job is asked about two seconds after it was submitted, and more rarely later. */
const FINISHED_WITHIN_MS = 20_000;
const FINAL = new Set(["done", "failed", "cancelled"]);

/** One video task with what both of its ends saw. */
export interface ClipJob {
  payer: Payer;
  task: VideoTask;
  jobId: string | null;
  status: string;
  costUsd: number;
  words: string;
}

/** Submits the task, and waits until it has come to its end. */
export async function film(
  stage: Stage,
  step: VideoStep,
  { canary, payer, key, token }: { canary: number; payer: Payer; key: string | null; token: string },
): Promise<ClipJob> {
  const task: VideoTask = { reports: step.reports, clip: null };
  stage.video.tasks.set(canary, task);
  const job: ClipJob = { payer, task, jobId: null, status: "", costUsd: 0, words: "" };
  const sizes = Object.entries({
    duration_seconds: step.durationSeconds,
    width: step.width,
    height: step.height,
  }).flatMap(([name, value]): [string, string][] => (value === null ? [] : [[name, String(value)]]));
  const body = objectText([
    ["model", JSON.stringify(videoModel(step.dialect, step.mode))],
    ["prompt", JSON.stringify(`${canaryText(canary)} a lamp by the river`)],
    ...sizes,
    ["extra", objectText(Object.entries(step.extra))],
  ]);
  const instance = stage.at(step.instance);
  const response = await fetch(`${instance.url}${key ? "/v1/video/generations" : "/api/rpc"}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key ?? token}` },
    body: key ? body : `{"jsonrpc":"2.0","id":1,"method":"video.create","params":${body}}`,
  });
  const answer = (await response.json()) as { id?: unknown; result?: { job_id: string } };
  job.jobId = key ? (response.ok ? String(answer.id) : null) : (answer.result?.job_id ?? null);
  job.words = JSON.stringify(answer);
  if (job.jobId === null) return job;
  const deadlineMs = Date.now() + FINISHED_WITHIN_MS;
  const waitFor = async (condition: () => boolean | Promise<boolean>, everyMs: number) => {
    while (!(await condition()) && Date.now() < deadlineMs) await Bun.sleep(everyMs);
  };
  if (step.cancelled) {
    await waitFor(() => task.clip !== null, 10);
    await instance.rpc("video.cancel", { job_id: job.jobId }, token).catch(() => {});
  }
  await waitFor(async () => {
    const seen = await instance.rpc("video.get", { job_id: job.jobId }, token);
    job.status = seen.status;
    job.costUsd = seen.cost;
    // What a cancelled one costs is known when the upstream was asked once more.
    const isOwed = job.status === "cancelled" && task.clip !== null;
    return FINAL.has(job.status) && !(isOwed && job.costUsd === 0);
  }, 100);
  return job;
}
