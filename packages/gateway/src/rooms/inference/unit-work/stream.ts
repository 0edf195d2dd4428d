import type { ReplySource, ReplyWriter } from "@model-gateway/wire/http";
import { type Answer, BackendError, type Flow, type PieceReader } from "../../../backends/contract.ts";
import { toServiceError } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { hideSecrets, hideSecretsIn } from "../../../kernel/secrets.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import type { UpstreamCall } from "../call/upstream-call.ts";
import { usageOfEvents } from "../call/usage-tail.ts";

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
  /** What the stream said went wrong; null: nothing. */
  failure: string | null = null;
  /** There was more than an error. */
  hasContent = false;
  /** The beginning of a line, while it is not known to be too long to tell of an error. */
  #line = NOTHING;
  #isLong = false;
  #isError = false;

  /** What can be passed on. */
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

/** The words of an event that reports an error; null for any other. */
function failureIn(event: unknown): string | null {
  if (!isObject(event)) return null;
  const { type, error, message } = event;
  if (type !== "error" && !isObject(error) && typeof error !== "string") return null;
  const words = isObject(error) ? error.message : (error ?? message);
  return typeof words === "string" ? words : "the upstream reported an error";
}

/** A sound or a stream of events on its way to the client, at the client's pace. Settled before its end is sent. */
export class WorkStream implements ReplySource, PieceReader {
  readonly #flow: Flow;
  #writer: ReplyWriter | null = null;
  #tail = NOTHING;
  readonly #errors: ErrorFilter | null;
  #hasDelivered = false;
  #isBlocked = false;
  #isOver = false;

  constructor(
    readonly call: UpstreamCall,
    answer: Answer,
    readonly options: { isEvents: boolean },
  ) {
    this.#errors = options.isEvents ? new ErrorFilter() : null;
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
    const passed = this.#errors?.pass(bytes) ?? bytes;
    if (passed.length === 0 || this.#writer!.write(passed) || this.#isBlocked) return;
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
    const rest = this.#errors?.end() ?? NOTHING;
    const failure = this.#errors?.failure ?? null;
    if (failure === null) this.call.route.succeeded();
    else this.call.failed(new BackendError("upstream", failure, 500));
    this.#settle(failure === null);
    if (rest.length > 0) this.#writer?.write(rest);
    this.#writer?.end();
  }

  failed(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { call } = this;
    call.failed(error);
    this.#settle(false);
    // Settling ends the record where something was delivered, or the client left.
    call.options.asker.record?.refused(toServiceError(call.told(error)));
    this.#flow.cancel();
    this.#writer?.terminate();
  }

  left(): void {
    this.call.watched.abort(CLIENT_LEFT);
    this.failed(CLIENT_LEFT);
  }

  #settle(isWhole: boolean): void {
    const reported = this.options.isEvents ? usageOfEvents(this.#tail.toString("latin1")) : null;
    const hasContent = this.#hasDelivered && (this.#errors?.hasContent ?? true);
    this.call.settle({ isWhole, reported, delivered: hasContent ? 1 : 0 });
  }
}
