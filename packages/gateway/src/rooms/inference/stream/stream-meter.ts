import { type ServiceError, toRestBody } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { mediaTokens, TokenCounter } from "../../metering/index.ts";
import { type AnswerForm, CHAT_FORM } from "../call/answer-form.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import { ABSURD, type ReportedUsage, readUsage, type UsageReport, usageFields } from "../call/usage-tail.ts";
import { type ChatChunk, type Choice, ChunkNormaliser } from "./chunk-normaliser.ts";
import { LineEnds } from "./line-ends.ts";
import { countTexts } from "./text-size.ts";

/** An event that is still incomplete after this much is relayed as it comes, unread. */
const PENDING_BYTES_MAX = 1024 * 1024;
/** Decodes views directly: making a Buffer first costs more than the rest of a typical event. */
const textOfBytes = (bytes: Uint8Array, encoding: "latin1" | "utf8", start = 0, end = bytes.length): string =>
  Buffer.prototype.toString.call(bytes, encoding, start, end);

/** Events that are parsed before another frame is tried, at most. */
const LEARN_GAP_MAX = 64;

const NEWLINE = 10;
const DONE = "[DONE]";
const EVENT_END = Buffer.from("\n\n");
const DONE_EVENT = Buffer.from("data: [DONE]\n\n");

export interface StreamMeterOptions {
  /** The client asked for the usage chunk; otherwise it is held back. */
  keepUsage: boolean;
  /** Sees every chunk after its choices were normalised. */
  onChunk?: (chunk: ChatChunk, choices: readonly Choice[]) => void;
  /** Fields to add to each chunk where the upstream leaves them out. */
  head?: AnswerHead;
  /** Absent: a chat. */
  form?: AnswerForm;
}

/** The frame around the text of a plain delta, the same for most events of a stream. */
interface Template {
  before: string;
  after: string;
  /** The chunk that it was taken from, and the place of its choice. */
  chunk: ChatChunk;
  index: number;
  /** An event has matched it. */
  isUsed: boolean;
}

type Verdict = "keep" | "drop" | "end" | { replacement: string };

/**
 * Reads an upstream's event stream as far as metering needs and passes the bytes on. An event that differs
 * from an earlier, fully parsed one only in its text is recognised by its frame and not parsed.
 *
 * The result does not depend on how the bytes are cut into pieces.
 */
export class StreamMeter {
  /** The latest plausible usage; null when there is none. */
  usage: ReportedUsage | null = null;
  /** Impossible usage was reported. */
  isAbsurd = false;
  /** UTF-8 bytes of text that were passed on. */
  textBytes = 0;
  readonly #counter = new TokenCounter();
  /** Events with text: each has one token or more. */
  #textEvents = 0;
  /** How much text there was when usage was last reported. */
  #usageAtBytes = 0;
  /** The upstream said `[DONE]`. */
  done = false;
  /** A choice has finished. */
  finished = false;
  /** The upstream's error that ends the stream as a failure. */
  failure: string | null = null;

  readonly #form: AnswerForm;
  readonly #normaliser: ChunkNormaliser;
  readonly #lineEnds = new LineEnds();
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  /** Inside an event too large to be looked at. */
  #passing = false;
  #dropBlank = false;
  /** The last line that was passed on was blank, so that what follows is an event of its own. */
  #atBoundary = true;
  /** Data of an event so far, where it takes several lines. */
  #partial: string | null = null;
  #template: Template | null = null;
  /** Where each event has another frame, because of its time for example, trying one costs as much as parsing. */
  #learnGap = 0;
  #learnIn = 0;
  #last: ChatChunk | null = null;
  /** Choices that have begun, each with whether it has finished. */
  readonly #ends = new Map<number, boolean>();
  #sawTools = false;
  /** The newest event with nothing but usage, for a client that wants it: written once, at the end. */
  #usageEvent: Uint8Array | null = null;

