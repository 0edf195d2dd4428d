import { BackendError } from "../../../backends/contract.ts";
import { askedOnce, BoundedMap, Purse } from "../../../kernel/bounded.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { fail } from "../../../kernel/errors.ts";
import { inBackground, type Log } from "../../../kernel/log.ts";
import type { Payer } from "../../../kernel/payer.ts";

export interface Deadlines {
  /** Until the first byte of the answer; without streaming this covers the whole generation. */
  firstByteMs: number;
  idleMs: number;
  totalMs: number;
  /** How long a client may stop reading. */
  clientStallMs: number;
  /** After this much silence we send a comment, so that proxies keep the connection open. */
  keepAliveMs: number;
}

export const DEFAULT_DEADLINES: Deadlines = {
  firstByteMs: 600_000,
  idleMs: 300_000,
  totalMs: 3_600_000,
  clientStallMs: 300_000,
  keepAliveMs: 15_000,
};

/** Calls in progress over all accounts; each holds an upstream connection. */
const CALLS_MAX = 10_000;
/** Longer than a request can wait in a backend's queue. */
const CHANGED_KEPT_MS = 10 * 60_000;
const TICK_MS_MAX = 1_000;
const TICKS_PER_DEADLINE = 4;
/** How long calls have to settle when the service stops. */
const SETTLED_WITHIN_MS = 2_000;

export const CLIENT_LEFT = new Error("the client left");
const CLIENT_STALLED = new Error("the client stopped reading");

/** The abort reason for a request whose key or account lost its rights. */
export class Revocation extends BackendError {
  constructor() {
    super("request", "the key of this request was revoked, or its account may no longer use it");
  }
}

/** Whether an abort was caused by the client, and so says nothing about the backend. */
export const isAboutClient = (reason: unknown): boolean =>
  reason === CLIENT_LEFT || reason === CLIENT_STALLED;

/** One upstream call with its timeouts. Each piece of the answer costs a timestamp, not a timer. */
export class WatchedCall {
  /** Created on demand: most calls are never aborted, and our own HTTP client needs no signal. */
  #controller: AbortController | null = null;
  #onAbort: ((reason: unknown) => void) | null = null;
  isAborted = false;
  reason: unknown = null;
  #startedAtMs: number;
  #lastMs: number;
  #phase: "waiting" | "streaming" | "blocked" = "waiting";
  #pingedMs = 0;
  /** Called when the call is aborted, whether or not the upstream has finished. */
  onAborted: (() => void) | null = null;
  onSilence: (() => void) | null = null;
  index = -1;

  constructor(
    readonly clock: Clock,
    readonly deadlines: Deadlines,
    readonly payer: Payer,
  ) {
    this.#startedAtMs = this.#lastMs = clock.elapsed();
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.isAborted) this.#controller.abort(this.reason);
    }
    return this.#controller.signal;
  }

  /** Only one callback: a later attempt's replaces the earlier one's. */
  whenAborted(run: (reason: unknown) => void): void {
    if (this.isAborted) run(this.reason);
    else this.#onAbort = run;
  }

  abort(reason: unknown): void {
    if (this.isAborted) return;
    this.isAborted = true;
    this.reason = reason;
    this.#onAbort?.(reason);
    this.#controller?.abort(reason);
    this.onAborted?.();
  }

  /** Ends the current attempt; the call continues with another one. */
  giveUpAttempt(reason: unknown): void {
    if (this.isAborted) return;
    const run = this.#onAbort;
    const controller = this.#controller;
    this.#onAbort = null;
    this.#controller = null;
    run?.(reason);
    controller?.abort(reason);
  }

  touch(): void {
    this.#lastMs = this.clock.elapsed();
    this.#phase = "streaming";
  }
  blocked(): void {
    this.#lastMs = this.clock.elapsed();
    this.#phase = "blocked";
  }
  close(): void {
    this.onSilence = null;
    this.onAborted = null;
    this.#onAbort = null;
  }

  /** Shifts every timeout by the time for which this process was paused. */
  extendBy(ms: number): void {
    this.#startedAtMs += ms;
    this.#lastMs += ms;
  }

  /** `nowMs` is monotonic (`clock.elapsed()`), so that setting the machine's clock expires nothing. */
  check(nowMs: number): void {
    const { firstByteMs, idleMs, totalMs, clientStallMs, keepAliveMs } = this.deadlines;
    const silentMs = nowMs - this.#lastMs;
    if (nowMs - this.#startedAtMs >= totalMs) this.#expire(`the answer took longer than ${totalMs} ms`);
    else if (this.#phase === "blocked") {
      if (silentMs >= clientStallMs) this.abort(CLIENT_STALLED);
    } else {
      const limitMs = this.#phase === "waiting" ? firstByteMs : idleMs;
      if (silentMs >= limitMs) this.#expire(`the upstream sent nothing for ${limitMs} ms`);
      else if (nowMs - Math.max(this.#lastMs, this.#pingedMs) >= keepAliveMs && this.onSilence) {
        this.#pingedMs = nowMs;
        this.onSilence();
      }
    }
  }

  #expire(detail: string): void {
    this.abort(new BackendError("transport", detail));
  }
}

