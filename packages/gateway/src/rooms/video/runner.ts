import type { z } from "zod";
import {
  BackendError,
  type VideoCapability,
  type VideoPoll,
  type VideoRequest,
  type VideoResult,
} from "../../backends/contract.ts";
import { askedOnce, oneAtATime } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import { ServiceError } from "../../kernel/errors.ts";
import type { NotificationDefinition } from "../../kernel/method.ts";
import type { Payer } from "../../kernel/payer.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import type { Admission, FinalUsage } from "../metering/index.ts";
import { type Route, reportTo } from "../routing/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import { askedFacts, boundFacts, type ClipFacts, madeFacts } from "./clip-facts.ts";
import { videoDone, videoFailed, videoProgress } from "./notifications.ts";
import type { VideoOptions } from "./service.ts";
import type { JobRow, JobSummary, VideoStore } from "./store.ts";

const CONCURRENT_STEPS_MAX = 16;
const TICK_MS = 1_000;
/** One instance runs all jobs; another takes over after this silence. Redis keeps its holds for longer. */
const LEASE = "video";
const LEASE_MS = 9_000;
/** Message: there is something to do, with the id of a new job or empty. */
const DUE = "video-due";
/** Message: the id of a job whose hold the running instance has taken over. */
const HELD = "video-held";
/** No step is due that late, unless the clock has been set back. */
const FAR_MS = 600_000;
const STEP_TIMEOUT_MS = 120_000;
const CANCEL_TIMEOUT_MS = 10_000;
/** How long after its deadline an upstream is asked about a job that was broken off. */
const ASKED_FOR_MS = 10 * 60_000;
/** Delay after reading the jobs failed. */
const PAUSE_MS = 2_000;
const POLL_MS = { first: 2_000, most: 15_000 };
const POLL_GROWTH = 1.5;
/** A refused submission is sent again, with growing pauses, this often and for this long. */
const RESUBMIT_GROWTH = 4;
const RESUBMIT_PAUSE_MS_MAX = 60_000;
const RESUBMISSIONS_MAX = 5;
const RESUBMIT_FOR_MS = 3 * 60_000;
const ERROR_LENGTH_MAX = 2_000;
/** A stopping process waits this long for the answers to submissions, which cannot be fetched later. */
const SUBMIT_GRACE_MS = 10_000;
const SUBMISSION_LOST =
  "the answer to the submission was lost, and it may have been taken: it is not sent twice, and nothing is charged; create the job again";

const DEARER_BACKEND =
  "the backend that was chosen for this job is gone, and another one would make more of it than was paid for; create the job again";

const LATE = "the job did not finish in time";
const REVOKED = "the API key was revoked, or its owner's account or membership ended";

/** The outcome is unknown. */
const PENDING: VideoPoll = { state: "pending" };

type End = Parameters<VideoStore["end"]>[1];

/** A transient upstream failure: retried until the job's deadline. */
const isTransient = (error: unknown): boolean =>
  !(error instanceof BackendError) ||
  error.kind !== "upstream" ||
  error.status === undefined ||
  error.status === 429 ||
  error.status === 408 ||
  error.status >= 500;

/** Statuses of proxies: the upstream may have accepted the task anyway. */
const UNCLEAR_STATUSES = new Set([502, 504, 524]);

/** Whether a failed submission may have created a task, which would cost twice if it were sent again. */
const mayBeTaken = (error: unknown): boolean => {
  // An error of the gateway, e.g. because the model is being loaded.
  if (error instanceof ServiceError) return false;
  if (!(error instanceof BackendError)) return true;
  const { kind, status = 0 } = error;
  return kind === "upstream"
    ? UNCLEAR_STATUSES.has(status)
    : ["transport", "too_large", "gone"].includes(kind);
};

/** The id makes it harmless to charge a job twice. */
const chargeOf = ({ id, payer, model }: JobSummary) => ({
  ...{ requestId: id, payer: JSON.parse(payer) as Payer, model, refId: null },
});

