import { BackendError } from "../../../backends/contract.ts";
import { type ServiceError, toRestBody } from "../../../kernel/errors.ts";
import { newCallId } from "../../../kernel/ids.ts";
import { isObject, objectIn, objectsIn } from "../../../kernel/json.ts";
import { JSON_DEPTH_MAX } from "../../../kernel/json-scan.ts";
import { IMAGE_TOKENS, mediaTokens, TokenCounter } from "../../metering/index.ts";
import { type AnswerForm, type AnswerHead, CHAT_FORM } from "../call/answer.ts";
import {
  ABSURD,
  largerUsage,
  type ReportedUsage,
  readUsage,
  type UsageReport,
  usageFields,
} from "../call/usage-tail.ts";
import { EventLines, type EventReader, joined, textOfBytes, type Verdict } from "./event-lines.ts";
import type { StreamReader } from "./relay.ts";

const DONE = "[DONE]";
const DONE_EVENT = Buffer.from("data: [DONE]\n\n");

export interface ChatMeterOptions {
  /** The client asked for the usage chunk; otherwise it is dropped. */
  keepUsage: boolean;
  /** Called with every chunk, after its choices are normalised. */
  onChunk?: (chunk: ChatChunk, choices: readonly Choice[]) => void;
  head?: AnswerHead;
  form?: AnswerForm;
}

/** Reads the events of a streamed chat for metering, and completes what strict clients need. */
export class ChatMeter implements EventReader, StreamReader {
  usage: ReportedUsage | null = null;
  #isAbsurd = false;
  textBytes = 0;
  readonly #counter = new TokenCounter();
  /** Events with text; each has at least one token. */
  #textEvents = 0;
  /** `textBytes` at the time of the last usage report. */
  #usageAtBytes = 0;
  done = false;
  finished = false;
  failure: string | null = null;
  failedUsage: unknown;

  readonly #form: AnswerForm;
  readonly #toolDeltas = new Map<number, ToolDeltas>();
  readonly #lines = new EventLines(this);
  #last: ChatChunk | null = null;
  /** The choices that have begun, and whether each has finished. */
  readonly #ends = new Map<number, boolean>();
  #sawTools = false;
  /** The latest usage-only event, written once at the end if the client wants it. */
  #usageEvent: Uint8Array | null = null;

  constructor(readonly options: ChatMeterOptions) {
    this.#form = options.form ?? CHAT_FORM;
  }

  feed(piece: Uint8Array): Uint8Array | null {
    return this.#lines.feed(piece);
  }

  flush(): Uint8Array | null {
    return this.#lines.flush();
  }

  get atBoundary(): boolean {
    return this.#lines.atBoundary;
  }

