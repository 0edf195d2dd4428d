import { BackendError } from "../../backends/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isAboutClient, type WatchedCall } from "./deadlines.ts";
import type { StreamMeter } from "./stream-meter.ts";

/** How long the status waits for the first event, in case that is an error which deserves a status of its own. */
const PEEK_MS = 2_000;
/** After the end an upstream has this long to close its side, so that the connection can be used again. */
const DRAIN_MS = 1_000;
const KEEP_ALIVE = Buffer.from(": keep-alive\n\n");

/** Where the client's bytes go: the runtime's direct stream controller, or nowhere. */
export interface Sink {
  /** A promise while the client does not keep up. */
  write(bytes: Uint8Array): unknown;
  flush(): unknown;
}

export type Ending =
  | { kind: "complete" }
  /** The upstream failed on the way. */
  | { kind: "cut"; error: BackendError }
  /** The client is gone. */
  | { kind: "left" };

type Reader = ReadableStreamDefaultReader<Uint8Array>;
type Piece = Awaited<ReturnType<Reader["read"]>>;

/** Moves one event stream from the upstream to the client at the client's pace. */
export class Relay {
  readonly #reader: Reader;
  /** A read that was begun while peeking. */
  #begun: Promise<Piece> | null = null;
  #first: Uint8Array | null = null;

  constructor(
    body: ReadableStream<Uint8Array>,
    readonly meter: StreamMeter,
    readonly watched: WatchedCall,
    readonly clock: Clock,
  ) {
    this.#reader = body.getReader();
  }

  /** Waits for the first piece, or a moment; throws when it is a failure, which then can still be a status. */
  async peek(): Promise<void> {
    this.#begun = this.#reader.read();
    let cancel = () => {};
    const moment = new Promise<null>((resolve) => {
      cancel = this.clock.after(PEEK_MS, () => resolve(null));
    });
    try {
      const piece = await Promise.race([this.#begun, moment]);
      if (piece === null) {
        // It is awaited again later; until then a failure must not count as unhandled.
        this.#begun.catch(() => {});
        return;
      }
      this.#begun = null;
      this.#take(piece);
    } catch (error) {
      throw this.#reason(error);
    } finally {
      cancel();
    }
    // Text that came in one piece with the failure is the client's; then it is told inside the stream.
    if (this.meter.failure !== null && this.meter.textBytes === 0) {
      void this.#reader.cancel().catch(() => {});
      throw new BackendError("upstream", this.meter.failure, 500);
    }
  }

  #take({ done, value }: Piece): void {
    if (done) {
      this.#begun = Promise.resolve({ done: true, value: undefined } as Piece);
      return;
    }
    this.watched.touch();
    this.#first = this.meter.feed(value);
  }

  #reason(error: unknown): unknown {
    const { signal } = this.watched;
    if (signal.aborted) return signal.reason;
    if (error instanceof BackendError) return error;
    return new BackendError("transport", `the upstream broke off: ${(error as Error).message}`);
  }

  async run(sink: Sink): Promise<Ending> {
    const { meter, watched } = this;
    watched.onSilence = () => {
      if (!meter.atBoundary) return;
      sink.write(KEEP_ALIVE);
      sink.flush();
    };
    try {
      if (this.#first) await this.#write(sink, this.#first);
      while (!meter.done && meter.failure === null) {
        const { done, value } = await (this.#begun ?? this.#reader.read());
        this.#begun = null;
        if (done) break;
        watched.touch();
        const bytes = meter.feed(value);
        if (bytes === null) continue;
        const written = sink.write(bytes);
        sink.flush();
        if (written instanceof Promise) await this.#blocked(written);
      }
      if (!meter.done && meter.failure === null) {
        const rest = meter.flush();
        if (rest) await this.#write(sink, rest);
      }
    } catch (error) {
      const reason = this.#reason(error);
      if (isAboutClient(reason)) return { kind: "left" };
      const cut = reason instanceof BackendError ? reason : new BackendError("transport", String(reason));
      return { kind: "cut", error: cut };
    } finally {
      watched.onSilence = null;
    }
    if (watched.signal.aborted && isAboutClient(watched.signal.reason)) return { kind: "left" };
    return this.#ending();
  }

  #ending(): Ending {
    const { meter } = this;
    if (meter.failure !== null) {
      void this.#reader.cancel().catch(() => {});
      return { kind: "cut", error: new BackendError("upstream", meter.failure, 500) };
    }
    if (!meter.complete) {
      const detail = "the upstream ended the stream before the answer was complete";
      return { kind: "cut", error: new BackendError("transport", detail) };
    }
    void this.#drain();
    return { kind: "complete" };
  }

  async #write(sink: Sink, bytes: Uint8Array): Promise<void> {
    const written = sink.write(bytes);
    sink.flush();
    if (written instanceof Promise) await this.#blocked(written);
  }

  async #blocked(written: Promise<unknown>): Promise<void> {
    this.watched.blocked();
    await written;
    this.watched.touch();
  }

  async #drain(): Promise<void> {
    const cancel = this.clock.after(DRAIN_MS, () => void this.#reader.cancel().catch(() => {}));
    try {
      while (!(await this.#reader.read()).done);
    } catch {
      // It closed in its own way; the answer is complete.
    } finally {
      cancel();
    }
  }
}
