import { isObject } from "../../../kernel/json.ts";

export interface MessagesProblem {
  field: string;
  expected: string;
}

const ROLES: ReadonlySet<unknown> = new Set(["user", "assistant", "system", "developer", "tool", "function"]);
const ROLES_TEXT = "must be user, assistant, system, developer or tool";
const LIST_FIELDS = ["images", "tool_calls"] as const;

/** What is wrong with a list of messages, by the rules that hold on every surface; null where nothing is. */
export function problemOfMessages(messages: unknown): MessagesProblem | null {
  if (!Array.isArray(messages)) return null;
  for (const [i, message] of messages.entries()) {
    const problem = problemOf(message, `messages.${i}`);
    if (problem) return problem;
  }
  return null;
}

function problemOf(message: unknown, field: string): MessagesProblem | null {
  if (!isObject(message)) return { field, expected: "must be an object: {role, content}" };
  const { role, content, images } = message;
  if (!ROLES.has(role)) return { field: `${field}.role`, expected: ROLES_TEXT };
  for (const name of LIST_FIELDS) {
    const value = message[name];
    if (value != null && !Array.isArray(value))
      return { field: `${field}.${name}`, expected: "must be an array" };
  }
  // An answer may consist of calls alone, and a question of images.
  const isOptional = role === "assistant" || images != null;
  const isFine = typeof content === "string" || Array.isArray(content) || (content == null && isOptional);
  return isFine ? null : { field: `${field}.content`, expected: "is required: a text or an array of parts" };
}
