import { isObject } from "../../../kernel/json.ts";
import { mediaTokens, TokenCounter } from "../../metering/index.ts";
import { type AnswerForm, CHAT_FORM } from "../call/answer-form.ts";
import type { AnswerHead } from "../call/answer-shape.ts";
import { ABSURD, type ReportedUsage, readUsage, type UsageReport, usageFields } from "../call/usage-tail.ts";
import { type ChatChunk, type Choice, ChunkNormaliser } from "./chunk-normaliser.ts";
import { countTexts } from "./text-size.ts";

/** An event that is still incomplete after this much is relayed as it comes, unread. */
const PENDING_BYTES_MAX = 1024 * 1024;
/** Reads views as they are: making a Buffer of one first costs more than the rest of a typical event. */
const textOfBytes = (bytes: Uint8Array, encoding: "latin1" | "utf8", start = 0, end = bytes.length): string =>
  Buffer.prototype.toString.call(bytes, encoding, start, end);

const NEWLINE = 10;
const DONE = "[DONE]";
const EVENT_END = Buffer.from("\n\n");
const DONE_EVENT = Buffer.from("data: [DONE]\n\n");

export interface StreamMeterOptions {
  /** The client asked for the usage chunk; otherwise it is held back. */
  keepUsage: boolean;
  /** Sees every chunk with its choices made what clients expect. */
  onChunk?: (chunk: ChatChunk, choices: readonly Choice[]) => void;
  /** What each chunk says about the answer, where the upstream leaves it out. */
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
}

type Verdict = "keep" | "drop" | "end" | { replacement: string };

/**
 * Reads an upstream's event stream as far as metering needs and passes the bytes on. An event that differs
 * from an earlier, fully parsed one only in its text is recognised by its frame and not parsed.
 *
 * The result does not depend on how the bytes are cut into pieces.
 */
export class StreamMeter {
  /** The newest figures; null when there are none that a request can have. */
  usage: ReportedUsage | null = null;
  /** Figures were reported that no request can have. */
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
  /** A choice came to its end. */
  finished = false;
  /** What the upstream reported, or sent, that ends the stream as a failure. */
  failure: string | null = null;

  readonly #form: AnswerForm;
  readonly #normaliser: ChunkNormaliser;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  /** Inside an event too large to be looked at. */
  #passing = false;
  #dropBlank = false;
  /** The last line that was passed on was blank, so that what follows is an event of its own. */
  #atBoundary = true;
  #template: Template | null = null;
  #last: ChatChunk | null = null;
  /** Choices that have begun, each with whether it came to its end. */
  readonly #ends = new Map<number, boolean>();
  #sawTools = false;
  /** The newest event with nothing but usage: it is written at the end, once, unless the books say otherwise. */
  #usageEvent: Uint8Array | null = null;

  constructor(readonly options: StreamMeterOptions) {
    this.#form = options.form ?? CHAT_FORM;
    this.#normaliser = new ChunkNormaliser(options.head, this.#form);
  }

