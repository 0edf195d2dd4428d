import { type Answer, BackendError } from "../../backends/contract.ts";
import { isObject } from "../../kernel/json.ts";

/** 2,048 vectors of 3,072 numbers in text are half of this. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
/** Where everything but the text of an answer stands: servers write it before or after that. */
const EDGE_BYTES = 8 * 1024;

/** The whole body of an answer; at once when it is all there. */
export const readAnswer = (answer: Answer): Buffer | Promise<Buffer> => answer.bytes(ANSWER_BYTES_MAX);

/** A whole answer, whose edges are read as text once: looking into a text costs a fraction of searching bytes. */
export class AnswerBody {
  readonly #head: string;
  /** From `tailStart` on, in Latin-1. */
  readonly tail: string;
  readonly tailStart: number;

  constructor(readonly bytes: Buffer) {
    this.tailStart = Math.max(0, bytes.length - EDGE_BYTES);
    this.tail = bytes.toString("latin1", this.tailStart);
    this.#head = this.tailStart === 0 ? this.tail : bytes.toString("latin1", 0, EDGE_BYTES);
  }

  /** Whether `name` stands in it anywhere. */
  mentions(name: string): boolean {
    if (this.#head.includes(name)) return true;
    return this.tailStart > 0 && (this.tail.includes(name) || this.bytes.includes(name));
  }

  startMentions(name: string): boolean {
    return this.#head.includes(name);
  }
}

/** Refuses an answer that lacks its list (`choices`, `data`): an error inside a 200, or no answer at all. */
export function requireList(body: AnswerBody, list: "choices" | "data"): void {
  if (body.startMentions(list === "data" ? '"data"' : '"choices"')) return;
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.bytes.toString());
  } catch {
    throw new BackendError("transport", "the upstream answered with something that is not JSON");
  }
  if (isObject(parsed) && Array.isArray(parsed[list])) return;
  const error = isObject(parsed)
    ? (parsed.error ?? (parsed.object === "error" ? parsed.message : null))
    : null;
  const message = isObject(error) ? error.message : error;
  if (typeof message === "string") throw new BackendError("upstream", message.slice(0, 4_096), 500);
  throw new BackendError("transport", `the upstream answered without \`${list}\``);
}
