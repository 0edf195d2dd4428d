import { fail } from "../../../kernel/errors.ts";
import { isObject, objectIn } from "../../../kernel/json.ts";
import type { AnswerBody } from "./answer-body.ts";
import { type ReportedUsage, usageFields } from "./usage-tail.ts";

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

export interface OwedAnswer {
  isReported: boolean;
  owed: ReportedUsage | null;
}

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

const entries = (list: unknown) => (Array.isArray(list) ? list : []).filter(isObject);

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

/** A whole answer in the contract's form. Almost every upstream already sends it that way, and its bytes pass. */
function completeAnswer(
  body: AnswerBody,
  head: AnswerHead,
  { usage, form }: { usage: OwedAnswer; form: AnswerForm },
): Buffer {
  const { isText } = form;
  if (usage.isReported && body.mentionsAll(isText ? TEXT_FIELDS : CHAT_FIELDS)) return body.bytes;
  return rewritten(body.bytes, (answer) => ({
    id: answer.id ?? head.id,
    object: form.whole,
    created: answer.created ?? head.created,
    model: answer.model ?? head.model,
    choices: entries(answer.choices).map(isText ? completeText : completeChoice),
    ...usageIn(answer, usage),
  }));
}

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
    data: entries(answer.data).map((entry, index) => ({ index, object: "embedding", ...entry })),
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

  /** A chat completion; the upstream's own bytes if nothing is missing. */
  bytes(): Buffer {
    return completeAnswer(this.body, this.head, { usage: this.usage, form: this.form });
  }

  object(): Record<string, unknown> {
    const { parsed } = this.body;
    return isObject(parsed)
      ? parsed
      : fail("bad_gateway", "the upstream answered with something that is not a JSON object");
  }
}
