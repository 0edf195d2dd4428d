import type { ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError, type Flow, type PieceReader } from "../../../backends/contract.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { isAboutClient, type WatchedCall } from "../call/deadlines.ts";
import type { StreamHold } from "./stream-hold.ts";
import type { StreamMeter } from "./stream-meter.ts";

/** How long the status waits for the first event, in case that is an error which deserves a status of its own. */
const PEEK_MS = 2_000;
/** What may wait for a client whose response has not begun. */
const HELD_BYTES_MAX = 256 * 1024;
export const KEEP_ALIVE = Buffer.from(": keep-alive\n\n");

/** Where the client's bytes go. */
export interface Sink extends Pick<ReplyWriter, "write" | "end"> {
  /** Keeps a silent connection open in the sink's own way; absent: by a comment. */
  keepAlive?(): void;
}

export type Ending =
  | { kind: "complete" }
  /** The gateway stopped it: no more of it can be paid. */
  | { kind: "stopped" }
  /** The upstream failed on the way. */
  | { kind: "cut"; error: BackendError }
  /** The client is gone. */
  | { kind: "left" };

/** Moves one event stream from the upstream to the client at the client's pace: each piece as it arrives. */
export class Relay implements PieceReader {
  readonly #flow: Flow;
  #sink: Sink | null = null;
  /** What is there for the client and not written yet: pieces that came together leave together. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** The client does not keep up. */
  #isBlocked = false;
  /** The upstream has nothing more for us, one way or the other. */
  #isOver = false;
  #isStopped = false;
  /** More is being held for what follows. */
  #isAsking = false;
  #error: unknown = null;
  /** Called when the first piece is there, and later when it is over. */
  #wake: (() => void) | null = null;

  constructor(
    answer: Answer,
    readonly meter: StreamMeter,
    readonly watched: WatchedCall,
    readonly clock: Clock,
    readonly hold: StreamHold,
  ) {
    this.#flow = answer.pipe(this);
  }

  /** Waits for the first piece, or a moment; throws when it is a failure, which then can still be a status. */
  async peek(): Promise<void> {
    this.#flow.resume();
    if (!this.#isOver && this.#heldBytes === 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.clock.after(PEEK_MS, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
      this.#wake = null;
    }
    const { isAborted, reason } = this.watched;
    if (isAborted && !isAboutClient(reason)) throw reason;
    if (this.#error) throw this.#error;
    // Text that came in one piece with the failure is the client's; then it is told inside the stream.
    if (this.meter.failure !== null && this.meter.textBytes === 0)
      throw new BackendError("upstream", this.meter.failure, 500);
    if (this.#isOver && !this.meter.complete && this.meter.textBytes === 0) throw endedEarly();
  }

  piece(bytes: Uint8Array): void {
    if (this.#isOver) return;
    const { meter } = this;
    // While the client is waited for, the time that counts is the client's.
    if (!this.#isBlocked) this.watched.touch();
    const passed = meter.feed(bytes);
    if (passed) this.#hold(passed);
    if (meter.done || meter.failure !== null) {
      if (meter.done) this.#flow.leave();
      else this.#flow.cancel();
      this.#over();
    } else if (meter.tokens >= this.hold.askAt) this.#ask();
  }

  /** What was delivered nears what is held: more must be, or the stream ends here. */
  #ask(): void {
    if (this.#isAsking) return;
    const mayGoOn = this.hold.delivered(this.meter.tokens);
    if (mayGoOn === true) return;
    if (mayGoOn === false) {
      this.#stop();
      return;
    }
    this.#isAsking = true;
    this.#flow.pause();
    mayGoOn.then(
      (goesOn) => this.#answered(goesOn),
      // The hold cannot be shared right now; what is delivered is settled in any case.
      () => this.#answered(true),
    );
  }

  #answered(goesOn: boolean): void {
    this.#isAsking = false;
    if (this.#isOver) return;
    if (!goesOn) this.#stop();
    // What came meanwhile may need more again.
    else if (this.meter.tokens >= this.hold.askAt) this.#ask();
    else if (!this.#isBlocked) this.#flow.resume();
  }

  #stop(): void {
    this.#isStopped = true;
    this.#flow.cancel();
    this.#over();
  }

  #hold(bytes: Uint8Array): void {
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    // Otherwise it leaves at the next flush.
    const isWaiting = this.#sink === null || this.#isBlocked;
    if (isWaiting && this.#heldBytes > HELD_BYTES_MAX) this.#flow.pause();
  }

  flush(): void {
    if (this.#heldBytes === 0 || this.#isBlocked) return;
    // Before the response has begun somebody waits for the first bytes.
    if (this.#sink) this.#write(this.#sink);
    else this.#wake?.();
  }

  #write(sink: Sink): void {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    if (sink.write(held.length === 1 ? held[0]! : Buffer.concat(held))) return;
    // Nothing more is read for a client that does not keep up, until it does.
    this.#isBlocked = true;
    this.watched.blocked();
    this.#flow.pause();
  }

  /** The client has taken what was written. */
  drained(): void {
    if (!this.#isBlocked) return;
    this.#isBlocked = false;
    this.flush();
    if (this.#isBlocked) return;
    if (this.#isOver) this.#wake?.();
    else {
      this.watched.touch();
      if (!this.#isAsking) this.#flow.resume();
    }
  }

  end(): void {
    if (this.#isOver) return;
    const rest = this.meter.flush();
    if (rest) this.#hold(rest);
    this.#over();
  }

  failed(error: unknown): void {
    if (this.#isOver) return;
    this.#error = error;
    this.#over();
  }

  #over(): void {
    this.#isOver = true;
    this.flush();
    // A client that does not keep up gets what waits for it first; one that is gone does not.
    if (!this.#isBlocked || this.watched.isAborted) this.#wake?.();
  }

  async run(sink: Sink): Promise<Ending> {
    const { meter, watched } = this;
    watched.onSilence = () => {
      if (!meter.atBoundary) return;
      if (sink.keepAlive) sink.keepAlive();
      else sink.write(KEEP_ALIVE);
    };
    // A client that leaves, or stalls, with the last of the answer still waiting for it is waited for no longer.
    watched.onAborted = () => {
      if (this.#isOver) this.#wake?.();
    };
    this.#sink = sink;
    this.flush();
    if ((!this.#isOver || this.#isBlocked) && !(this.#isOver && watched.isAborted)) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (!this.#isOver && !this.#isBlocked && !this.#isAsking) this.#flow.resume();
      });
    }
    watched.onSilence = null;
    // The response is over for us; a client that left while it was waited for gets nothing more.
    this.#sink = null;
    this.#held = [];
    return this.#ending();
  }

  #ending(): Ending {
    const { meter, watched } = this;
    const error = watched.isAborted ? watched.reason : this.#error;
    if (isAboutClient(error)) return { kind: "left" };
    if (this.#isStopped) return { kind: "stopped" };
    if (error) return { kind: "cut", error: asBackendError(error) };
    if (meter.failure !== null)
      return { kind: "cut", error: new BackendError("upstream", meter.failure, 500) };
    if (meter.complete) return { kind: "complete" };
    return { kind: "cut", error: endedEarly() };
  }
}

const endedEarly = (): BackendError =>
  new BackendError("transport", "the upstream ended the stream before the answer was complete");

const asBackendError = (error: unknown): BackendError =>
  error instanceof BackendError ? error : new BackendError("transport", String(error));