  constructor(readonly options: StreamMeterOptions) {
    this.#form = options.form ?? CHAT_FORM;
    this.#normaliser = new ChunkNormaliser(options.head, this.#form);
  }

  /** Tokens of the text that was passed on, counted here; an event has at least one. */
  get tokens(): number {
    return Math.max(this.#counter.tokens, this.#textEvents);
  }

  /** Whether usage was reported after the last text; usage before it may be a running total. */
  get isUsageFinal(): boolean {
    return this.usage !== null && this.#usageAtBytes === this.textBytes;
  }

  /** Whether the answer is complete, even without `[DONE]`. */
  get complete(): boolean {
    if (this.done || !this.finished) return this.done;
    for (const hasEnded of this.#ends.values()) if (!hasEnded) return false;
    return true;
  }

  /** Takes bytes of the upstream and returns those for the client; null when there are none yet. */
  feed(piece: Uint8Array): Uint8Array | null {
    const bytes = this.#lineEnds.feed(piece);
    return bytes.length === 0 ? null : this.#feed(bytes);
  }

  #feed(bytes: Uint8Array): Uint8Array | null {
    if (!this.#passing && this.#pendingBytes === 0) return this.#lines(bytes);
    const newline = bytes.indexOf(NEWLINE);
    if (newline === -1) return this.#continueLine(bytes);
    if (this.#passing) {
      this.#passing = false;
      this.#unread(newline);
      const rest = this.#lines(bytes.subarray(newline + 1));
      return rest ? Buffer.concat([bytes.subarray(0, newline + 1), rest]) : bytes.subarray(0, newline + 1);
    }
    return this.#lines(Buffer.concat([...this.#takePending(), bytes]));
  }

  #takePending(): Uint8Array[] {
    const pending = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    return pending;
  }

  /** More of a line whose end is not here yet: kept until it is, or passed on once it is too long to keep. */
  #continueLine(bytes: Uint8Array): Uint8Array | null {
    if (!this.#passing) {
      this.#pending.push(bytes);
      this.#pendingBytes += bytes.length;
      if (this.#pendingBytes <= PENDING_BYTES_MAX) return null;
      this.#passing = true;
      this.#atBoundary = false;
      this.#unread(this.#pendingBytes);
      return Buffer.concat(this.#takePending());
    }
    this.#unread(bytes.length);
    return bytes;
  }

  /** No text is that large: it is an image or audio. */
  #unread(bytes: number): void {
    this.textBytes += bytes;
    this.#counter.addTokens(mediaTokens(bytes));
  }

  #lines(bytes: Uint8Array): Uint8Array | null {
    // One byte, one character: offsets in the text are offsets in the bytes, and nothing can be cut in two.
    const text = textOfBytes(bytes, "latin1");
    const parts: Uint8Array[] = [];
    let keptFrom = 0;
    let at = 0;
    for (let newline = text.indexOf("\n"); newline !== -1; newline = text.indexOf("\n", at)) {
      const end = newline > at && text.charCodeAt(newline - 1) === 13 ? newline - 1 : newline;
      const verdict = this.#line(bytes, text, at, end);
      const next = newline + 1;
      if (verdict !== "keep") {
        if (at > keptFrom) parts.push(bytes.subarray(keptFrom, at));
        keptFrom = next;
        if (verdict === "end") return join(parts);
        if (verdict !== "drop") {
          parts.push(Buffer.from(verdict.replacement));
          keptFrom = end;
        }
      }
      at = next;
    }
    if (at > keptFrom) {
      if (parts.length === 0 && keptFrom === 0 && at === bytes.length) return bytes;
      parts.push(bytes.subarray(keptFrom, at));
    }
    if (at < bytes.length) {
      const started = this.#continueLine(bytes.subarray(at));
      if (started) parts.push(started);
    }
    return join(parts);
  }

