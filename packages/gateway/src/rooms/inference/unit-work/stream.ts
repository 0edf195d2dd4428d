import type { ReplySource, ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError, type Flow, type PieceReader } from "../../../backends/contract.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import type { UpstreamCall } from "../call/upstream-call.ts";
import { usageOfEvents } from "../call/usage-tail.ts";

/** The usage stands in the last event, after what may be a large image. */
const TAIL_BYTES = 16 * 1024;

/** A sound or a stream of events on its way to the client, at the client's pace. Settled before its end is sent. */
export class WorkStream implements ReplySource, PieceReader {
  readonly #flow: Flow;
  #writer: ReplyWriter | null = null;
  #tail: Buffer = Buffer.alloc(0);
  #hasDelivered = false;
  #isBlocked = false;
  #isOver = false;

  constructor(
    readonly call: UpstreamCall,
    answer: Answer,
    readonly options: { isEvents: boolean },
  ) {
    this.#flow = answer.pipe(this);
  }

  begin(writer: ReplyWriter): void {
    this.#writer = writer;
    const { watched } = this.call;
    watched.onAborted = () => this.failed(watched.reason);
    if (watched.isAborted) this.failed(watched.reason);
    else this.#flow.resume();
  }

  piece(bytes: Uint8Array): void {
    if (this.#isOver || bytes.length === 0) return;
    const { watched, observed } = this.call;
    if (!this.#isBlocked) watched.touch();
    if (!this.#hasDelivered) observed.firstChunk();
    this.#hasDelivered = true;
    if (this.options.isEvents) this.#tail = Buffer.concat([this.#tail, bytes]).subarray(-TAIL_BYTES);
    if (this.#writer!.write(bytes) || this.#isBlocked) return;
    this.#isBlocked = true;
    watched.blocked();
    this.#flow.pause();
  }

  flush(): void {}

  drained(): void {
    if (!this.#isBlocked || this.#isOver) return;
    this.#isBlocked = false;
    this.call.watched.touch();
    this.#flow.resume();
  }

  end(): void {
    if (this.#isOver) return;
    if (!this.#hasDelivered) {
      this.failed(new BackendError("transport", "the upstream ended its answer before it began"));
      return;
    }
    this.#isOver = true;
    this.call.route.succeeded();
    this.#settle(true);
    this.#writer?.end();
  }

  failed(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.call.failed(error);
    this.#settle(false);
    this.#flow.cancel();
    this.#writer?.terminate();
  }

  left(): void {
    this.call.watched.abort(CLIENT_LEFT);
    this.failed(CLIENT_LEFT);
  }

  #settle(isWhole: boolean): void {
    const reported = this.options.isEvents ? usageOfEvents(this.#tail.toString("latin1")) : null;
    this.call.settle({ isWhole, reported, delivered: this.#hasDelivered ? 1 : 0 });
  }
}
