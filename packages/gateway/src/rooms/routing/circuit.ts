/** Consecutive failures that open the circuit, and for how long. */
const FAILURES_TO_OPEN = 3;
const OPEN_MS = 30_000;
const CAUSE_LENGTH_MAX = 300;

interface CircuitReport {
  state: "closed" | "open" | "half_open";
  consecutive_failures: number;
  /** What the last failure was. */
  cause: string | null;
  /** When an open circuit lets one test call through. */
  retry_at: string | null;
}

/** Keeps calls away from a backend that keeps failing. After a while exactly one call may test it. */
export class Circuit {
  #failures = 0;
  #openUntilMs: number | null = null;
  #trialRunning = false;
  #cause: string | null = null;

  /** Whether a call may be sent; has no side effects. */
  canPass(nowMs: number): boolean {
    return this.#openUntilMs === null || (!this.#trialRunning && nowMs >= this.#openUntilMs);
  }

  /** A call is sent. True when it is the test call of an open circuit; its outcome must be reported with `tested`. */
  enter(): boolean {
    if (this.#openUntilMs === null) return false;
    this.#trialRunning = true;
    return true;
  }

  /** The test call has ended. Calls from before the circuit opened may end meanwhile and do not count as tests. */
  tested(): void {
    this.#trialRunning = false;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#openUntilMs = null;
    this.#cause = null;
  }

  failed(cause: string, nowMs: number): void {
    this.#failures++;
    this.#cause = cause.slice(0, CAUSE_LENGTH_MAX);
    if (this.#failures >= FAILURES_TO_OPEN) this.#openUntilMs = nowMs + OPEN_MS;
  }

  report(nowMs: number): CircuitReport {
    const until = this.#openUntilMs;
    const halfOpen = until !== null && (this.#trialRunning || nowMs >= until);
    return {
      state: until === null ? "closed" : halfOpen ? "half_open" : "open",
      consecutive_failures: this.#failures,
      cause: this.#cause,
      retry_at: until === null ? null : new Date(until).toISOString(),
    };
  }
}
