import { isEventStream } from "@model-gateway/wire/http";
import { type Answer, BackendError } from "../../../backends/contract.ts";
import { fail } from "../../../kernel/errors.ts";
import { isObject, jsonIn, objectIn, objectsIn } from "../../../kernel/json.ts";
import { JsonNesting, skipSpace } from "../../../kernel/json-scan.ts";
import { inSteps, LARGE_BODY_BYTES } from "../../../kernel/turns.ts";
import { type ReportedUsage, usageFields } from "./usage-tail.ts";

/** Twice the size of 2,048 vectors of 3,072 numbers, written as text. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
/** Bytes at each end that hold everything but the text: servers write the other fields before or after it. */
const EDGE_BYTES = 8 * 1024;
/** How much of a large answer is read in one go. */
const SKIMMED_BYTES = 1024 * 1024;

/** The whole body of an answer; not a promise when it has already arrived. */
export const readAnswer = (answer: Answer): Buffer | Promise<Buffer> => answer.bytes(ANSWER_BYTES_MAX);

/** A whole answer. Its two ends are decoded once, because searching a string is far cheaper than searching bytes. */
export class AnswerBody {
  readonly #head: string;
  readonly tail: string;
  readonly tailStart: number;

  #parsed: { value: unknown } | null = null;
  /** Where the long texts of a large answer are. */
  #nesting: JsonNesting | null = null;

  constructor(readonly bytes: Buffer) {
    this.tailStart = Math.max(0, bytes.length - EDGE_BYTES);
    this.tail = bytes.toString("latin1", this.tailStart);
    this.#head = this.tailStart === 0 ? this.tail : bytes.toString("latin1", 0, EDGE_BYTES);
  }

  /** The parsed answer, cached. Long texts such as images are left out of a large one. Undefined when it is not JSON. */
  get parsed(): unknown {
    this.#parsed ??= { value: jsonIn(this.#toParse()) };
    return this.#parsed.value;
  }

  #toParse(): string {
    const { bytes } = this;
    if (bytes.length <= LARGE_BODY_BYTES) return bytes.toString();
    if (!this.#nesting) for (const piece of this.#pieces()) piece();
    let [kept, at] = ["", 0];
    const { longStrings } = this.#nesting!;
    for (let i = 0; i < longStrings.length; i += 2) {
      kept += bytes.toString("utf8", at, longStrings[i]! + 1);
      at = longStrings[i + 1]! - 1;
    }
    return kept + bytes.toString("utf8", at);
  }