  #line(bytes: Uint8Array, text: string, start: number, end: number): Verdict {
    if (start === end) {
      if (this.#partial !== null) return this.#wholeEvent();
      const drop = this.#dropBlank;
      this.#dropBlank = false;
      if (!drop) this.#atBoundary = true;
      return drop ? "drop" : "keep";
    }
    const wasAtBoundary = this.#atBoundary;
    this.#atBoundary = false;
    const isBare = end - start === 4 && text.startsWith("data", start);
    if (!isBare && !text.startsWith("data:", start)) return "keep";
    const from = isBare ? end : text.charCodeAt(start + 5) === 32 ? start + 6 : start + 5;
    if (this.#partial !== null) return this.#addLine(textOfBytes(bytes, "utf8", from, end));
    if (this.#isPlainDelta(bytes, text, from, end)) return "keep";
    const data = text.slice(from, end);
    if (data.trim() === DONE) {
      this.done = true;
      this.#atBoundary = wasAtBoundary;
      return "end";
    }
    // Several servers send events without data as heartbeats, which client libraries cannot read.
    if (data.trim() === "") return this.#drop(wasAtBoundary);
    const chunk = parseChunk(textOfBytes(bytes, "utf8", from, end));
    if (chunk === undefined) return this.#addLine(textOfBytes(bytes, "utf8", from, end));
    const verdict = this.#chunk(chunk);
    if (verdict === "hold") {
      this.#usageEvent = Buffer.concat([bytes.subarray(start, end), EVENT_END]);
      return this.#drop(wasAtBoundary);
    }
    if (verdict === "keep") this.#learn(data, chunk);
    return verdict === "drop" ? this.#drop(wasAtBoundary) : verdict;
  }

  /** Leaves a line out, and the blank one behind it, unless other lines of the event have been passed on. */
  #drop(wasAtBoundary: boolean): Verdict {
    this.#dropBlank = wasAtBoundary;
    this.#atBoundary = wasAtBoundary;
    return "drop";
  }

  /** One of several lines of data; they are read together when the event is over. */
  #addLine(data: string): Verdict {
    this.#partial = this.#partial === null ? data : `${this.#partial}\n${data}`;
    if (this.#partial.length <= PENDING_BYTES_MAX) return "drop";
    this.failure = "the upstream sent an event that is too long";
    return "end";
  }

  /** The blank line behind an event of several lines: clients get it in one. */
  #wholeEvent(): Verdict {
    const chunk = parseChunk(this.#partial!);
    this.#partial = null;
    this.#atBoundary = true;
    if (chunk === undefined) {
      this.failure = "the upstream sent an event that is not JSON";
      return "end";
    }
    const verdict = this.#chunk(chunk);
    if (verdict === "hold") {
      this.#usageEvent = Buffer.from(`${dataLine(chunk)}\n\n`);
      return "drop";
    }
    return verdict === "keep" ? { replacement: `${dataLine(chunk)}\n` } : withNewline(verdict);
  }

  /** Whether the event between `from` and `end` differs from the template only in its text. */
  #isPlainDelta(bytes: Uint8Array, text: string, from: number, end: number): boolean {
    const template = this.#template;
    if (!template || !text.startsWith(template.before, from)) return false;
    const textStart = from + template.before.length;
    const textEnd = end - template.after.length;
    // The first quote after the frame's beginning is the one that its end starts with, so the text has none.
    if (text.indexOf('"', textStart) !== textEnd || text.charCodeAt(textEnd - 1) === 92) return false;
    if (!text.startsWith(template.after, textEnd)) return false;
    const { onChunk } = this.options;
    if (onChunk) {
      const content = contentAt(bytes, text, textStart, textEnd);
      if (content === null) return false;
      onChunk(template.chunk, [{ index: template.index, delta: { content }, finish_reason: null }]);
    }
    template.isUsed = true;
    this.textBytes += textEnd - textStart;
    this.#counter.addJson(bytes, textStart, textEnd);
    if (textEnd > textStart) this.#textEvents++;
    return true;
  }

