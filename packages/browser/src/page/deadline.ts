/** One clock for all steps of an operation. */
import { ToolError } from "../errors.ts";

export class Deadline {
  readonly timeoutMs: number;
  readonly #at: number;

  constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
    this.#at = performance.now() + timeoutMs;
  }

  /** Time left, at least one millisecond so that a call is always made with a valid limit. */
  get leftMs(): number {
    return Math.max(1, this.#at - performance.now());
  }

  get hasPassed(): boolean {
    return performance.now() >= this.#at;
  }

  expired(what: string): ToolError {
    return new ToolError("timeout", `Timeout ${this.timeoutMs}ms exceeded. ${what}`);
  }
}
