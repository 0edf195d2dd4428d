import type { ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError, type Flow, type PieceReader } from "../../../backends/contract.ts";
import { isObject, objectsIn } from "../../../kernel/json.ts";
import type { Admission } from "../../metering/index.ts";
import { isAboutClient, type WatchedCall } from "../call/deadlines.ts";

/** How long the status line is held back, in case the first event is an error with its own status. */
const PEEK_MS = 2_000;
const HELD_BYTES_MAX = 256 * 1024;
/** A piece is never read in smaller parts than this, however small the hold. */
const PART_BYTES = 1_024;
export const KEEP_ALIVE = Buffer.from(": keep-alive\n\n");

export interface Sink extends Pick<ReplyWriter, "write" | "end"> {
  /** Keeps a silent connection open; default: write a comment. */
  keepAlive?(): void;
}

const NOBODY: Sink = { write: () => true, end() {} };

/** Reads a stream in transit, and decides what passes and whether it is complete. */
export interface StreamReader {
  /** Takes bytes from the upstream and returns those for the client; null if there are none yet. */
  feed(piece: Uint8Array): Uint8Array | null;
  flush(): Uint8Array | null;
  readonly done: boolean;
  readonly complete: boolean;
  /** The upstream's error, which ends the stream as failed. */
  readonly failure: string | null;
  /** Usage that the upstream reported with that error. */
  readonly failedUsage?: unknown;
  readonly textBytes: number;
  /** Our own count of the tokens passed on. */
  readonly tokens: number;
  /** True between two upstream events, when the gateway may insert its own. */
  readonly atBoundary: boolean;
}

export type Ending =
  | { kind: "complete" }
  /** The gateway stopped it because the payer cannot cover more. */
  | { kind: "stopped" }
  | { kind: "cut"; error: BackendError }
  | { kind: "left" };

/** Relays one stream from the upstream to the client, piece by piece, at the client's pace. */
export class Relay implements PieceReader {
  readonly #flow: Flow;
  #sink: Sink | null = null;
  /** Bytes not written yet: pieces that arrive together are sent together. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** Pieces that arrived while the hold was growing, and then how the upstream ended. */
  readonly #unread: Uint8Array[] = [];
  #end: (() => void) | null = null;
  #isBlocked = false;
  #isOver = false;
  #isStopped = false;
  #isAsking = false;
  #error: unknown = null;
  /** Called when the first piece arrives, and again when the stream is over. */
  #wake: (() => void) | null = null;

  constructor(
    answer: Answer,
    readonly meter: StreamReader,
    readonly watched: WatchedCall,
    /** Grows as the stream is delivered; absent: everything is held from the start. */
    readonly hold?: StreamHold,
  ) {
    this.#flow = answer.pipe(this);
  }