export const priceUsd = async ({ billing }: Pick<VideoOptions, "billing">, model: string, facts: ClipFacts) =>
  (await billing.videoCostNanoUsd(model, facts)) / NANO_PER_USD;

export class JobRunner {
  /** On the instance that runs the jobs, the holds of all; on others, those that it has not taken over yet. */
  readonly #holds = new Map<string, Admission>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #ends: (() => void)[];
  #isLeading = false;
  readonly #stopped = new AbortController();
  /** Aborts later than `#stopped`. */
  readonly #submitsStopped = new AbortController();
  readonly #look = oneAtATime(() => this.#lookForWork());
  #pausedUntilMs = 0;

  constructor(
    readonly store: VideoStore,
    readonly options: VideoOptions,
  ) {
    const { bus, clock, tickMs = TICK_MS } = options;
    this.#ends = [
      clock.every(tickMs, () => this.wake()),
      bus.subscribe(DUE, (jobId) => {
        this.wake();
        // It was found, and its hold taken over, before its creator could be told.
        if (this.#isLeading && this.#holds.has(jobId)) bus.publish(HELD, jobId);
      }),
      bus.subscribe(HELD, (jobId) => {
        if (!this.#isLeading) this.#release(jobId);
      }),
    ];
  }

  /** Renews the holds of jobs. Call it before requests come in. */
  async start(): Promise<void> {
    this.wake();
    await this.#look.running;
  }

  /** Stores and starts a new job, whose hold lasts until it ends. */
  async begin(job: JobRow, hold: Admission): Promise<void> {
    await this.store.insert(job);
    // It may have been found, and its hold taken over, as soon as it was stored.
    this.#release(job.id);
    this.#holds.set(job.id, hold);
    this.#due(job.id);
  }

  #due(jobId = ""): void {
    this.options.bus.publish(DUE, jobId);
  }

