import { isoTime } from "../../kernel/clock.ts";
import type { Admission } from "../metering/index.ts";
import { chargeOf } from "./charges.ts";
import type { VideoOptions } from "./service.ts";
import type { JobSummary, VideoStore } from "./store.ts";

/** Message: the id of a job that ended; the instance that has its hold releases it. */
const ENDED = "video-ended";
/** Message: some jobs no longer have an owner. */
const ABANDONED = "video-abandoned";

/** After this a dead instance's jobs are taken over. Redis keeps its holds for longer, so none is missing meanwhile. */
const LEASE_MS = 9_000;
const RENEW_MS = 2_000;
const CLAIMED_MAX = 500;

/** The jobs that this instance carries, each under a lease and with its hold. Another takes over both if it dies. */
export class OwnedJobs {
  readonly #instance: string;
  readonly #holds = new Map<string, Admission>();
  readonly #unheld = new Map<string, JobSummary>();
  #renewedAtMs = 0;

  constructor(
    readonly store: VideoStore,
    readonly options: Pick<VideoOptions, "bus" | "clock" | "ids" | "metering">,
    abandoned: () => void,
  ) {
    const { bus, ids } = options;
    this.#instance = ids.uuid();
    bus.subscribe(ENDED, (jobId) => this.release(jobId));
    bus.subscribe(ABANDONED, abandoned);
  }

  lease(): { lease_owner: string; lease_until: string } {
    return { lease_owner: this.#instance, lease_until: isoTime(this.options.clock.now() + LEASE_MS) };
  }

  get count(): number {
    return this.#holds.size + this.#unheld.size;
  }

  add(jobId: string, hold: Admission): void {
    this.#holds.set(jobId, hold);
  }

  /** Removes the job and returns its hold, which the caller must end. */
  take(jobId: string): Admission | null {
    const hold = this.#holds.get(jobId) ?? null;
    this.#holds.delete(jobId);
    this.#unheld.delete(jobId);
    return hold;
  }

  release(jobId: string): void {
    this.take(jobId)?.release();
  }

  /** Ends the job's hold, on any instance. */
  ended(jobId: string): void {
    this.options.bus.publish(ENDED, jobId);
  }

  /** At start. Without Redis this is the only instance, so jobs of an earlier run are held again at once. */
  async start(): Promise<void> {
    const fromTheLiving = !this.options.bus.shared;
    while ((await this.#claim({ fromTheLiving })) === CLAIMED_MAX);
  }

  /** Keeps the leases, and takes over jobs that have no owner. */
  async keep(): Promise<void> {
    const nowMs = this.options.clock.now();
    if (nowMs - this.#renewedAtMs >= RENEW_MS || nowMs < this.#renewedAtMs) {
      this.#renewedAtMs = nowMs;
      if (this.count > 0) await this.#renew();
    }
    await this.#claim({ fromTheLiving: false });
  }

  async #renew(): Promise<void> {
    const before = [...this.#holds.keys(), ...this.#unheld.keys()];
    const owned = new Set((await this.store.renew(this.lease())).map(({ id }) => id));
    for (const id of before) if (!owned.has(id)) this.release(id);
  }

  async #claim({ fromTheLiving }: { fromTheLiving: boolean }): Promise<number> {
    const now = isoTime(this.options.clock.now());
    const claimed = await this.store.claim({ ...this.lease(), now, limit: CLAIMED_MAX, fromTheLiving });
    for (const job of claimed) if (!this.#holds.has(job.id)) this.#unheld.set(job.id, job);
    for (const job of [...this.#unheld.values()]) await this.#hold(job);
    return claimed.length;
  }

  async #hold(job: JobSummary): Promise<void> {
    const bound = { costUsd: job.bound_usd ?? 0 };
    const hold = await this.options.metering.resume({ ...chargeOf(job), bound });
    // It may have ended meanwhile.
    if (this.#unheld.delete(job.id)) this.#holds.set(job.id, hold);
    else hold.release();
  }

  async abandon(): Promise<void> {
    await this.store.abandon(this.#instance);
    this.options.bus.publish(ABANDONED, "");
  }
}
