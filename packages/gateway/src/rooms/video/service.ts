import type { StreamedReply } from "@model-gateway/wire/http";
import type { z } from "zod";
import type { VideoAsked, VideoRequest, VideoResult } from "../../backends/contract.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { SignedIn } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { isUuid } from "../../kernel/ids.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Billing } from "../billing/index.ts";
import type { Needs } from "../foundation.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { askedFacts, boundFacts } from "./clip-facts.ts";
import { type ClipAsker, clipReply } from "./clip-reply.ts";
import { JobRunner, priceUsd } from "./runner.ts";
import type { Job, VideoTask } from "./schemas.ts";
import { type JobRow, type JobSummary, VideoStore } from "./store.ts";
import { checkImages, requireKnown, withoutModel } from "./task.ts";

const ACTIVE_JOBS_MAX = 100;
/** A task that takes longer fails. */
const JOB_DEADLINE_MS = 60 * 60_000;
/** Requests are kept this long, so that a surprising result can be compared with what was sent. */
const PAYLOAD_KEPT_MS = 24 * 60 * 60_000;

export interface VideoOptions
  extends Needs<"db" | "bus" | "events" | "clock" | "ids" | "leases" | "log" | "revocations"> {
  metering: Pick<Metering, "admit" | "resume" | "record" | "written">;
  billing: Pick<Billing, "videoCostNanoUsd">;
  routing: Pick<Routing, "aliases" | "router" | "backendNamed" | "callEnded">;
  isInForce(payer: Payer): Promise<boolean>;
  /** Time between polls, which grows from `first` to `most`. */
  pollMs?: { first: number; most: number };
  tickMs?: number;
}

interface CreateOptions {
  record?: RequestRecord | null;
  /** Who may follow the job; by default the payer. */
  opener?: SignedIn;
}

export type JobView = z.input<typeof Job>;

const toView = (job: JobSummary): JobView => ({
  ...job,
  object: "video.generation",
  status: job.status === "submitting" ? "queued" : job.status,
  result: job.result === null ? null : (JSON.parse(job.result) as VideoResult),
  created_at: Math.floor(Date.parse(job.created_at) / 1000),
  warnings: job.warnings === null ? undefined : (JSON.parse(job.warnings) as string[]),
});

const warningsOf = ({ unsent = [] }: VideoAsked, backend: string): string[] =>
  unsent.map((field) => `\`${field}\` was not sent: the API of ${backend} has no place for it`);

/** With a `keyId` only the jobs of that key. */
interface JobOwner {
  userId: string;
  keyId?: string | null;
}

export class Video {
  readonly #store: VideoStore;
  readonly #runner: JobRunner;

  constructor(readonly options: VideoOptions) {
    this.#store = new VideoStore(options.db);
    this.#runner = new JobRunner(this.#store, options);
    options.revocations.onChange((id) => this.#runner.recheck(id));
  }

  async create(
    payer: Payer,
    input: z.output<typeof VideoTask>,
    { record = null, opener = { userId: payer.userId } }: CreateOptions = {},
  ): Promise<{ job: JobView; streamId: string }> {
    if (record) record.modelAsked = input.model;
    const { clock, ids, routing, events, metering } = this.options;
    const images = input.images ?? [];
    checkImages(images);
    const extra = withoutModel(input.extra ?? {});
    const { backend, model, reason } = routing.router.foresee({
      provider: input.provider,
      payer,
      model: routing.aliases.resolve(input.model),
      capability: "video",
    });
    // The task is sent later, in a step of the job.
    record?.sent({ model, name: backend.config.name, reason });
    if (!backend.video) fail("no_video_backend", `The backend of ${model} does not make videos`);
    if ((await this.#store.countActive(payer.userId)) >= ACTIVE_JOBS_MAX) {
      fail(
        "rate_limited",
        `You have ${ACTIVE_JOBS_MAX} video jobs under way; wait for some to end or cancel them`,
      );
    }
    const request: VideoRequest = {
      model,
      prompt: input.prompt,
      negativePrompt: input.negative_prompt,
      images: images.map(({ data_base64, mime_type }) => ({ dataBase64: data_base64, mimeType: mime_type })),
      durationSeconds: input.duration_seconds,
      width: input.width,
      height: input.height,
      extra,
    };
    const id = ids.uuid();
    const asked = backend.video.asked(request);
    requireKnown(extra, asked.known);
    const facts = askedFacts(request, asked);
    const warnings = warningsOf(asked, backend.config.name);
    const boundUsd = await priceUsd(this.options, model, boundFacts(facts));
    const bound = { costUsd: boundUsd };
    const hold = await metering.admit({ requestId: id, payer, model, refId: null, bound });
    const nowMs = clock.now();
    const job: JobRow = {
      id,
      user_id: payer.userId,
      payer: JSON.stringify(payer),
      model,
      backend: backend.config.name,
      request: JSON.stringify(request),
      status: "queued",
      progress: 0,
      task_id: null,
      result: null,
      error: null,
      cost: 0,
      settled: false,
      stream_id: events.open(opener).sessionId,
      created_at: isoTime(nowMs),
      deadline_at: isoTime(nowMs + JOB_DEADLINE_MS),
      next_step_at: isoTime(nowMs),
      step_count: 0,
      facts: JSON.stringify(facts),
      bound_usd: boundUsd,
      warnings: warnings.length > 0 ? JSON.stringify(warnings) : null,
    };
    // The job's id is also a channel, so that jobs created over REST can be followed.
    events.open(opener, id);
    try {
      await this.#runner.begin(job, hold);
    } catch (error) {
      hold.release();
      throw error;
    }
    return { job: toView(job), streamId: job.stream_id };
  }

  async get(userId: string, jobId: string, keyId?: string | null): Promise<JobView> {
    return toView(await this.#owned(userId, jobId, keyId));
  }

  async content(owner: JobOwner, jobId: string, asker: ClipAsker): Promise<StreamedReply> {
    const { backend, status, task_id } = await this.#owned(owner.userId, jobId, owner.keyId);
    return clipReply(asker, async (range, signal) => {
      if (status !== "done") return null;
      // Possibly temporary: it may be registered again, or be a node that comes back.
      const { video } = this.options.routing.backendNamed(backend) ?? fail("unavailable", "away");
      return (await video?.content?.(task_id!, range, signal)) ?? null;
    });
  }

  async list(userId: string, limit: number): Promise<JobView[]> {
    return (await this.#store.listOf(userId, limit)).map(toView);
  }

  async cancel(userId: string, jobId: string): Promise<void> {
    const job = await this.#owned(userId, jobId);
    if (!(await this.#runner.breakOff(job, "cancelled", null)))
      fail("app_error", `The job has ended already: ${(await this.#owned(userId, jobId)).status}`);
  }

  /** Empties the requests of jobs that ended a while ago; their results stay. */
  readonly sweepPayloads: Sweep = (nowMs, rowsMax) =>
    this.#store.dropPayloads(isoTime(nowMs - PAYLOAD_KEPT_MS), rowsMax);

  /** Takes over the jobs of an earlier run. Call it before requests come in. */
  start(): Promise<void> {
    return this.#runner.start();
  }

  close(): Promise<void> {
    return this.#runner.stop();
  }

  async #owned(userId: string, jobId: string, keyId?: string | null): Promise<JobRow> {
    const job = isUuid(jobId) ? await this.#store.find(jobId) : null;
    const isKeys = !keyId || (job && (JSON.parse(job.payer) as Payer).keyId === keyId);
    if (job?.user_id !== userId || !isKeys) fail("no_job", "Video job not found; video.list shows yours");
    return job;
  }
}
