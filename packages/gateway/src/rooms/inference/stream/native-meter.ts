import type { NativeReader } from "../../../backends/contract.ts";
import type { ServiceError } from "../../../kernel/errors.ts";
import { objectIn } from "../../../kernel/json.ts";
import { TokenCounter } from "../../metering/index.ts";
import { type ReportedUsage, readUsage, type UsageReport } from "../call/usage-tail.ts";
import { countTexts } from "./chat-meter.ts";
import { textOfBytes } from "./event-lines.ts";

/** In some dialects the last event repeats the whole answer. */
const EVENT_BYTES_MAX = 64 * 1024 * 1024;
const EVENT_END = /\r?\n\r?\n/g;
const EVENT_END_BYTES_MAX = 4;

/** Meters a stream in a vendor's own dialect. Whole events pass unchanged. */
export class NativeMeter {
  textBytes = 0;
  failure: string | null = null;
  readonly #counter = new TokenCounter();
  #textEvents = 0;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  /** The last pending characters, which may be the start of an event's end. */
  #pendingEnd = "";
  #failureEvent: Uint8Array | null = null;

  constructor(
    readonly reader: NativeReader,
    readonly onEvent?: (event: Record<string, unknown>) => void,
  ) {}

  get tokens(): number {
    return Math.max(this.#counter.tokens, this.#textEvents);
  }
  get reported(): UsageReport {
    return readUsage(this.reader.usage);
  }
  get isUsageFinal(): boolean {
    return this.reader.isCounted;
  }
  get failedUsage(): unknown {
    return this.isUsageFinal ? this.reader.usage : undefined;
  }
  get complete(): boolean {
    return this.reader.isComplete;
  }
  get done(): boolean {
    return this.reader.isOver;
  }
  /** Only whole events are passed on. */
  readonly atBoundary = true;

  feed(piece: Uint8Array): Uint8Array | null {
    this.#pending.push(piece);
    this.#pendingBytes += piece.length;
    // Search only the new piece: an event may arrive in thousands of pieces.
    const text = this.#pendingEnd + textOfBytes(piece, "latin1");
    this.#pendingEnd = text.slice(1 - EVENT_END_BYTES_MAX);
    const isAll = this.#pending.length === 1;
    if (!isAll && text.search(EVENT_END) === -1 && this.#pendingBytes <= EVENT_BYTES_MAX) return null;
    const bytes = isAll ? piece : Buffer.concat(this.#pending);
    const passed = this.#events(bytes);
    if (passed < bytes.length && this.#pendingBytes > EVENT_BYTES_MAX)
      this.failure = "the upstream sent an event that is too long";
    const rest = bytes.subarray(passed);
    this.#pending = rest.length > 0 ? [rest] : [];
    this.#pendingBytes = rest.length;
    return passed > 0 ? bytes.subarray(0, passed) : null;
  }

  /** Reads the complete events, up to a failure; returns where they end. */
  #events(bytes: Uint8Array): number {
    const text = textOfBytes(bytes, "latin1");
    let start = 0;
    EVENT_END.lastIndex = 0;
    for (let end = EVENT_END.exec(text); end && !this.done; end = EVENT_END.exec(text)) {
      const next = end.index + end[0].length;
      const event = text.slice(start, end.index);
      // Others are comments that keep the connection open.
      if (event.includes(DATA)) this.#event(dataIn(event, bytes, start));
      if (this.reader.failure !== null) {
        this.failure = this.reader.failure;
        this.#failureEvent = bytes.subarray(start, next);
        return start;
      }
      start = next;
    }
    return start;
  }

  #event(data: string): void {
    const event = objectIn(data);
    if (!event) return;
    const counted = countTexts(this.reader.read(event), this.#counter);
    this.textBytes += counted;
    if (counted > 0) this.#textEvents++;
    this.onEvent?.(event);
  }

  /** Reads a last event that the upstream did not close with a blank line. */
  flush(): Uint8Array | null {
    if (this.#pendingBytes === 0) return null;
    return this.feed(Buffer.from("\n\n"));
  }

  /** The dialect's own ending, for a stream that the gateway stopped. */
  closing(settled: ReportedUsage | null, { isStopped = false } = {}): Uint8Array {
    return Buffer.from(isStopped ? this.reader.limited(settled) : "");
  }

  /** The end of a failed stream: the upstream's own error event, if it sent one. */
  failing({ message }: ServiceError): Uint8Array {
    return this.#failureEvent ?? Buffer.from(this.reader.failed(message));
  }
}

const DATA = "data:";

/** `event` is the Latin-1 text of `bytes` from `start` on. */
function dataIn(event: string, bytes: Uint8Array, start: number): string {
  const end = start + event.length;
  const at = event.startsWith(DATA) ? 0 : event.indexOf(`\n${DATA}`) + 1 || -1;
  // Usually the data line is the last one.
  if (at !== -1 && !event.includes("\n", at))
    return textOfBytes(bytes, "utf8", start + at + DATA.length, end);
  const lines = textOfBytes(bytes, "utf8", start, end).split(/\r?\n/);
  return lines.flatMap((line) => (line.startsWith(DATA) ? [line.slice(DATA.length)] : [])).join("\n");
}
