import { BackendError, type VideoRequest } from "../../backends/contract.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { Payer } from "../../kernel/payer.ts";
import { clipFacts, type VideoOptions } from "./service.ts";
import type { JobRow, VideoStore } from "./store.ts";

/** Message: the id of a job that ended; the instance that made it has its hold. */
const ENDED = "video-ended";
const CONCURRENT_STEPS_MAX = 16;
const TICK_MS = 500;
/** Renewed while a step is under way; a dead instance's jobs are free after this. */
const LEASE_MS = 15_000;
const STEP_TIMEOUT_MS = 120_000;
/** After a failed claim the database is left alone for this long. */
const CLAIM_PAUSE_MS = 5_000;
const POLL_MS = { first: 2_000, most: 15_000 };
const POLL_GROWTH = 1.5;
const ERROR_LENGTH_MAX = 2_000;

type End = Parameters<VideoStore["end"]>[1];

/** A failure of the upstream that may pass: asked again until the job's deadline. */
const isTransient = (error: unknown): boolean =>
  !(error instanceof BackendError) ||
  error.kind !== "upstream" ||
  error.status === undefined ||
  error.status === 429 ||
  error.status === 408 ||
  error.status >= 500;

/** Carries jobs forward: submit, poll, settle; one step at a time, each under a lease. */
export class JobRunner {
  readonly #instance: string;
  readonly #running = new Map<string, Promise<void>>();
  readonly #holds = new Map<string, () => void>();
  readonly #stopTicking: () => void;
  readonly #stopped = new AbortController();
  #claiming: Promise<void> | null = null;
  #pausedUntilMs = 0;

