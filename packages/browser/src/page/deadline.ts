/** One clock for all steps of an operation. */
import { ToolError } from "../errors.ts";

const callGraceMs = 200;

export class Deadline {
  readonly timeoutMs: number;
  #at: number;
  #callMsMax = Number.POSITIVE_INFINITY;

  constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
    this.#at = performance.now() + timeoutMs;
  }

  /** Time left for waiting. */
  get restMs(): number {
    return Math.max(0, this.#at - performance.now());
  }

  /** The limit for one call to the browser: a little more, so that a call that waits in the page can still answer. */
  get leftMs(): number {
    return Math.min(Math.ceil(this.restMs) + callGraceMs, this.#callMsMax);
  }

  /** The same end, with a limit for each single call. */
  withCallLimit(callMsMax: number): Deadline {
    const limited = new Deadline(this.timeoutMs);
    limited.#at = this.#at;
    limited.#callMsMax = Math.min(callMsMax, this.#callMsMax);
    return limited;
  }

  /** An earlier end, for a part of the operation. */
  within(timeoutMs: number): Deadline {
    const earlier = new Deadline(Math.min(timeoutMs, this.restMs));
    earlier.#callMsMax = this.#callMsMax;
    return earlier;
  }

  get hasPassed(): boolean {
    return performance.now() >= this.#at;
  }

  expired(what: string): ToolError {
    return new ToolError("timeout", `Timeout ${this.timeoutMs}ms exceeded. ${what}`);
  }
}
