import { type Answer, BackendError } from "../../../backends/contract.ts";
import { isObject, jsonIn } from "../../../kernel/json.ts";
import { JsonNesting, skipSpace, withoutTexts } from "../../../kernel/json-scan.ts";
import { LARGE_BODY_BYTES } from "../../../kernel/turns.ts";

/** 2,048 vectors of 3,072 numbers in text are half of this. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
/** Bytes at each end that hold everything but the text: servers write the other fields before or after it. */
const EDGE_BYTES = 8 * 1024;

/** The whole body of an answer; at once when it is all there. */
export const readAnswer = (answer: Answer): Buffer | Promise<Buffer> => answer.bytes(ANSWER_BYTES_MAX);

/** A whole answer. Its two ends are decoded once, because searching a string is far cheaper than searching bytes. */
export class AnswerBody {
  readonly #head: string;
  readonly tail: string;
  readonly tailStart: number;

  #parsed: { value: unknown } | null = null;

  constructor(readonly bytes: Buffer) {
    this.tailStart = Math.max(0, bytes.length - EDGE_BYTES);
    this.tail = bytes.toString("latin1", this.tailStart);
    this.#head = this.tailStart === 0 ? this.tail : bytes.toString("latin1", 0, EDGE_BYTES);
  }

  /** The answer, parsed once, if it is large without its long texts, such as images; undefined when it is not JSON. */
  get parsed(): unknown {
    this.#parsed ??= { value: jsonIn(this.#toParse()) };
    return this.#parsed.value;
  }

  #toParse(): string {
    if (this.bytes.length <= LARGE_BODY_BYTES) return this.bytes.toString();
    const text = this.bytes.toString("latin1");
    const nesting = new JsonNesting();
    nesting.feed(text);
    return withoutTexts(text, nesting.longStrings, { anyWillDo: true });
  }

  mentions(name: string): boolean {
    if (this.#head.includes(name)) return true;
    return this.tailStart > 0 && (this.tail.includes(name) || this.bytes.includes(name));
  }

  /** Whether all of them do. Each is first looked for after the one before it: most servers keep the same order. */
  mentionsAll(names: readonly string[]): boolean {
    let at = 0;
    for (const name of names) {
      const found = this.#head.indexOf(name, at);
      if (found !== -1) at = found + name.length;
      else if (!this.mentions(name)) return false;
    }
    return true;
  }

  /** Whether `pattern` is found where everything but text and vectors stands. */
  hasAtEdges(pattern: RegExp): boolean {
    return pattern.test(this.#head) || (this.tailStart > 0 && pattern.test(this.tail));
  }

  /** Whether a list of that name, with something in it, begins near the start. `key` has its quotes. */
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
  /** The usage closes the answer, so the answer was not cut short. */
  endsProperly: boolean;
  contentType?: string;
}

/** Refuses an answer that lacks its list: an error inside a 200, one that was cut short, or no answer at all. */
export function requireList(body: AnswerBody, { list, endsProperly, contentType }: RequiredList): void {
  // The backend works; it has read the request in its own way.
  if (contentType?.includes("event-stream") && body.bytes.length > 0)
    throw new BackendError("mismatch", "the upstream answered with a stream where none was asked for");
  if (endsProperly && body.opensList(LISTS[list])) return;
  const { parsed } = body;
  if (parsed === undefined)
    throw new BackendError("transport", "the upstream answered with something that is not JSON");
  const answer = isObject(parsed) ? parsed : {};
  const { [list]: entries } = answer;
  const told = errorIn(answer);
  if (Array.isArray(entries) && (entries.length > 0 || !told)) return;
  refuseError(told, answer.usage);
  throw new BackendError("transport", `the upstream answered without \`${list}\``);
}

const errorIn = ({ error, object, message }: Record<string, unknown>): unknown =>
  error ?? (object === "error" ? message : null);

function refuseError(told: unknown, usage?: unknown): void {
  const words = isObject(told) ? told.message : told;
  if (typeof words === "string") throw new BackendError("upstream", words, 500).having(usage);
}

/** Refuses an answer, parsed, that is an error inside a 200 instead of a text. */
export function requireText(parsed: unknown): void {
  if (isObject(parsed) && parsed.text === undefined) refuseError(errorIn(parsed));
}
