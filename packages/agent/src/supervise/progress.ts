/** A deployment's progress, sent to its followers: every change of status, and the rest at a bounded rate. */
import type { DeployStatus } from "@model-gateway/protocol/agent.ts";
import { formatBytes, formatSeconds } from "../weights/format.ts";
import type { WeightsProgress } from "../weights/store.ts";

export interface Progress {
  status: DeployStatus;
  /** 0-100 over the whole deployment; it does not go back before the model is ready. */
  progress: number;
  message?: string;
}

const REPORT_INTERVAL_MS = 500;
/** Share of the whole that the download takes; loading cannot be measured, so it stands at this figure. */
export const DOWNLOADED_PERCENT = 90;

export class ProgressReporter {
  #current: Progress = { status: "queued", progress: 0 };
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  readonly #report: (progress: Progress) => void;
  readonly #now: () => number;

  constructor(report: (progress: Progress) => void, now: () => number = Date.now) {
    this.#report = report;
    this.#now = now;
  }

  get current(): Progress {
    return this.#current;
  }

  /** A new status, or news that must not be missed. */
  set(next: Progress): void {
    this.#current = next;
    this.#reportedAtMs = this.#now();
    this.#report(next);
  }

  /** News of the same kind as before; dropped when the last was a moment ago. */
  update(next: Progress): void {
    const changed = next.status !== this.#current.status;
    if (changed || this.#now() - this.#reportedAtMs >= REPORT_INTERVAL_MS) this.set(next);
    else this.#current = next;
  }
}

/** Turns byte counts into a percentage and a line such as "1.2 GiB of 4.7 GiB, 85.0 MiB/s, about 42 s left". */
export class DownloadMeter {
  readonly #now: () => number;
  #first: { doneBytes: number; atMs: number } | null = null;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  describe({ doneBytes, totalBytes }: WeightsProgress): Progress {
    const atMs = this.#now();
    this.#first ??= { doneBytes, atMs };
    const seconds = (atMs - this.#first.atMs) / 1000;
    const rate = seconds > 0.2 ? (doneBytes - this.#first.doneBytes) / seconds : null;
    const of = totalBytes === null ? "" : ` of ${formatBytes(totalBytes)}`;
    const leftSeconds = rate && totalBytes !== null ? (totalBytes - doneBytes) / rate : null;
    const left = leftSeconds === null ? "" : `, about ${formatSeconds(leftSeconds)} left`;
    const share = totalBytes ? doneBytes / totalBytes : 0;
    return {
      status: "downloading",
      progress: Math.floor(share * DOWNLOADED_PERCENT),
      message: `${formatBytes(doneBytes)}${of}${rate === null ? "" : `, ${formatBytes(Math.round(rate))}/s`}${left}`,
    };
  }
}