  /** Waits briefly for the first piece; throws if it is a failure, which can then still set the status. */
  async peek(): Promise<void> {
    this.#flow.resume();
    if (!this.#isOver && this.#heldBytes === 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.watched.clock.after(PEEK_MS, resolve);
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
    // If text came in the same piece, it goes to the client, and the error follows inside the stream.
    if (this.meter.failure !== null && this.meter.textBytes === 0) throw failureOf(this.meter);
    if (this.#isOver && !this.meter.complete && this.meter.textBytes === 0) throw endedEarly();
  }

  piece(bytes: Uint8Array): void {
    if (this.#isOver) return;
    // While the client is slow, only the client's timeout runs.
    if (!this.#isBlocked) this.watched.touch();
    this.#unread.push(bytes);
    this.#read();
  }

  /** Reads no further than the hold: pieces may be larger than it, and still arrive for a moment after a pause. */
  #read(): void {
    const { meter, hold } = this;
    while (!this.#isOver && !this.#isAsking) {
      const bytes = this.#unread.shift();
      if (!bytes) {
        this.#end?.();
        return;
      }
      // A token has at least one byte.
      const most = hold ? Math.max(hold.askAt - meter.tokens, PART_BYTES) : bytes.length;
      if (bytes.length > most) this.#unread.unshift(bytes.subarray(most));
      const passed = meter.feed(bytes.length > most ? bytes.subarray(0, most) : bytes);
      if (passed) this.#hold(passed);
      if (meter.done || meter.failure !== null) {
        if (meter.done) this.#flow.leave();
        else this.#flow.cancel();
        this.#over();
      } else if (hold && meter.tokens >= hold.askAt) void this.#ask(hold);
    }
  }

  /** The delivered tokens approach the hold: extend it or end the stream. */
  async #ask(hold: StreamHold): Promise<void> {
    this.#isAsking = true;
    this.#flow.pause();
    const isAccepted = await hold.delivered(this.meter.tokens).catch(() => false);
    this.#isAsking = false;
    if (this.#isOver) return;
    if (isAccepted) {
      this.#read();
      this.flush();
      if (!this.#isOver && !this.#isAsking && !this.#isBlocked) this.#flow.resume();
    } else {
      this.#isStopped = true;
      this.#flow.cancel();
      this.#over();
    }
  }

  #hold(bytes: Uint8Array): void {
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    // A sink that is ready gets it at the next flush.
    const isWaiting = this.#sink === null || this.#isBlocked;
    if (isWaiting && this.#heldBytes > HELD_BYTES_MAX) this.#flow.pause();
  }

  flush(): void {
    if (this.#heldBytes === 0 || this.#isBlocked) return;
    // Before the response begins, `peek` is waiting for the first bytes.
    if (this.#sink) this.#write(this.#sink);
    else this.#wake?.();
  }

  #write(sink: Sink): void {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    if (sink.write(held.length === 1 ? held[0]! : Buffer.concat(held))) return;
    // Pauses the upstream until a slow client catches up.
    this.#isBlocked = true;
    this.watched.blocked();
    this.#flow.pause();
  }

  /** The client is gone; reads on without it. */
  unattended(): void {
    this.#sink = NOBODY;
    this.#held = [];
    this.#heldBytes = 0;
    this.#isBlocked = false;
    this.watched.onSilence = null;
    if (this.#isOver) this.#wake?.();
    else if (!this.#isAsking) this.#flow.resume();
  }

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
    this.#afterUnread(() => {
      const rest = this.meter.flush();
      if (rest) this.#hold(rest);
      this.#over();
    });
  }

  failed(error: unknown): void {
    const fail = () => {
      this.#error = error;
      this.#over();
    };
    // Nobody wants the rest any more.
    if (this.watched.isAborted && !this.#isOver) fail();
    else this.#afterUnread(fail);
  }

  #afterUnread(end: () => void): void {
    if (this.#isOver) return;
    this.#end = end;
    this.#read();
  }

  #over(): void {
    this.#isOver = true;
    this.flush();
    // A slow client first gets the buffered bytes; one that is gone does not.
    if (!this.#isBlocked || this.watched.isAborted) this.#wake?.();
  }

  async run(sink: Sink): Promise<Ending> {
    const { meter, watched } = this;
    watched.onSilence = () => {
      if (!meter.atBoundary) return;
      if (sink.keepAlive) sink.keepAlive();
      else sink.write(KEEP_ALIVE);
    };
    // Stop waiting: for a client that has not read the end, or for an upstream that is paused.
    watched.onAborted = () => {
      if (this.#isOver) this.#wake?.();
      else this.failed(watched.reason);
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
    // The response is over; write nothing more to it.
    this.#sink = null;
    this.#held = [];
    return this.#ending();
  }

  #ending(): Ending {
    const { meter, watched } = this;
    const error = watched.isAborted ? watched.reason : this.#error;
    if (isAboutClient(error)) return { kind: "left" };
    if (this.#isStopped) return { kind: "stopped" };
    if (error instanceof BackendError) return { kind: "cut", error };
    if (error) return { kind: "cut", error: new BackendError("transport", String(error)) };
    if (meter.failure !== null) return { kind: "cut", error: failureOf(meter) };
    if (meter.complete) return { kind: "complete" };
    return { kind: "cut", error: endedEarly() };
  }
}

const failureOf = ({ failure, failedUsage }: StreamReader): BackendError =>
  new BackendError("upstream", failure!, 500).having(failedUsage);

const endedEarly = (): BackendError =>
  new BackendError("transport", "the upstream ended the stream before the answer was complete");

/** The hold grows once this share of it has been delivered. */
const ASK_AT_SHARE = 3 / 4;
const STEP_TOKENS_MIN = 64;
const STEP_TOKENS_USUAL = 1_024;
/** Our count may be a third too high, so an upstream that was sent a limit is stopped only beyond that. */
const COUNT_ERROR = 4 / 3;

/** The hold of a stream; it grows as the stream is delivered. */
export class StreamHold {
  /** Tokens that may be delivered before `delivered` must be called. */
  askAt: number;
  #held: number;

  constructor(
    readonly admission: Pick<Admission, "grow" | "outputTokensHeld">,
    readonly outgoing: { bound: { promptTokens: number }; isLimitSent: boolean },
  ) {
    this.#held = admission.outputTokensHeld;
    this.askAt = Math.ceil(this.#held * ASK_AT_SHARE);
  }

  /** Whether the stream may continue after this many tokens. Tries to grow the hold, with smaller and smaller steps. */
  async delivered(tokens: number): Promise<boolean> {
    const { admission, outgoing } = this;
    const step = Math.max(STEP_TOKENS_USUAL, this.#held / 2);
    for (let more = step; more >= STEP_TOKENS_MIN; more /= 2) {
      const total = Math.ceil(Math.max(this.#held, tokens) + more);
      if (!(await admission.grow({ promptTokens: outgoing.bound.promptTokens, completionTokens: total })))
        continue;
      this.#held = total;
      this.askAt = Math.ceil(total * ASK_AT_SHARE);
      return true;
    }
    // Nothing more can be held: the stream may use up the current hold, to which a limit that was sent corresponds.
    this.askAt = Math.ceil(this.#held * (outgoing.isLimitSent ? COUNT_ERROR : 1)) + 1;
    return tokens < this.askAt;
  }
}

const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;

export function replayAsStream(body: Buffer): Answer {
  const { choices, usage, ...rest } = JSON.parse(body.toString()) as Record<string, unknown>;
  const head = { ...rest, object: "chat.completion.chunk" };
  let text = "";
  for (const choice of objectsIn(choices)) {
    if (choice.text !== undefined && choice.message === undefined) {
      text += event({ ...rest, choices: [choice] });
      continue;
    }
    const { message, finish_reason, index = 0 } = choice;
    const delta: Record<string, unknown> = isObject(message) ? { ...message } : {};
    if (Array.isArray(delta.tool_calls)) {
      delta.tool_calls = delta.tool_calls.map((call, position) => ({ index: position, ...(call as object) }));
    }
    text += event({ ...head, choices: [{ index, delta, finish_reason: null }] });
    text += event({ ...head, choices: [{ index, delta: {}, finish_reason: finish_reason ?? "stop" }] });
  }
  if (usage) text += event({ ...head, choices: [], usage });
  const bytes = Buffer.from(`${text}data: [DONE]\n\n`);
  return {
    contentType: "text/event-stream",
    bytes: () => bytes,
    pipe: (reader) => ({
      pause() {},
      resume() {
        reader.piece(bytes);
        reader.flush();
        reader.end();
      },
      leave() {},
      cancel() {},
    }),
  };
}