interface CallWatchOptions {
  clock: Clock;
  log: Log;
  deadlines: Deadlines;
  isInForce(payer: Payer): Promise<boolean>;
}

const idsOf = ({ keyId, userId, groupId }: Payer): string[] =>
  [keyId, userId, groupId].filter((id) => id !== null);

/** Checks the timeouts of all calls with one timer, and ends calls whose key or account lost its rights. */
export class CallWatch {
  /** Unordered array, not a Set: a churning Set is reallocated, and old copies keep ended calls alive until a full GC. */
  readonly #calls: WatchedCall[] = [];
  readonly #stop: () => void;
  readonly #tickMs: number;
  #tickedAtMs: number;
  #emptied: (() => void) | null = null;
  readonly #purse = new Purse(CALLS_MAX);
  /** When the rights of a key, user or group last changed: a call admitted before that may open after it. */
  readonly #changed = new BoundedMap<string, number>();

  constructor(readonly options: CallWatchOptions) {
    const { clock, deadlines } = options;
    const shortest = Math.min(...Object.values(deadlines));
    this.#tickMs = Math.max(1, Math.min(TICK_MS_MAX, Math.floor(shortest / TICKS_PER_DEADLINE)));
    this.#tickedAtMs = clock.elapsed();
    this.#stop = clock.every(this.#tickMs, () => this.#tick());
  }

  get count(): number {
    return this.#calls.length;
  }

  /** Takes a slot or throws. `release` gives it back, or `left` if the call was never opened. */
  enter({ userId }: Payer): void {
    if (!this.#purse.take(userId, 1))
      fail("rate_limited", "You have too many requests in progress; wait for some to end", {
        retryAfterSeconds: 1,
      });
  }
  left({ userId }: Payer): void {
    this.#purse.give(userId, 1);
  }

  open(payer: Payer): WatchedCall {
    const { clock, deadlines, log } = this.options;
    const call = new WatchedCall(clock, deadlines, payer);
    call.index = this.#calls.push(call) - 1;
    if (this.#changed.size > 0 && this.#hasChanged(payer))
      inBackground(log, "checking a call whose rights changed", this.#recheck([call]));
    return call;
  }
  release(call: WatchedCall): void {
    call.close();
    if (call.index === -1) return;
    this.left(call.payer);
    const last = this.#calls.pop()!;
    if (last !== call) {
      this.#calls[call.index] = last;
      last.index = call.index;
    }
    call.index = -1;
    if (this.#calls.length === 0) this.#emptied?.();
  }

  /** Ends those calls of this key, user or group that are no longer allowed. Null: checks all calls. */
  async recheck(id: string | null): Promise<void> {
    if (id !== null) this.#changed.set(id, this.options.clock.now());
    await this.#recheck(this.#calls.filter(({ payer }) => id === null || idsOf(payer).includes(id)));
  }

  /** One query after another: there may be many calls, and other requests need the database too. */
  async #recheck(calls: readonly WatchedCall[]): Promise<void> {
    const isInForce = askedOnce(
      ({ keyId, userId }: Payer) => keyId ?? userId,
      (payer) => this.options.isInForce(payer),
    );
    for (const call of calls) if (!(await isInForce(call.payer))) call.abort(new Revocation());
  }

  #hasChanged(payer: Payer): boolean {
    const sinceMs = this.options.clock.now() - CHANGED_KEPT_MS;
    return idsOf(payer).some((id) => (this.#changed.get(id) ?? 0) > sinceMs);
  }

  #tick(): void {
    const nowMs = this.options.clock.elapsed();
    // A tick that comes late means that the process was paused. What the upstream sent meanwhile has not been read
    // yet, so its silence is not known: without this, one pause would cut every stream.
    const lateMs = nowMs - this.#tickedAtMs - this.#tickMs;
    this.#tickedAtMs = nowMs;
    // A copy, because expired calls leave the list.
    for (const call of this.#calls.slice()) {
      if (lateMs > this.#tickMs) call.extendBy(lateMs);
      call.check(nowMs);
    }
  }

  async close(): Promise<void> {
    this.#stop();
    if (this.#calls.length === 0) return;
    const { promise: emptied, resolve } = Promise.withResolvers<void>();
    this.#emptied = resolve;
    for (const call of this.#calls.slice())
      call.abort(new BackendError("transport", "the service is stopping"));
    await Promise.race([emptied, Bun.sleep(SETTLED_WITHIN_MS)]);
  }
}