  /** Our own count of the tokens passed on; at least one for each event with text. */
  get tokens(): number {
    return Math.max(this.#counter.tokens, this.#textEvents);
  }

  get reported(): UsageReport {
    return this.usage ?? (this.#isAbsurd ? ABSURD : null);
  }

  /** Whether usage came after the last text; usage before that may be a running total. */
  get isUsageFinal(): boolean {
    return this.usage !== null && this.#usageAtBytes === this.textBytes;
  }

  /** Whether the answer is complete, even without `[DONE]`. */
  get complete(): boolean {
    if (this.done || !this.finished) return this.done;
    for (const hasEnded of this.#ends.values()) if (!hasEnded) return false;
    return true;
  }

  /** Only an image or audio is that large. */
  unread(bytes: number): void {
    this.textBytes += bytes;
    this.#counter.addTokens(mediaTokens(bytes));
  }

  broke(problem: string): void {
    this.failure = problem;
  }

  line(bytes: Uint8Array, text: string, from: number, end: number): Verdict | "partial" {
    const word = text.slice(from, end).trim();
    if (word === DONE) {
      this.done = true;
      return "end";
    }
    // Several servers send empty events as heartbeats, which client libraries cannot parse.
    if (word === "") return "drop";
    const json = textOfBytes(bytes, "utf8", from, end);
    const chunk = objectIn(json);
    return chunk === null ? "partial" : this.#chunk(chunk, json);
  }

  event(data: string): Exclude<Verdict, "keep"> {
    const chunk = objectIn(data);
    if (chunk === null) {
      this.broke("the upstream sent an event that is not JSON");
      return "end";
    }
    const verdict = this.#chunk(chunk);
    return verdict === "keep" ? { replacement: dataLine(chunk) } : verdict;
  }

  /** `json` is the chunk's text, if it came on one line. */
  #chunk(chunk: ChatChunk, json?: string): Verdict {
    const failure = errorOf(chunk);
    if (failure !== null) {
      this.failure = failure;
      this.failedUsage = chunk.usage;
      return "end";
    }
    const usage = readUsage(chunk.usage, chunk.service_tier);
    let isChanged = completeUsage(chunk, usage);
    if (this.#completeHead(chunk)) isChanged = true;
    if (!Array.isArray(chunk.choices)) {
      chunk.choices = [];
      isChanged = true;
    }
    const { isText } = this.#form;
    const sent = objectsIn(chunk.choices);
    const choices = isText ? sent.map(textChoice) : (sent as unknown as Choice[]);
    const bytesBefore = this.textBytes;
    for (const [position, choice] of choices.entries()) {
      if (!isText && this.#completeChoice(choice, position)) isChanged = true;
      this.#choice(choice);
    }
    this.options.onChunk?.(chunk, choices);
    if (this.textBytes > bytesBefore) this.#textEvents++;
    if (usage !== null) this.#reported(usage);
    // Clients see the report that is charged: drop a smaller one.
    if (choices.length === 0 && isObject(chunk.usage))
      return this.#usageEvent !== null && this.usage !== usage
        ? "drop"
        : this.#usageAlone(chunk, isChanged ? undefined : json);
    if (choices.length > 0) this.#last = chunk;
    return isChanged ? { replacement: dataLine(chunk) } : "keep";
  }

  /** Adds what strict clients need and some upstreams omit. */
  #completeHead(chunk: ChatChunk): boolean {
    const { head } = this.options;
    if (!head) return false;
    const { chunk: object } = this.#form;
    const isWhole =
      typeof chunk.id === "string" &&
      chunk.object === object &&
      typeof chunk.created === "number" &&
      typeof chunk.model === "string";
    if (isWhole) return false;
    if (typeof chunk.id !== "string") chunk.id = head.id;
    chunk.object = object;
    if (typeof chunk.created !== "number") chunk.created = head.created;
    if (typeof chunk.model !== "string") chunk.model = head.model;
    return true;
  }

  /** The same for a choice: `index`, `delta`, `finish_reason`, the role, and what a call lacks. */
  #completeChoice(choice: Choice, position: number): boolean {
    let changed = false;
    if (typeof choice.index !== "number") {
      choice.index = position;
      changed = true;
    }
    if (!isObject(choice.delta)) {
      choice.delta = {};
      changed = true;
    }
    if (choice.finish_reason === undefined) {
      choice.finish_reason = null;
      changed = true;
    }
    const { index, delta } = choice;
    if (!this.#ends.has(index) && !delta.role) {
      choice.delta = { ...delta, role: "assistant" };
      changed = true;
    }
    if (!Array.isArray(delta.tool_calls)) return changed;
    const deltas = this.#toolDeltas.getOrInsertComputed(index, () => new ToolDeltas());
    for (const piece of objectsIn(delta.tool_calls)) if (deltas.complete(piece)) changed = true;
    return changed;
  }

  #usageAlone(chunk: ChatChunk, json: string | undefined): Verdict {
    if (this.options.keepUsage) {
      this.#usageEvent = Buffer.from(`data: ${json ?? JSON.stringify(chunk)}\n\n`);
      return "drop";
    }
    if (!isObject(chunk.timings)) return "drop";
    // llama.cpp moves its timings into this event when usage is requested; this client did not request it.
    const { usage: _, ...rest } = chunk;
    const nothing = this.#form.isText ? { text: "" } : { delta: {} };
    const event = { ...rest, choices: [{ index: 0, ...nothing, finish_reason: null }] };
    return { replacement: dataLine(event) };
  }

  #reported(usage: Exclude<UsageReport, null>): void {
    this.usage = usage === ABSURD ? null : largerUsage(this.usage, usage);
    if (usage === ABSURD) this.#isAbsurd = true;
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

  /** The end of an answer: missing finish and usage, then `[DONE]`. A stopped answer ends as if it reached its limit. */
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
    return joined(parts)!;
  }