  /** Releases the job's hold here and on other instances. */
  #ended(jobId: string): void {
    this.#release(jobId);
    this.#due();
  }

  #release(jobId: string): void {
    this.#take(jobId)?.release();
  }

  /** Removes the job's hold, which the caller must end. */
  #take(jobId: string): Admission | null {
    const hold = this.#holds.get(jobId) ?? null;
    this.#holds.delete(jobId);
    return hold;
  }

  wake(): void {
    if (!this.#stopped.signal.aborted && this.options.clock.now() >= this.#pausedUntilMs) void this.#look();
  }

  async stop(): Promise<void> {
    for (const end of this.#ends) end();
    this.#stopped.abort();
    await this.#look.running;
    const endGrace = this.options.clock.after(SUBMIT_GRACE_MS, () => this.#submitsStopped.abort());
    await Promise.allSettled(this.#running.values());
    endGrace();
    const { leases, log } = this.options;
    await leases.release(LEASE).catch((error) => log.warn("releasing video jobs failed", { error }));
    this.#due();
  }

  async #lookForWork(): Promise<void> {
    const { clock, log } = this.options;
    try {
      await this.#startSteps();
    } catch (error) {
      this.#pausedUntilMs = clock.now() + PAUSE_MS;
      log.warn("reading video jobs failed", { error });
    }
  }

  async #startSteps(): Promise<void> {
    const { bus, leases, clock, log } = this.options;
    const held = [...this.#holds.keys()];
    const open = await this.store.unsettled();
    const wasLeading = this.#isLeading;
    // Without jobs do not write to the database.
    this.#isLeading = open.length > 0 && (await leases.acquire(LEASE, LEASE_MS));
    const isLost = wasLeading && !this.#isLeading && bus.shared;
    const ids = new Set(open.map(({ id }) => id));
    for (const id of held) if (isLost || !ids.has(id)) this.#release(id);
    if (bus.shared && !this.#isLeading) return;
    for (const { id, status } of open) if (status !== "done" && !this.#holds.has(id)) await this.#hold(id);
    if (!this.#isLeading) return;
    const nowMs = clock.now();
    const due = open.filter(({ id, next_step_at }) => {
      const inMs = Date.parse(next_step_at) - nowMs;
      return (inMs <= 0 || inMs > FAR_MS) && !this.#running.has(id);
    });
    for (const { id } of due.slice(0, CONCURRENT_STEPS_MAX - this.#running.size)) {
      const step = this.#step(id)
        .catch((error) => log.error("video job step failed", { job_id: id, error }))
        .finally(() => this.#running.delete(id));
      this.#running.set(id, step);
    }
  }

  async #hold(id: string): Promise<void> {
    const { metering, bus } = this.options;
    const job = await this.store.find(id);
    // The cost of a done job is charged at once, or was already.
    if (!job || job.settled || job.status === "done") return;
    const hold = await metering.resume({ ...chargeOf(job), bound: { costUsd: job.bound_usd ?? 0 } });
    if (this.#holds.has(id)) hold.release();
    else this.#holds.set(id, hold);
    if (this.#isLeading) bus.publish(HELD, id);
  }

  async #step(id: string): Promise<void> {
    const job = await this.store.find(id);
    if (!job || job.settled) return;
    const lateMs = this.options.clock.now() - Date.parse(job.deadline_at);
    const isLate = lateMs >= 0;
    const stopped = job.status === "queued" ? this.#submitsStopped : this.#stopped;
    const signal = AbortSignal.any([stopped.signal, AbortSignal.timeout(STEP_TIMEOUT_MS)]);
    try {
      if (job.status === "done") await this.#settle(job);
      else if (job.status === "cancelled" || job.status === "failed")
        await this.#settleBrokenOff(job, lateMs >= ASKED_FOR_MS);
      else if (isLate && job.task_id === null) await this.#fail(job, LATE);
      // Checked at each step, because a revocation may have been missed while no instance ran the jobs.
      else if (!(await this.#isInForce(job))) await this.breakOff(job, "cancelled", REVOKED);
      else if (job.status === "queued") await this.#submit(job, signal);
      // The process died between sending the task and recording the answer.
      else if (job.status === "submitting") await this.#fail(job, SUBMISSION_LOST);
      else await this.#poll(job, signal);
    } catch (error) {
      if (!isTransient(error) || this.#isRefusedForGood(job, error))
        await this.#fail(job, (error as Error).message);
      else if (!this.#stopped.signal.aborted) {
        this.options.log.warn("video job failed; will retry", { job_id: job.id, error });
      }
    }
    if (isLate && job.status === "running") await this.breakOff(job, "failed", LATE);
    await this.store.rest(job.id, isoTime(this.options.clock.now() + this.#delayMs(job)));
  }

  #delayMs({ step_count, status }: JobRow): number {
    const { first, most } = this.options.pollMs ?? POLL_MS;
    const steps = Math.min(step_count, 20);
    if (status === "queued") return Math.min(RESUBMIT_PAUSE_MS_MAX, first * RESUBMIT_GROWTH ** steps);
    return Math.min(most, first * POLL_GROWTH ** steps);
  }

  /** The submission was refused often or long enough. Without a backend it waits until the deadline instead. */
  #isRefusedForGood({ status, step_count, created_at }: JobRow, error: unknown): boolean {
    if (status !== "queued" || !(error instanceof BackendError) || error.kind !== "upstream") return false;
    const ageMs = this.options.clock.now() - Date.parse(created_at);
    return step_count >= RESUBMISSIONS_MAX || (step_count > 0 && ageMs >= RESUBMIT_FOR_MS);
  }

  #isInForce({ payer }: Pick<JobRow, "payer">): Promise<boolean> {
    return this.options.isInForce(JSON.parse(payer) as Payer);
  }

  /** Cancels jobs whose key, user or group membership is no longer valid; null checks all. */
  async recheck(id: string | null): Promise<void> {
    if (!this.#isLeading) return;
    const isInForce = askedOnce(
      ({ payer }: JobSummary) => payer,
      (job) => this.#isInForce(job),
    );
    for (const job of await this.store.active(id))
      if (!(await isInForce(job))) await this.breakOff(job, "cancelled", REVOKED);
  }

  /** Sends the task, preferably to the backend that was chosen for it. */
  async #submit(job: JobRow, signal: AbortSignal): Promise<void> {
    const { routing } = this.options;
    const backend = routing.backendNamed(job.backend) && job.backend;
    const payer = JSON.parse(job.payer) as Payer;
    const route = await routing.router.acquire({
      model: job.model,
      capability: "video",
      backend,
      payer,
      isForeseen: true,
    });
    try {
      await this.#submitOn(route, job, signal);
    } finally {
      // Has an effect only if nothing was sent or the process stops.
      route.abandoned();
    }
  }

  async #submitOn(route: Route, job: JobRow, signal: AbortSignal): Promise<void> {
    const { backend } = route;
    if (!backend.video) throw new BackendError("unsupported", `backend ${job.backend} does not make videos`);
    const request = JSON.parse(job.request) as VideoRequest;
    const facts = askedFacts(request, backend.video.asked(request));
    // Another backend may make more of the same request than is held for it.
    const isBounded = backend.config.name === job.backend || job.bound_usd === null;
    if (!isBounded && (await priceUsd(this.options, job.model, boundFacts(facts))) > job.bound_usd!) {
      await this.#fail(job, DEARER_BACKEND);
      return;
    }
    if (!(await this.store.submitting(job.id))) return;
    let task_id: string;
    try {
      task_id = await backend.video.submit(request, signal);
      route.succeeded();
    } catch (error) {
      if (!this.#submitsStopped.signal.aborted) reportTo(route, error);
      if (!mayBeTaken(error)) {
        await this.store.notSubmitted(job.id);
        throw error;
      }
      this.options.log.warn("no answer to a video submission", { job_id: job.id, error });
      await this.#fail(job, SUBMISSION_LOST);
      return;
    }
    const task = {
      task_id,
      backend: backend.config.name,
      request: JSON.stringify({ ...request, images: [] }),
      facts: JSON.stringify(facts),
    };
    if (await this.store.started(job.id, task)) {
      this.#notify(job, videoProgress, { job_id: job.id, status: "running", progress: 0 });
      return;
    }
    await this.store.unwanted(job.id, task);
    await this.#brokenOff({ ...job, backend: task.backend, task_id });
  }

  /** Stops the task and asks for its outcome: free only if the upstream made no clip, charged if that stays unknown. */
  async #settleBrokenOff(job: JobSummary, isUnknown: boolean): Promise<void> {
    const upstream = this.options.routing.backendNamed(job.backend)?.video;
    if (!upstream && !isUnknown) return;
    const poll = upstream && !isUnknown ? await this.#stopTask(job, upstream) : PENDING;
    const cost = poll.state === "failed" ? 0 : await this.#cost(job, poll);
    if (cost > 0) this.#charge({ ...job, cost });
    await this.store.settled(job.id, cost);
    this.#ended(job.id);
  }

  async #stopTask({ task_id }: JobSummary, upstream: VideoCapability): Promise<VideoPoll> {
    const signal = AbortSignal.any([this.#submitsStopped.signal, AbortSignal.timeout(CANCEL_TIMEOUT_MS)]);
    try {
      await upstream.cancel?.(task_id!, signal);
      return await upstream.poll(task_id!, signal);
    } catch (error) {
      if (isTransient(error)) throw error;
      return PENDING;
    }
  }

  async breakOff(job: JobSummary, status: End["status"], error: string | null): Promise<boolean> {
    const ended = await this.#end(job, { status, result: null, error, cost: 0, isBrokenOff: true });
    // The job has ended whatever the upstream answers, so the caller does not wait for it.
    if (ended && job.task_id !== null) void this.#brokenOff(job);
    return ended;
  }

  async #brokenOff(job: JobSummary): Promise<void> {
    try {
      await this.#settleBrokenOff(job, false);
    } catch (error) {
      this.options.log.warn("cancelling a video job upstream failed; will retry", { job_id: job.id, error });
    }
  }

  async #polled<T>(job: JobRow, polling: Promise<T>): Promise<T> {
    const payer = JSON.parse(job.payer) as Payer;
    try {
      const poll = await polling;
      this.options.routing.callEnded(job.backend, payer, null);
      return poll;
    } catch (error) {
      if (!this.#submitsStopped.signal.aborted) this.options.routing.callEnded(job.backend, payer, error);
      throw error;
    }
  }

  async #poll(job: JobRow, signal: AbortSignal): Promise<void> {
    const backend = this.options.routing.backendNamed(job.backend);
    // It may be registered again before the deadline.
    if (!backend?.video) return;
    const poll = await this.#polled(job, backend.video.poll(job.task_id!, signal));
    if (poll.state === "pending") {
      const progress = Math.max(job.progress, Math.min(99, poll.progress ?? job.progress));
      if (progress > job.progress) await this.store.progressed(job.id, progress);
      this.#notify(job, videoProgress, { job_id: job.id, status: "running", progress });
    } else if (poll.state === "failed") {
      await this.#fail(job, poll.error);
    } else {
      const cost = await this.#cost(job, poll);
      const url = poll.result.url || `/v1/video/generations/${job.id}/content`;
      const result = JSON.stringify({ ...poll.result, url });
      if (await this.#end(job, { status: "done", result, error: null, cost }))
        await this.#settle({ ...job, cost, result });
    }
  }

  /** Charges what was asked for or what was made, the larger of the two. */
  async #cost(job: JobSummary, poll: VideoPoll): Promise<number> {
    const asked = JSON.parse(job.facts!) as ClipFacts;
    const costOf = async (facts: ClipFacts) => {
      try {
        return await priceUsd(this.options, job.model, facts);
      } catch (error) {
        // The exchange rate of the price was removed after the job was admitted.
        if (error instanceof ServiceError && job.bound_usd !== null) return job.bound_usd;
        throw error;
      }
    };
    const made = poll.state === "succeeded" ? madeFacts(asked, poll) : asked;
    return Math.max(await costOf(asked), await costOf(made));
  }

  #fail(job: JobRow, error: string): Promise<boolean> {
    const text = hideSecrets(error).slice(0, ERROR_LENGTH_MAX);
    return this.#end(job, { status: "failed", result: null, error: text, cost: 0 });
  }

  async #end(job: JobSummary, end: End): Promise<boolean> {
    const ended = await this.store.end(job.id, end);
    if (!ended) return false;
    // A done job is announced when it is settled, so that this happens even if the process dies in between.
    if (end.status !== "done") {
      if (!end.isBrokenOff || job.task_id === null) this.#ended(job.id);
      const { status, error } = end;
      this.#notify(job, videoFailed, { job_id: job.id, status, error: error ?? "cancelled" });
    }
    return true;
  }

  /** Charges a done job and notifies its followers. If the process dies, the next one repeats it under the same id. */
  async #settle(job: JobRow): Promise<void> {
    this.#charge(job);
    const result = JSON.parse(job.result!) as VideoResult;
    this.#notify(job, videoDone, { job_id: job.id, status: "done", result, cost: job.cost });
    await this.store.settled(job.id, job.cost);
  }

  /** When this returns, the usage is in the journal and the job can be noted as settled. */
  #charge(job: JobSummary): void {
    const { metering } = this.options;
    const tokens = { promptTokens: 0, completionTokens: 0 };
    const usage: FinalUsage = { backend: "video", ...tokens, estimated: false, costUsd: job.cost };
    const hold = this.#take(job.id);
    if (hold) hold.settle(usage);
    else metering.record(chargeOf(job), usage);
    metering.written();
  }

  #notify<Definition extends NotificationDefinition>(
    job: JobSummary,
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void {
    for (const channel of [job.stream_id, job.id]) this.options.events.notify(channel, definition, params);
  }
}
