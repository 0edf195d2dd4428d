import { type Answer, BackendError } from "../../../backends/contract.ts";
import { isObject, jsonIn } from "../../../kernel/json.ts";
import { JsonNesting, skipSpace } from "../../../kernel/json-scan.ts";
import { inSteps, LARGE_BODY_BYTES } from "../../../kernel/turns.ts";

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

const LISTS = { choices: '"choices"', data: '"data"', results: '"results"' } as const;

interface RequiredList {
  list: keyof typeof LISTS;
  /** Usage comes last in the answer, so the answer was not cut short. */
  endsProperly: boolean;
  contentType?: string;
}

/** Refuses an answer without its list: an error inside a 200, a truncated answer, or no answer at all. */
export function requireList(body: AnswerBody, { list, endsProperly, contentType }: RequiredList): void {
  // The backend is healthy; it only understood the request differently.
  if (contentType?.includes("event-stream") && body.bytes.length > 0)
    throw new BackendError("mismatch", "the upstream answered with a stream where none was asked for");
  if (endsProperly && body.opensList(LISTS[list])) return;
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