  /** Keeps the frame of an event that consists of nothing but one text. */
  #learn(data: string, chunk: ChatChunk): void {
    if (this.#form.isText || this.#learnIn-- > 0) return;
    const [choice] = chunk.choices as Choice[];
    const isPlain =
      choice && (chunk.choices as unknown[]).length === 1 && !choice.finish_reason && !isObject(chunk.usage);
    if (!isPlain || typeof choice.delta.content !== "string" || Object.keys(choice.delta).length !== 1)
      return;
    // Beside its delta the choice may carry text of another kind, which must be counted in every event.
    if (typeof choice.text === "string" || choice.message !== undefined) return;
    const opening = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/.exec(data);
    if (!opening) return;
    const textStart = opening.index + opening[0].length;
    const textEnd = data.indexOf('"', textStart);
    if (data.slice(textStart, textEnd).includes("\\")) return;
    const { index } = choice;
    const before = data.slice(0, textStart);
    const after = data.slice(textEnd);
    const probe = "text of the gateway";
    const check = parseChunk(`${before}${probe}${after}`);
    if ((check?.choices as Choice[] | undefined)?.[0]?.delta.content !== probe) return;
    const wasUseless = this.#template?.isUsed === false;
    this.#learnGap = wasUseless ? Math.min(LEARN_GAP_MAX, this.#learnGap * 2 + 1) : 0;
    this.#learnIn = this.#learnGap;
    this.#template = { before, after, chunk, index, isUsed: false };
  }

