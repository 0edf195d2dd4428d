import { isObject } from "../../../kernel/json.ts";
import type { AnswerBody } from "./answer-body.ts";
import { type AnswerForm, CHAT_FORM } from "./answer-form.ts";
import { type ReportedUsage, usageFields } from "./usage-tail.ts";

/** What an answer says about itself, for upstreams that leave it out. */
export interface AnswerHead {
  id: string;
  created: number;
  model: string;
}

/** What the books say about the answer, and whether the upstream said it. */
export interface Owed {
  isReported: boolean;
  owed: ReportedUsage | null;
}

const HEAD_FIELDS = ["id", "object", "created", "model"].map((name) => `"${name}"`);
const LIST_FIELDS = ["object", "index", "model"].map((name) => `"${name}"`);
const USAGE_BYTES_MAX = 8 * 1024;
const NO_COMPLETION = Buffer.from('"completion_tokens":0,');

function mentionsAll(body: AnswerBody, names: readonly string[]): boolean {
  for (const name of names) if (!body.mentions(name)) return false;
  return true;
}

/** The answer with its fields added by `complete`; one that cannot be read passes as it is. */
function rewritten(body: Buffer, complete: (answer: Record<string, unknown>) => object): Buffer {
  try {
    const answer: unknown = JSON.parse(body.toString());
    return isObject(answer) ? Buffer.from(JSON.stringify({ ...answer, ...complete(answer) })) : body;
  } catch {
    return body;
  }
}

const usageIn = (answer: Record<string, unknown>, { isReported, owed }: Owed): object =>
  isReported || !owed ? {} : { usage: { ...(isObject(answer.usage) && answer.usage), ...usageFields(owed) } };

const entries = (list: unknown, fallback: object) =>
  (Array.isArray(list) ? list : [])
    .filter(isObject)
    .map((entry, index) => ({ index, ...fallback, ...entry }));

/** A whole chat answer in the contract's form. Almost every upstream's own bytes are, and pass. */
export function completeChat(
  body: AnswerBody,
  head: AnswerHead,
  usage: Owed,
  form: AnswerForm = CHAT_FORM,
): Buffer {
  if (usage.isReported && mentionsAll(body, HEAD_FIELDS)) return body.bytes;
  return rewritten(body.bytes, (answer) => ({
    id: answer.id ?? head.id,
    object: form.whole,
    created: answer.created ?? head.created,
    model: answer.model ?? head.model,
    choices: entries(answer.choices, { finish_reason: "stop" }),
    ...usageIn(answer, usage),
  }));
}

/**
 * An embeddings answer in the contract's form, in parts: most upstreams lack only `completion_tokens`, which goes
 * between what they wrote.
 */
export function completeEmbeddings(body: AnswerBody, model: string, usage: Owed): readonly Buffer[] {
  const whole = completeList(body, model, usage);
  const usageAt = whole.lastIndexOf('"usage"');
  if (usageAt === -1 || whole.length - usageAt > USAGE_BYTES_MAX) return [whole];
  const open = whole.indexOf("{", usageAt) + 1;
  if (open === 0 || whole.includes('"completion_tokens"', open)) return [whole];
  return [whole.subarray(0, open), NO_COMPLETION, whole.subarray(open)];
}

function completeList(body: AnswerBody, model: string, usage: Owed): Buffer {
  if (usage.isReported && mentionsAll(body, LIST_FIELDS)) return body.bytes;
  return rewritten(body.bytes, (answer) => ({
    object: "list",
    data: entries(answer.data, { object: "embedding" }),
    model: answer.model ?? model,
    ...usageIn(answer, usage),
  }));
}
