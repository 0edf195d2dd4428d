import type { ReplySource, ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError } from "../../../backends/contract.ts";
import { toServiceError } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { hideSecrets, hideSecretsIn } from "../../../kernel/secrets.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import type { CallEnd } from "../call/owed.ts";
import type { UpstreamCall } from "../call/upstream-call.ts";
import { usageOfEvents } from "../call/usage-tail.ts";
import { Relay, type StreamReader } from "../stream/relay.ts";

/** The usage stands in the last event, after what may be a large image. */
const TAIL_BYTES = 16 * 1024;

/** A line of an event that is longer is an image or a sound, and not what went wrong. */
const ERROR_LINE_BYTES_MAX = 16 * 1024;
const LINE_END = 10;
const NOTHING: Buffer = Buffer.alloc(0);

const mentionsError = (bytes: Buffer): boolean =>
  bytes.includes("error") ||
  (bytes.includes("\\u") && withoutEscapedLetters(bytes.toString("latin1")).includes("error"));

/** Passes on the lines of an event stream, without the upstream's key where they tell of an error. */
class ErrorFilter {
  failure: string | null = null;
  hasContent = false;
  /** The beginning of a line, while it is not known to be too long to tell of an error. */
  #line = NOTHING;
  #isLong = false;
  #isError = false;

  pass(piece: Uint8Array): Buffer {
    const bytes = Buffer.concat([this.#line, piece]);
    const end = bytes.lastIndexOf(LINE_END) + 1;
    const rest = bytes.subarray(end);
    const passed = this.#lines(bytes.subarray(0, end));
    if (end > 0) this.#isLong = false;
    this.#isLong ||= rest.length > ERROR_LINE_BYTES_MAX;
    this.hasContent ||= this.#isLong;
    this.#line = this.#isLong ? NOTHING : Buffer.from(rest);
    return this.#isLong ? Buffer.concat([passed, rest]) : passed;
  }

  /** What is left when the stream ends in the middle of a line. */
  end(): Buffer {
    return this.#lines(this.#line);
  }

  #lines(bytes: Buffer): Buffer {
    if (!this.#isError && !mentionsError(bytes)) {
      this.hasContent ||= bytes.includes("data:");
      return bytes;
    }
    let start = 0;
    const passed: Buffer[] = [];
    while (start < bytes.length) {
      const end = bytes.indexOf(LINE_END, start) + 1 || bytes.length;
      passed.push(this.#whole(bytes.subarray(start, end)));
      start = end;
    }
    return Buffer.concat(passed);
  }

  #whole(line: Buffer): Buffer {
    if (line.length <= 2) this.#isError = false;
    if (line.length > ERROR_LINE_BYTES_MAX || this.#isLong) {
      this.#isLong = false;
      this.hasContent = true;
      return line;
    }
    this.#isError ||= mentionsError(line);
    return this.#isError ? Buffer.from(this.#withoutSecrets(line.toString())) : line;
  }

  /** The words of an error are texts of a JSON value, where they are escaped once more. */
  #withoutSecrets(line: string): string {
    const [, field = "", value = ""] = /^(data:\s*)?(.*?)\s*$/s.exec(line) ?? [];
    try {
      const told: unknown = hideSecretsIn(JSON.parse(value));
      const failure = failureIn(told);
      this.failure ??= failure;
      this.hasContent ||= failure === null;
      return `${field}${JSON.stringify(told)}\n`;
    } catch {
      return `${field}${hideSecrets(value)}\n`;
    }
  }
}

function failureIn(event: unknown): string | null {
  if (!isObject(event)) return null;
  const { type, error, message } = event;
  if (type !== "error" && !isObject(error) && typeof error !== "string") return null;
  const words = isObject(error) ? error.message : (error ?? message);
  return typeof words === "string" ? words : "the upstream reported an error";
}

/** What passes of a sound or of events, and the end of it, where the usage stands. */
class WorkPieces implements StreamReader {
  readonly done = false;
  readonly failure = null;
  readonly tokens = 0;
  readonly atBoundary = false;
  textBytes = 0;
  #tail = NOTHING;
  readonly #errors: ErrorFilter | null;

  constructor(
    isEvents: boolean,
    readonly begun: () => void,
  ) {
    this.#errors = isEvents ? new ErrorFilter() : null;
  }

  feed(bytes: Uint8Array): Uint8Array {
    if (this.textBytes === 0) this.begun();
    this.textBytes += bytes.length;
    if (!this.#errors) return bytes;
    this.#tail = Buffer.concat([this.#tail, bytes]).subarray(-TAIL_BYTES);
    return this.#errors.pass(bytes);
  }

  flush(): Uint8Array | null {
    return this.#errors?.end() ?? null;
  }

  get complete(): boolean {
    return this.textBytes > 0;
  }

  /** What an event said went wrong, which the client was told; null: nothing. */
  get told(): string | null {
    return this.#errors?.failure ?? null;
  }

  end(isWhole: boolean): CallEnd {
    const reported = this.#errors ? usageOfEvents(this.#tail.toString("latin1")) : null;
    const hasContent = this.complete && (this.#errors?.hasContent ?? true);
    return { isWhole, reported, delivered: hasContent ? 1 : 0 };
  }
}

/** A sound or a stream of events on its way to the client. Settled before its end is sent. */
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
    const { told } = this.#pieces;
    if (told === null) call.route.succeeded();
    else call.failed(new BackendError("upstream", told, 500));
    call.settle(this.#pieces.end(told === null));
    writer.end();
  }

  #broke(error: unknown): void {
    const { call } = this;
    call.failed(error);
    call.settle(this.#pieces.end(false));
    // Settling ends the record where something was delivered, or the client left.
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