  /** The end of a failed stream, without `[DONE]`. */
  failing(failure: ServiceError): Uint8Array {
    return Buffer.from(`${this.atBoundary ? "" : "\n\n"}data: ${JSON.stringify(toRestBody(failure))}\n\n`);
  }
}

const dataLine = (chunk: object): string => `data: ${JSON.stringify(chunk)}`;

/** Adds missing figures to a partial usage report. */
function completeUsage(chunk: ChatChunk, usage: UsageReport): boolean {
  if (usage === null || usage === ABSURD || !isObject(chunk.usage)) return false;
  if (chunk.usage.total_tokens !== undefined && chunk.usage.prompt_tokens !== undefined) return false;
  chunk.usage = { ...usageFields(usage), ...chunk.usage };
  return true;
}

const ERROR_LENGTH_MAX = 4_096;

/** The message of an error event, which may be wrapped, flat or a plain string. */
function errorOf(chunk: ChatChunk): string | null {
  const { error } = chunk;
  if (isObject(error)) return String(error.message ?? JSON.stringify(error)).slice(0, ERROR_LENGTH_MAX);
  if (typeof error === "string") return error.slice(0, ERROR_LENGTH_MAX);
  if (chunk.object === "error") return String(chunk.message ?? "unknown error").slice(0, ERROR_LENGTH_MAX);
  return null;
}

export interface ChatChunk {
  id?: unknown;
  model?: unknown;
  created?: unknown;
  choices?: unknown;
  usage?: unknown;
  [field: string]: unknown;
}

export interface Choice {
  index: number;
  delta: Record<string, unknown>;
  finish_reason?: unknown;
  /** The stop sequence or token, if the server reports it (vLLM, SGLang). */
  stop_reason?: unknown;
  matched_stop?: unknown;
  /** Some servers send the content here instead of in the delta. */
  text?: unknown;
  message?: unknown;
}

/** A text completion's choice in the form of a chat's. */
const textChoice = (choice: Record<string, unknown>, position: number): Choice => ({
  index: typeof choice.index === "number" ? choice.index : position,
  delta: { ...(isObject(choice.delta) && choice.delta), content: choice.text },
  finish_reason: choice.finish_reason,
  stop_reason: choice.stop_reason,
  matched_stop: choice.matched_stop,
  message: choice.message,
});

/** Labels such as role and type are not output, unless they are suspiciously long. */
const LABELS: ReadonlySet<string> = new Set(["role", "type", "id"]);
const LABEL_LENGTH_MAX = 64;
/** Fields in which models return audio and images. */
const SOUNDS: ReadonlySet<string> = new Set(["data"]);
const IMAGES: ReadonlySet<string> = new Set(["url", "image_url", "b64_json"]);
const ENCODED = /^(?:data:[^,]{0,256};base64,)?[A-Za-z0-9+/=_-]{256,}$/;

