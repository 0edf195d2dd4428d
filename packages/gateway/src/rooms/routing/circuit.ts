/** Consecutive failures that open the circuit, and for how long. */
export const FAILURES_TO_OPEN = 3;
export const OPEN_MS = 30_000;
/** The same body counts once in this time: client libraries repeat what failed. */
const BODY_COUNTS_ONCE_MS = 30_000;
const BODIES_KEPT = 8;
/** A probe that took this long had to wait for a backend that was not answering. */
const SLOW_PROBE_MS = 1_000;
const CAUSE_LENGTH_MAX = 300;

interface CircuitReport {
  state: "closed" | "open" | "half_open";
  consecutive_failures: number;
  /** What the last failure was. */
  cause: string | null;
  /** When an open circuit lets one test call through. */
  retry_at: string | null;
}

export interface FailureFacts {
  /** Hash of what was sent; absent where the body cannot be what went wrong. */
  body?: number | bigint;
  /** Nothing reached the backend. */
  isUnreached?: boolean;
  /** It was the test call of an open circuit. */
  isTest?: boolean;
}

/** Keeps calls away from a backend that keeps failing. After a while exactly one call may test it. */
export class Circuit {
  #failures = 0;
  #openUntilMs: number | null = null;
  #trialRunning = false;
  #cause: string | null = null;
  /** Since when it has not served a call, as far as this circuit knows. */
  #awaySinceMs: number | null = null;
  #isUnreached = false;
  #hasMissedProbe = false;
  #bodies: { hash: number | bigint; atMs: number }[] = [];

  /** Whether a call may be sent; has no side effects. */
  canPass(nowMs: number): boolean {
    return this.#openUntilMs === null || (!this.#trialRunning && this.#isDue(nowMs));
  }
  /** Further away than it was ever put: the clock was set back. */
  #isDue(nowMs: number): boolean {
    const leftMs = this.#openUntilMs! - nowMs;
    return leftMs <= 0 || leftMs > OPEN_MS;
  }
  get isOpen(): boolean {
    return this.#openUntilMs !== null;
  }
  get cause(): string | null {
    return this.#cause;
  }
  /** When it first opened without having served a call since. */
  get awaySinceMs(): number | null {
    return this.#awaySinceMs;
  }
  /** When an open circuit lets its test call through. */
  get openUntilMs(): number | null {
    return this.#openUntilMs;
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

  /** True when this closed it. */
  succeeded(): boolean {
    const wasOpen = this.isOpen;
    // Nothing to forget is by far the most common case.
    if (this.#failures === 0 && !wasOpen) return false;
    this.#failures = 0;
    this.#openUntilMs = null;
    this.#cause = null;
    this.#awaySinceMs = null;
    this.#bodies = [];
    return wasOpen;
  }

  /** True when this opened it. */
  failed(
    cause: string,
    nowMs: number,
    { body, isUnreached = false, isTest = false }: FailureFacts = {},
  ): boolean {
    if (body !== undefined && !isTest && this.#hasCounted(body, nowMs)) return false;
    this.#failures++;
    this.#cause = cause.slice(0, CAUSE_LENGTH_MAX);
    this.#isUnreached = isUnreached;
    if (this.#failures < FAILURES_TO_OPEN) return false;
    const opens = !this.isOpen;
    this.#openUntilMs = nowMs + OPEN_MS;
    this.#awaySinceMs ??= nowMs;
    if (opens) this.#hasMissedProbe = false;
    return opens;
  }

  #hasCounted(hash: number | bigint, nowMs: number): boolean {
    const recent = this.#bodies.filter(({ atMs }) => nowMs - atMs < BODY_COUNTS_ONCE_MS);
    const isKnown = recent.some((each) => each.hash === hash);
    if (!isKnown) recent.push({ hash, atMs: nowMs });
    this.#bodies = recent.slice(-BODIES_KEPT);
    return isKnown;
  }

  /**
   * A probe's result. One that succeeds says that the backend is back where nothing could reach it before, or where
   * probes went unanswered as well; of a backend that answers calls with errors it says nothing, and the time of the
   * open circuit runs on. True when this closed it: the next failure opens it again.
   */
  probed({ isWell, tookMs }: { isWell: boolean; tookMs: number }): boolean {
    if (!this.isOpen) return false;
    if (!isWell || tookMs >= SLOW_PROBE_MS) this.#hasMissedProbe = true;
    if (!isWell || !(this.#isUnreached || this.#hasMissedProbe)) return false;
    this.#openUntilMs = null;
    this.#failures = FAILURES_TO_OPEN - 1;
    return true;
  }

  report(nowMs: number): CircuitReport {
    const until = this.#openUntilMs;
    const halfOpen = until !== null && (this.#trialRunning || this.#isDue(nowMs));
    return {
      state: until === null ? "closed" : halfOpen ? "half_open" : "open",
      consecutive_failures: this.#failures,
      cause: this.#cause,
      retry_at: until === null ? null : new Date(until).toISOString(),
    };
  }
}
