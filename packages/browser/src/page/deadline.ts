/** One clock for all steps of an operation. */
import { ToolError } from "../errors.ts";

const callGraceMs = 200;

export const cancelled = () => new ToolError("cancelled", "The operation was cancelled by its caller.");

export class Deadline {
  readonly timeoutMs: number;
  /** Aborted when the caller has cancelled the operation. */
  readonly signal: AbortSignal | null;
  #at: number;
  #callMsMax = Number.POSITIVE_INFINITY;

  constructor(timeoutMs: number, signal: AbortSignal | null = null) {
    this.timeoutMs = timeoutMs;
    this.signal = signal;
    this.#at = performance.now() + timeoutMs;
  }

  /** Time left for waiting. */
  get restMs(): number {
    return this.signal?.aborted ? 0 : Math.max(0, this.#at - performance.now());
  }

  /**
   * The limit for one call to the browser: a little more, so that a call that waits in the page can still answer.
   * Each step of an operation asks for it, so one that was cancelled ends at its next step.
   */
  get leftMs(): number {
    if (this.signal?.aborted) throw cancelled();
    return Math.min(Math.ceil(this.restMs) + callGraceMs, this.#callMsMax);
  }

  /** The same end, with a limit for each single call. */
  withCallLimit(callMsMax: number): Deadline {
    const limited = new Deadline(this.timeoutMs, this.signal);
    limited.#at = this.#at;
    limited.#callMsMax = Math.min(callMsMax, this.#callMsMax);
    return limited;
  }

  /** An earlier end, for a part of the operation. */
  within(timeoutMs: number): Deadline {
    const earlier = new Deadline(Math.min(timeoutMs, this.restMs), this.signal);
    earlier.#callMsMax = this.#callMsMax;
    return earlier;
  }

  get hasPassed(): boolean {
    return this.restMs === 0;
  }

  expired(what: string): ToolError {
    return new ToolError("timeout", `Timeout ${this.timeoutMs}ms exceeded. ${what}`);
  }
}