  /** Looks for the long texts of a large answer in steps, so that parsing it later is quick. */
  async skim(): Promise<void> {
    if (this.bytes.length > LARGE_BODY_BYTES) await inSteps([...this.#pieces()], (piece) => piece());
  }

  *#pieces() {
    const nesting = new JsonNesting();
    this.#nesting = nesting;
    for (let at = 0; at < this.bytes.length; at += SKIMMED_BYTES)
      yield () => nesting.feed(this.bytes.toString("latin1", at, at + SKIMMED_BYTES));
  }

  mentions(name: string): boolean {
    if (this.#head.includes(name)) return true;
    return this.tailStart > 0 && (this.tail.includes(name) || this.bytes.includes(name));
  }

  /** Whether it mentions all of them. Each search starts behind the previous hit: most servers keep the same order. */
  mentionsAll(names: readonly string[]): boolean {
    let at = 0;
    for (const name of names) {
      const found = this.#head.indexOf(name, at);
      if (found !== -1) at = found + name.length;
      else if (!this.mentions(name)) return false;
    }
    return true;
  }

  /** Whether `pattern` matches near the start or the end, where every field but text and vectors is. */
  hasAtEdges(pattern: RegExp): boolean {
    return pattern.test(this.#head) || (this.tailStart > 0 && pattern.test(this.tail));
  }

  /** Whether a non-empty list of that name begins near the start. `key` includes its quotes. */
  opensList(key: string): boolean {
    const text = this.#head;
    let at = text.indexOf(key);
    if (at === -1) return false;
    at = skipSpace(text, at + key.length);
    if (text[at] !== ":") return false;
    at = skipSpace(text, at + 1);
    return text[at] === "[" && text[skipSpace(text, at + 1)] !== "]";
  }
}

/**
 * Refuses an answer without its list: an error inside a 200, a truncated answer, or no answer at all. `endsProperly`:
 * usage comes last in the answer, so the answer was not cut short.
 */
export function requireList(
  body: AnswerBody,
  {
    list,
    endsProperly,
    contentType,
  }: { list: "choices" | "data" | "results"; endsProperly?: boolean; contentType?: string },
): void {
  // The backend is healthy; it only understood the request differently.
  if (isEventStream(contentType) && body.bytes.length > 0)
    throw new BackendError("mismatch", "the upstream answered with a stream where none was asked for");
  if (endsProperly && body.opensList(`"${list}"`)) return;
  const { parsed } = body;
  if (parsed === undefined)
    throw new BackendError("transport", "the upstream answered with something that is not JSON");
  const answer = isObject(parsed) ? parsed : {};
  const { [list]: entries } = answer;
  const error = errorIn(answer);
  if (Array.isArray(entries) && (entries.length > 0 || !error)) return;
  refuseError(error, answer.usage);
  throw new BackendError("transport", `the upstream answered without \`${list}\``);
}

const errorIn = ({ error, object, message }: Record<string, unknown>): unknown =>
  error ?? (object === "error" ? message : null);

function refuseError(error: unknown, usage?: unknown): void {
  const words = isObject(error) ? error.message : error;
  if (typeof words === "string") throw new BackendError("upstream", words, 500).having(usage);
}

/** Refuses a parsed answer that is an error inside a 200 instead of a text. */
export function requireText(parsed: unknown): void {
  if (isObject(parsed) && parsed.text === undefined) refuseError(errorIn(parsed));
}

export interface AnswerForm {
  idPrefix: string;
  /** `object` of a whole answer and of a chunk. */
  whole: string;
  chunk: string;
  /** Each choice is a `text` instead of a message or a delta. */
  isText: boolean;
  /** Fields that limit the answer; default: those that the backend's kind honours in a chat. */
  limitFields?: readonly string[];
}

export const CHAT_FORM: AnswerForm = {
  idPrefix: "chatcmpl-",
  whole: "chat.completion",
  chunk: "chat.completion.chunk",
  isText: false,
};

export const TEXT_FORM: AnswerForm = {
  idPrefix: "cmpl-",
  whole: "text_completion",
  chunk: "text_completion",
  isText: true,
  limitFields: ["max_tokens"],
};

/** Fields that upstreams may leave out of an answer. */
export interface AnswerHead {
  id: string;
  created: number;
  model: string;
}

type OwedAnswer = { isReported: boolean; owed: ReportedUsage | null };

const quoted = (names: readonly string[]) => names.map((name) => `"${name}"`);
const HEAD_FIELDS = ["id", "object", "created", "model", "index"] as const;
const TAIL_FIELDS = ["finish_reason", "prompt_tokens", "completion_tokens", "total_tokens"] as const;
const CHAT_FIELDS = quoted([...HEAD_FIELDS, "role", ...TAIL_FIELDS]);
const TEXT_FIELDS = quoted([...HEAD_FIELDS, "text", ...TAIL_FIELDS]);
const LIST_FIELDS = quoted(["object", "index", "model", "prompt_tokens", "total_tokens"]);
const IS_LIST = /"object"\s*:\s*"list"/;
const HAS_EMBEDDINGS = /"object"\s*:\s*"embedding"/;
const USAGE_BYTES_MAX = 8 * 1024;
const NO_COMPLETION = Buffer.from('"completion_tokens":0,');

/** The answer with the fields that `complete` adds; one that is not JSON passes unchanged. */
function rewritten(body: Buffer, complete: (answer: Record<string, unknown>) => object): Buffer {
  const answer = objectIn(body.toString());
  return answer ? Buffer.from(JSON.stringify({ ...answer, ...complete(answer) })) : body;
}

/** Reported figures stay; missing or impossible ones are replaced by what is on the books. */
function usageIn(answer: Record<string, unknown>, { isReported, owed }: OwedAnswer): object {
  if (!owed) return {};
  const reported = isObject(answer.usage) ? answer.usage : {};
  const counted = usageFields(owed);
  return { usage: isReported ? { ...counted, ...reported } : { ...reported, ...counted } };
}

function completeChoice(choice: Record<string, unknown>, index: number): object {
  const message = isObject(choice.message) ? choice.message : {};
  const hasCalls = Array.isArray(message.tool_calls) && message.tool_calls.length > 0;
  return {
    index,
    finish_reason: hasCalls ? "tool_calls" : "stop",
    ...choice,
    message: { role: "assistant", content: null, ...message },
  };
}

const completeText = (choice: Record<string, unknown>, index: number): object => ({
  index,
  finish_reason: "stop",
  logprobs: null,
  text: "",
  ...choice,
});

/** An embeddings answer in the contract's form. Most upstreams only omit `completion_tokens`, which is spliced in. */
export function completeEmbeddings(body: AnswerBody, model: string, usage: OwedAnswer): readonly Buffer[] {
  const whole = completeList(body, model, usage);
  const usageAt = whole.lastIndexOf('"usage"');
  if (usageAt === -1 || whole.length - usageAt > USAGE_BYTES_MAX) return [whole];
  const open = whole.indexOf("{", usageAt) + 1;
  if (open === 0 || whole.includes('"completion_tokens"', open)) return [whole];
  return [whole.subarray(0, open), NO_COMPLETION, whole.subarray(open)];
}

function completeList(body: AnswerBody, model: string, usage: OwedAnswer): Buffer {
  const isTyped = body.hasAtEdges(IS_LIST) && body.hasAtEdges(HAS_EMBEDDINGS);
  if (usage.isReported && isTyped && body.mentionsAll(LIST_FIELDS)) return body.bytes;
  return rewritten(body.bytes, (answer) => ({
    object: "list",
    data: objectsIn(answer.data).map((entry, index) => ({ index, object: "embedding", ...entry })),
    model: answer.model ?? model,
    ...usageIn(answer, usage),
  }));
}

/** A settled answer that did not stream: bytes for clients of the chat API, an object for the other voices. */
export class WholeAnswer {
  constructor(
    readonly body: AnswerBody,
    readonly head: AnswerHead,
    readonly usage: OwedAnswer,
    readonly form: AnswerForm,
  ) {}

  /** In the contract's form. Almost every upstream already sends it that way, and its bytes pass. */
  bytes(): Buffer {
    const { body, head, usage, form } = this;
    if (usage.isReported && body.mentionsAll(form.isText ? TEXT_FIELDS : CHAT_FIELDS)) return body.bytes;
    return rewritten(body.bytes, (answer) => ({
      id: answer.id ?? head.id,
      object: form.whole,
      created: answer.created ?? head.created,
      model: answer.model ?? head.model,
      choices: objectsIn(answer.choices).map(form.isText ? completeText : completeChoice),
      ...usageIn(answer, usage),
    }));
  }

  object(): Record<string, unknown> {
    const { parsed } = this.body;
    return isObject(parsed)
      ? parsed
      : fail("bad_gateway", "the upstream answered with something that is not a JSON object");
  }
}