  #chunk(chunk: ChatChunk): Verdict | "hold" {
    const failure = errorOf(chunk);
    if (failure !== null) {
      this.failure = failure;
      return "end";
    }
    const usage = readUsage(chunk.usage);
    const isUsageCompleted = completeUsage(chunk, usage);
    const { choices, changed } = this.#normaliser.apply(chunk);
    const bytesBefore = this.textBytes;
    for (const choice of choices) this.#choice(choice);
    this.options.onChunk?.(chunk, choices);
    if (this.textBytes > bytesBefore) this.#textEvents++;
    if (usage !== null) this.#reported(usage);
    const isChanged = changed || isUsageCompleted;
    if (choices.length === 0 && isObject(chunk.usage)) {
      if (this.options.keepUsage) {
        if (!isChanged) return "hold";
        this.#usageEvent = Buffer.from(`${dataLine(chunk)}\n\n`);
        return "drop";
      }
      if (!isObject(chunk.timings)) return "drop";
      // llama.cpp moves its timings here when usage is asked for, which the client did not do.
      const { usage: _, ...rest } = chunk;
      const nothing = this.#form.isText ? { text: "" } : { delta: {} };
      const event = { ...rest, choices: [{ index: 0, ...nothing, finish_reason: null }] };
      return { replacement: dataLine(event) };
    }
    if (choices.length > 0) this.#last = chunk;
    return isChanged ? { replacement: dataLine(chunk) } : "keep";
  }

  #reported(usage: Exclude<UsageReport, null>): void {
    this.usage = usage === ABSURD ? null : usage;
    if (usage === ABSURD) this.isAbsurd = true;
    this.#usageAtBytes = this.textBytes;
  }

  #choice(choice: Choice): void {
    const { index, delta, finish_reason } = choice;
    if (typeof finish_reason === "string") this.finished = true;
    this.#ends.set(index, this.#ends.get(index) || typeof finish_reason === "string");
    this.textBytes += countTexts(delta, this.#counter);
    if (choice.text !== undefined || choice.message !== undefined)
      this.textBytes += countTexts([choice.text, choice.message], this.#counter);
    if (Array.isArray(delta.tool_calls)) this.#sawTools = true;
  }

  /** True between two upstream events, where the gateway may write one of its own. */
  get atBoundary(): boolean {
    return this.#atBoundary && !this.#passing;
  }

  /** The upstream has ended: the rest of a last line that no newline closed. */
  flush(): Uint8Array | null {
    const rest = this.#lineEnds.end();
    if (this.#pendingBytes + rest.length === 0 && this.#partial === null) return null;
    return this.#lines(Buffer.concat([...this.#takePending(), rest, Buffer.from("\n\n")]));
  }

  /**
   * What closes a whole answer: the finish and the usage that some upstreams forget, then `[DONE]`. One that the
   * gateway stopped because the payer cannot cover more ends like one that reached its limit.
   */
  closing(settled: ReportedUsage | null, { isStopped = false } = {}): Uint8Array {
    const parts: Uint8Array[] = this.atBoundary ? [] : [Buffer.from("\n\n")];
    const add = (last: ChatChunk, fields: ChatChunk) => {
      const { id, created, model } = last;
      const chunk = { id, object: this.#form.chunk, created, model, ...fields };
      parts.push(Buffer.from(`${dataLine(chunk)}\n\n`));
    };
    const last = this.#last ?? { ...this.options.head };
    const finish = (index: number, finish_reason: string) => {
      const written = this.#form.isText ? { text: "", logprobs: null } : { delta: {} };
      add(last, { choices: [{ index, ...written, finish_reason }] });
      this.options.onChunk?.(last, [{ index, delta: {}, finish_reason }]);
    };
    if (isStopped) {
      for (const [index, hasEnded] of this.#ends) if (!hasEnded) finish(index, "length");
    } else if (!this.finished && this.#last) finish(0, this.#sawTools ? "tool_calls" : "stop");
    const isUsageMissing = this.options.keepUsage && settled !== null && (isStopped || !this.isUsageFinal);
    if (isUsageMissing && (this.#last || isStopped)) add(last, { choices: [], usage: usageFields(settled) });
    else if (this.#usageEvent && !isUsageMissing) parts.push(this.#usageEvent);
    parts.push(DONE_EVENT);
    return join(parts)!;
  }

  /** What ends a stream that failed; no `[DONE]` follows. */
  failing(failure: ServiceError): Uint8Array {
    return Buffer.from(`${this.atBoundary ? "" : "\n\n"}data: ${JSON.stringify(toRestBody(failure))}\n\n`);
  }
}

const dataLine = (chunk: object): string => `data: ${JSON.stringify(chunk)}`;
const withNewline = (verdict: Verdict): Verdict =>
  typeof verdict === "string" ? verdict : { replacement: `${verdict.replacement}\n` };

const join = (parts: Uint8Array[]): Uint8Array | null =>
  parts.length === 0 ? null : parts.length === 1 ? parts[0]! : Buffer.concat(parts);

/** ASCII, and nothing escaped: its bytes are its text. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/;

/** The text of the JSON string whose inside lies between the positions; null when it is not one. */
function contentAt(bytes: Uint8Array, text: string, start: number, end: number): string | null {
  const inside = text.slice(start, end);
  if (PLAIN_TEXT.test(inside)) return inside;
  try {
    return JSON.parse(textOfBytes(bytes, "utf8", start - 1, end + 1)) as string;
  } catch {
    return null;
  }
}

function parseChunk(json: string): ChatChunk | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Adds the sum, and what follows from it, where the upstream reports only a part. */
function completeUsage(chunk: ChatChunk, usage: UsageReport): boolean {
  if (usage === null || usage === ABSURD || !isObject(chunk.usage)) return false;
  if (chunk.usage.total_tokens !== undefined && chunk.usage.prompt_tokens !== undefined) return false;
  chunk.usage = { ...usageFields(usage), ...chunk.usage };
  return true;
}

const ERROR_LENGTH_MAX = 4_096;

/** The message of an event that reports an error: wrapped, flat or a bare text. */
function errorOf(chunk: ChatChunk): string | null {
  const { error } = chunk;
  if (isObject(error)) return String(error.message ?? JSON.stringify(error)).slice(0, ERROR_LENGTH_MAX);
  if (typeof error === "string") return error.slice(0, ERROR_LENGTH_MAX);
  if (chunk.object === "error") return String(chunk.message ?? "unknown error").slice(0, ERROR_LENGTH_MAX);
  return null;
}