  constructor(
    readonly store: VideoStore,
    readonly options: VideoOptions,
  ) {
    this.#instance = options.ids.uuid();
    options.bus.subscribe(ENDED, (jobId) => this.#releaseHold(jobId));
    this.#stopTicking = options.clock.every(options.tickMs ?? TICK_MS, () => this.wake());
  }

  /** The hold of a job made here ends with the job. */
  holdUntilEnd(jobId: string, endHold: () => void): void {
    this.#holds.set(jobId, endHold);
  }

  wake(): void {
    const { clock, log } = this.options;
    if (this.#stopped.signal.aborted || clock.now() < this.#pausedUntilMs) return;
    this.#claiming ??= this.#claim()
      .catch((error) => {
        this.#pausedUntilMs = clock.now() + CLAIM_PAUSE_MS;
        log.warn("video jobs could not be claimed", { error });
      })
      .finally(() => {
        this.#claiming = null;
      });
  }

  async stop(): Promise<void> {
    this.#stopTicking();
    this.#stopped.abort();
    await this.#claiming;
    await Promise.allSettled(this.#running.values());
  }

  async #claim(): Promise<void> {
    const nowMs = this.options.clock.now();
    const until = isoTime(nowMs + LEASE_MS);
    if (this.#running.size > 0) await this.store.renew(this.#instance, until);
    const limit = CONCURRENT_STEPS_MAX - this.#running.size;
    if (limit <= 0) return;
    for (const job of await this.store.claimDue({
      owner: this.#instance,
      now: isoTime(nowMs),
      until,
      limit,
    })) {
      const step = this.#step(job)
        .catch((error) => this.options.log.error("a step of a video job failed", { job_id: job.id, error }))
        .finally(() => this.#running.delete(job.id));
      this.#running.set(job.id, step);
    }
  }

  async #step(job: JobRow): Promise<void> {
    if (job.status === "done") {
      await this.#settle(job);
      return;
    }
    if (Date.parse(job.deadline_at) <= this.options.clock.now()) {
      await this.#fail(job, "the job did not finish in time");
      return;
    }
    const signal = AbortSignal.any([this.#stopped.signal, AbortSignal.timeout(STEP_TIMEOUT_MS)]);
    try {
      if (job.status === "queued") await this.#submit(job, signal);
      else await this.#poll(job, signal);
    } catch (error) {
      if (!isTransient(error)) await this.#fail(job, (error as Error).message);
      else if (!this.#stopped.signal.aborted) {
        this.options.log.warn("a video job will be tried again", { job_id: job.id, error });
      }
    }
    await this.store.rest(job.id, isoTime(this.options.clock.now() + this.#delayMs(job)));
  }

  #delayMs({ step_count, status }: JobRow): number {
    const { first, most } = this.options.pollMs ?? POLL_MS;
    return status === "queued" ? first : Math.min(most, first * POLL_GROWTH ** Math.min(step_count, 20));
  }

  async #submit(job: JobRow, signal: AbortSignal): Promise<void> {
    const backend = this.options.backendNamed(job.backend) ?? this.options.route(job.model).backend;
    if (!backend.video) throw new BackendError("unsupported", `backend ${job.backend} does not make videos`);
    const request = JSON.parse(job.request) as VideoRequest;
    const taskId = await backend.video.submit(request, signal);
    const started = await this.store.started(job.id, taskId, JSON.stringify({ ...request, images: [] }));
    if (started) this.#notify(job, "video.progress", { status: "running", progress: 0 });
    else await backend.video.cancel?.(taskId, signal);
  }

  async #poll(job: JobRow, signal: AbortSignal): Promise<void> {
    const backend = this.options.backendNamed(job.backend);
    // Gone for now: it may be registered again before the deadline.
    if (!backend?.video) return;
    const poll = await backend.video.poll(job.task_id!, signal);
    if (poll.state === "pending") {
      const progress = Math.max(job.progress, Math.min(99, poll.progress ?? job.progress));
      if (progress > job.progress) await this.store.progressed(job.id, progress);
      this.#notify(job, "video.progress", { status: "running", progress });
    } else if (poll.state === "failed") {
      await this.#fail(job, poll.error);
    } else {
      const cost = await this.options.priceUsd(
        job.model,
        clipFacts(JSON.parse(job.request) as VideoRequest, poll.result),
      );
      const result = JSON.stringify(poll.result);
      if (await this.end(job, { status: "done", result, error: null, cost }))
        await this.#settle({ ...job, cost, result });
    }
  }

  #fail(job: JobRow, error: string): Promise<boolean> {
    return this.end(job, {
      status: "failed",
      result: null,
      error: error.slice(0, ERROR_LENGTH_MAX),
      cost: 0,
    });
  }

  /** Ends the job once, whoever comes first, and tells its followers. */
  async end(job: JobRow, end: End): Promise<boolean> {
    const ended = await this.store.end(job.id, end);
    if (!ended) return false;
    if (end.status !== "done") this.options.bus.publish(ENDED, job.id);
    if (end.status === "done") {
      this.#notify(job, "video.done", { status: "done", result: JSON.parse(end.result!), cost: end.cost });
    } else {
      this.#notify(job, "video.failed", { status: end.status, error: end.error ?? "cancelled" });
    }
    return true;
  }

  /**
   * Records the cost of a done job. A process that dies in between leaves the job unsettled, and the next one
   * records it again under the same id, which the journal takes once.
   */
  async #settle(job: JobRow): Promise<void> {
    const payer = JSON.parse(job.payer) as Payer;
    this.options.record({ requestId: job.id, payer, model: job.model, costUsd: job.cost, refId: job.ref_id });
    this.options.bus.publish(ENDED, job.id);
    await this.store.settled(job.id);
  }

  #releaseHold(jobId: string): void {
    this.#holds.get(jobId)?.();
    this.#holds.delete(jobId);
  }

  #notify(job: JobRow, method: string, params: Record<string, unknown>): void {
    const json = JSON.stringify({ jsonrpc: "2.0", method, params: { job_id: job.id, ...params } });
    this.options.events.push(job.stream_id, json);
    this.options.events.push(job.id, json);
  }
}