  /** Tokens of the text that was passed on, counted here; an event has at least one. */
  get tokens(): number {
    return Math.max(this.#counter.tokens, this.#textEvents);
  }

  /** Whether usage was reported after the last text; what came before it may be the state of the moment. */
  get isUsageFinal(): boolean {
    return this.usage !== null && this.#usageAtBytes === this.textBytes;
  }

  /** Whether the answer is whole: it may then end even without `[DONE]`. */
  get complete(): boolean {
    if (this.done || !this.finished) return this.done;
    for (const hasEnded of this.#ends.values()) if (!hasEnded) return false;
    return true;
  }

  /** Takes bytes of the upstream and returns those for the client; null when there are none yet. */
  feed(bytes: Uint8Array): Uint8Array | null {
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

  /** No text is as large as that: it is an image or a sound. */
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
      const drop = this.#dropBlank;
      this.#dropBlank = false;
      if (!drop) this.#atBoundary = true;
      return drop ? "drop" : "keep";
    }
    const wasAtBoundary = this.#atBoundary;
    this.#atBoundary = false;
    if (!text.startsWith("data:", start)) return "keep";
    const from = text.charCodeAt(start + 5) === 32 ? start + 6 : start + 5;
    if (this.#isPlainDelta(bytes, text, from, end)) return "keep";
    const data = text.slice(from, end);
    if (data.trim() === DONE) {
      this.done = true;
      this.#atBoundary = wasAtBoundary;
      return "end";
    }
    const chunk = parseChunk(textOfBytes(bytes, "utf8", from, end));
    if (chunk === undefined) {
      this.failure = "the upstream sent an event that is not JSON";
      return "end";
    }
    const verdict = this.#chunk(chunk);
    if (verdict === "drop" && this.options.keepUsage)
      this.#usageEvent = Buffer.concat([bytes.subarray(start, end), EVENT_END]);
    if (verdict === "keep") this.#learn(data, chunk);
    if (verdict === "drop") {
      this.#dropBlank = true;
      this.#atBoundary = wasAtBoundary;
    }
    return verdict;
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
    this.textBytes += textEnd - textStart;
    this.#counter.addJson(bytes, textStart, textEnd);
    if (textEnd > textStart) this.#textEvents++;
    return true;
  }

  /** Keeps the frame of an event that consists of nothing but one text. */
  #learn(data: string, chunk: ChatChunk): void {
    if (this.#form.isText) return;
    const [choice] = chunk.choices as Choice[];
    const isPlain =
      choice && (chunk.choices as unknown[]).length === 1 && !choice.finish_reason && !isObject(chunk.usage);
    if (!isPlain || typeof choice.delta.content !== "string" || Object.keys(choice.delta).length !== 1)
      return;
    // Beside its delta the choice may carry text of another kind, which must be seen in every event.
    if (typeof choice.text === "string" || choice.message !== undefined) return;
    const opening = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/.exec(data);
    if (!opening) return;
    const textStart = opening.index + opening[0].length;
    const textEnd = data.indexOf('"', textStart);
    if (data.slice(textStart, textEnd).includes("\\")) return;
    const { index } = choice;
    const template = { before: data.slice(0, textStart), after: data.slice(textEnd), chunk, index };
    const probe = "text of the gateway";
    const check = parseChunk(`${template.before}${probe}${template.after}`);
    if ((check?.choices as Choice[] | undefined)?.[0]?.delta.content === probe) this.#template = template;
  }

  #chunk(chunk: ChatChunk): Verdict {
    const failure = errorOf(chunk);
    if (failure !== null) {
      this.failure = failure;
      return "end";
    }
    const usage = readUsage(chunk.usage);
    const { choices, changed } = this.#normaliser.apply(chunk);
    const bytesBefore = this.textBytes;
    for (const choice of choices) this.#choice(choice);
    this.options.onChunk?.(chunk, choices);
    if (this.textBytes > bytesBefore) this.#textEvents++;
    if (usage !== null) this.#reported(usage);
    if (choices.length === 0 && isObject(chunk.usage)) {
      if (this.options.keepUsage || !isObject(chunk.timings)) return "drop";
      // llama.cpp moves its timings here when usage is asked for, which the client did not do.
      const { usage: _, ...rest } = chunk;
      const nothing = this.#form.isText ? { text: "" } : { delta: {} };
      const event = { ...rest, choices: [{ index: 0, ...nothing, finish_reason: null }] };
      return { replacement: `data: ${JSON.stringify(event)}` };
    }
    if (choices.length > 0) this.#last = chunk;
    return changed ? { replacement: `data: ${JSON.stringify(chunk)}` } : "keep";
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

  /** True when an event of the gateway's own may be written between those of the upstream. */
  get atBoundary(): boolean {
    return this.#atBoundary && !this.#passing;
  }

  /** The upstream has ended: the rest of a last line that no newline closed. */
  flush(): Uint8Array | null {
    if (this.#pendingBytes === 0) return null;
    return this.#lines(Buffer.concat([...this.#takePending(), Buffer.from("\n\n")]));
  }

  /**
   * What closes a whole answer: the finish and the usage that some upstreams forget, then `[DONE]`. One that the
   * gateway stopped, because no more of it can be paid, ends like one that has reached its limit.
   */
  closing(settled: ReportedUsage | null, { isStopped = false } = {}): Uint8Array {
    const parts: Uint8Array[] = this.atBoundary ? [] : [Buffer.from("\n\n")];
    const add = (last: ChatChunk, fields: ChatChunk) => {
      const { id, created, model } = last;
      const chunk = { id, object: this.#form.chunk, created, model, ...fields };
      parts.push(Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`));
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
    const isUsageMissing = this.options.keepUsage && settled !== null && (isStopped || this.usage === null);
    if (isUsageMissing && (this.#last || isStopped)) add(last, { choices: [], usage: usageFields(settled) });
    else if (this.#usageEvent && !isUsageMissing) parts.push(this.#usageEvent);
    parts.push(DONE_EVENT);
    return join(parts)!;
  }

  /** What ends a stream that failed; no `[DONE]` follows. */
  failing(errorJson: string): Uint8Array {
    return Buffer.from(`${this.atBoundary ? "" : "\n\n"}data: ${errorJson}\n\n`);
  }
}

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

const ERROR_LENGTH_MAX = 4_096;

/** The message of an event that reports an error: wrapped, flat or a bare text. */
function errorOf(chunk: ChatChunk): string | null {
  const { error } = chunk;
  if (isObject(error)) return String(error.message ?? JSON.stringify(error)).slice(0, ERROR_LENGTH_MAX);
  if (typeof error === "string") return error.slice(0, ERROR_LENGTH_MAX);
  if (chunk.object === "error") return String(chunk.message ?? "unknown error").slice(0, ERROR_LENGTH_MAX);
  return null;
}