/** Counts all texts in a delta or message and returns their UTF-8 size. A text under two names counts once. */
export function countTexts(value: unknown, counter: TokenCounter): number {
  // Fast path: the usual delta is one text.
  if (typeof value === "string") return count("", value, counter);
  if (isObject(value)) {
    const keys = Object.keys(value);
    if (keys.length === 1 && typeof value[keys[0]!] === "string")
      return count(keys[0]!, value[keys[0]!] as string, counter);
  }
  const seen = new Set<string>();
  let bytes = 0;
  const visit = (key: string, part: unknown, depth: number): void => {
    if (typeof part === "string") {
      if (seen.has(part)) return;
      seen.add(part);
      bytes += count(key, part, counter);
    } else if (depth >= JSON_DEPTH_MAX)
      throw new BackendError("transport", "the upstream's answer is nested too deeply");
    else if (Array.isArray(part)) for (const each of part) visit(key, each, depth + 1);
    else if (isObject(part)) for (const [name, each] of Object.entries(part)) visit(name, each, depth + 1);
  };
  visit("", value, 0);
  return bytes;
}

function count(key: string, text: string, counter: TokenCounter): number {
  if (LABELS.has(key) && text.length <= LABEL_LENGTH_MAX) return 0;
  if (SOUNDS.has(key) && ENCODED.test(text)) counter.addTokens(mediaTokens(text.length));
  else if (IMAGES.has(key) && ENCODED.test(text)) counter.addTokens(IMAGE_TOKENS);
  else counter.addText(text);
  return Buffer.byteLength(text);
}

/** Maximum number of calls in one choice. */
const CALLS_MAX = 1_000;

interface ToolCallStart {
  index: number;
  /** Empty until the upstream sends one, or until we make one when the name arrives. */
  id: string;
  hasName: boolean;
}

/** Some servers send arguments as an object instead of JSON text. */
export const argumentsText = (args: unknown): string =>
  typeof args === "string" || args == null ? (args ?? "") : JSON.stringify(args);

/** Adds index, id, type and textual arguments to the tool call pieces of one choice. */
export class ToolDeltas {
  readonly #calls: ToolCallStart[] = [];
  readonly #bySentIndex = new Map<number, ToolCallStart>();

  complete(piece: Record<string, unknown>): boolean {
    const { index, function: fn } = piece;
    const name = isObject(fn) && typeof fn.name === "string" ? fn.name : "";
    const sentId = typeof piece.id === "string" ? piece.id : "";
    const call = this.#find(typeof index === "number" ? index : null, sentId, name);
    if (!call) return false;
    call.hasName ||= name !== "";
    let changed = textArguments(fn);
    if (call.index !== index) {
      piece.index = call.index;
      changed = true;
    }
    if (call.id === "" && sentId === "" && name !== "") {
      piece.id = newCallId();
      changed = true;
    }
    if (call.id === "" && typeof piece.id === "string") call.id = piece.id;
    if (typeof piece.id === "string" && piece.type === undefined) {
      piece.type = "function";
      changed = true;
    }
    return changed;
  }

  #find(sentIndex: number | null, id: string, name: string): ToolCallStart | null {
    const known = sentIndex === null ? this.#withId(id) : this.#bySentIndex.get(sentIndex);
    // Some servers use one index for two calls.
    const isOther = known?.hasName && name !== "" && id !== "" && id !== known.id;
    if (known && !isOther) return known;
    if (this.#calls.length >= CALLS_MAX) return null;
    const isFree = sentIndex !== null && !this.#calls.some(({ index }) => index === sentIndex);
    const next = this.#calls.reduce((max, { index }) => Math.max(max, index), -1) + 1;
    const call = { index: isFree ? sentIndex : next, id: "", hasName: false };
    this.#calls.push(call);
    if (sentIndex !== null) this.#bySentIndex.set(sentIndex, call);
    return call;
  }

  /** A piece without an id belongs to the latest call. */
  #withId(id: string): ToolCallStart | undefined {
    return id === "" ? this.#calls.at(-1) : this.#calls.find((call) => call.id === id);
  }
}

function textArguments(fn: unknown): boolean {
  if (!isObject(fn) || fn.arguments == null || typeof fn.arguments === "string") return false;
  fn.arguments = argumentsText(fn.arguments);
  return true;
}

export function completeCalls(message: Record<string, unknown>): void {
  for (const call of objectsIn(message.tool_calls)) {
    if (typeof call.id !== "string" || call.id === "") call.id = newCallId();
    textArguments(call.function);
  }
}
