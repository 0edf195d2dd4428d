import type { ReplySource, ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError } from "../../../backends/contract.ts";
import { toServiceError } from "../../../kernel/errors.ts";
import { isObject, jsonIn } from "../../../kernel/json.ts";
import { hideSecrets, hideSecretsIn } from "../../../kernel/secrets.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import type { CallEnd } from "../call/owed.ts";
import type { UpstreamCall } from "../call/upstream-call.ts";
import { joinedUsage, type UsageReport, usageOfEvents } from "../call/usage-tail.ts";
import { EventLines, type EventReader, textOfBytes, type Verdict } from "../stream/event-lines.ts";
import { Relay, type StreamReader } from "../stream/relay.ts";

/** Usage is at the end of an event, behind what may be a large image; the event's type is at the beginning. */
const TAIL_BYTES = 16 * 1024;
const HEAD_BYTES = 256;
const IS_COMPLETED = /^data:.*"type"\s*:\s*"[^"]*\.completed"/;
const LF = 10;

/** A longer line is an image or a sound, not an error. */
const ERROR_LINE_BYTES_MAX = 16 * 1024;
const NOTHING: Buffer = Buffer.alloc(0);

/** Relays an event stream, with the upstream's secrets removed from error messages. */
class WorkEvents implements EventReader {
  failure: string | null = null;
  hasContent = false;

  line(bytes: Uint8Array, _: string, from: number, end: number): Verdict {
    if (end - from <= ERROR_LINE_BYTES_MAX) return this.#redacted(textOfBytes(bytes, "utf8", from, end));
    this.hasContent = true;
    return "keep";
  }

  /** An error's message is a string inside JSON, where secrets are escaped once more. */
  #redacted(data: string): Verdict {
    const value = jsonIn(data);
    const failure = failureIn(value);
    const redacted = value === undefined ? hideSecrets(data) : JSON.stringify(hideSecretsIn(value));
    const isSame = redacted === data || (value !== undefined && redacted === JSON.stringify(value));
    this.failure ??= failure && hideSecrets(failure);
    this.hasContent ||= failure === null;
    return isSame ? "keep" : { replacement: `data: ${redacted}` };
  }

  /** Lines are read one by one. */
  event(): "drop" {
    return "drop";
  }
  unread(): void {
    this.hasContent = true;
  }
  broke(): void {}
}

function failureIn(event: unknown): string | null {
  if (!isObject(event)) return null;
  const { type, error, message } = event;
  if (type !== "error" && !isObject(error) && typeof error !== "string") return null;
  const words = isObject(error) ? error.message : (error ?? message);
  return typeof words === "string" ? words : "the upstream reported an error";
}

/** Relays sound or events and reads the usage near the end. */
class WorkPieces implements StreamReader {
  readonly done = false;
  readonly failure = null;
  readonly tokens = 0;
  readonly atBoundary = false;
  textBytes = 0;
  #head = "";
  #tail = NOTHING;
  #reported: UsageReport = null;
  /** Number of completed images; each reports its own usage. */
  #completed = 0;
  readonly #events: WorkEvents | null;
  readonly #lines: EventLines | null;

  constructor(
    isEvents: boolean,
    readonly begun: () => void,
  ) {
    this.#events = isEvents ? new WorkEvents() : null;
    this.#lines = this.#events && new EventLines(this.#events);
  }

  feed(bytes: Uint8Array): Uint8Array | null {
    if (this.textBytes === 0) this.begun();
    this.textBytes += bytes.length;
    if (!this.#lines) return bytes;
    let from = 0;
    for (let end = bytes.indexOf(LF); end !== -1; end = bytes.indexOf(LF, from)) {
      this.#keep(bytes.subarray(from, end));
      this.#ended();
      from = end + 1;
    }
    this.#keep(bytes.subarray(from));
    return this.#lines.feed(bytes);
  }

  #keep(part: Uint8Array): void {
    this.#head += textOfBytes(part, "latin1", 0, HEAD_BYTES - this.#head.length);
    this.#tail = Buffer.concat([this.#tail, part.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
  }

  /** Reads the line that just ended. */
  #ended(): void {
    const tail = this.#tail.toString("latin1");
    const usage = usageOfEvents(tail);
    const isAnother = IS_COMPLETED.test(this.#head + tail) && ++this.#completed > 1;
    if (usage !== null) this.#reported = joinedUsage(this.#reported, usage, isAnother);
    this.#head = "";
    this.#tail = NOTHING;
  }

  flush(): Uint8Array | null {
    return this.#lines?.flush() ?? null;
  }

  get complete(): boolean {
    return this.textBytes > 0;
  }

  /** The error that an event reported to the client; null if there was none. */
  get reportedError(): string | null {
    return this.#events?.failure ?? null;
  }

  end(isWhole: boolean): CallEnd {
    this.#ended();
    const hasContent = this.complete && (this.#events?.hasContent ?? true);
    const counts = { image: this.#completed, call: this.#completed };
    const made = this.#completed > 0 ? { counts } : undefined;
    return { isWhole, reported: this.#reported, delivered: hasContent ? 1 : 0, made };
  }
}

/** Sends a sound or an event stream to the client. Settled before its end is sent. */
export class WorkStream implements ReplySource {
  readonly #pieces: WorkPieces;
  readonly #relay: Relay;
  #isRunning = false;

  constructor(
    readonly call: UpstreamCall,
    answer: Answer,
    { isEvents }: { isEvents: boolean },
  ) {
    const { watched, observed, parts } = call;
    this.#pieces = new WorkPieces(isEvents, () => observed.firstChunk());
    this.#relay = new Relay(answer, this.#pieces, watched, parts.watch.options.clock);
  }

  begin(writer: ReplyWriter): void {
    this.#isRunning = true;
    void this.#run(writer);
  }

  async #run(writer: ReplyWriter): Promise<void> {
    const { call } = this;
    const ending = await this.#relay.run(writer);
    if (ending.kind !== "complete") {
      this.#broke(ending.kind === "cut" ? ending.error : call.watched.reason);
      writer.terminate();
      return;
    }
    const { reportedError } = this.#pieces;
    if (reportedError === null) call.route.succeeded();
    else call.failed(new BackendError("upstream", reportedError, 500));
    call.settle(this.#pieces.end(reportedError === null));
    writer.end();
  }

  #broke(error: unknown): void {
    const { call } = this;
    call.failed(error);
    call.settle(this.#pieces.end(false));
    // Settling has already ended the record if something was delivered or the client left.
    call.options.asker.record?.refused(toServiceError(call.toClientError(error)));
  }

  drained(): void {
    this.#relay.drained();
  }

  left(): void {
    this.call.watched.abort(CLIENT_LEFT);
    if (!this.#isRunning) this.#broke(CLIENT_LEFT);
  }
}
