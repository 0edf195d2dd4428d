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
  if (!Array.isArray(messages) || messages.length === 0)
    return {
      field: "messages",
      expected: "is required: an array of {role, content} with at least one entry",
    };
  for (let i = 0; i < messages.length; i++) {
    const problem = problemOf(messages[i], i);
    if (problem) return problem;
  }
  return null;
}

function problemOf(message: unknown, i: number): MessagesProblem | null {
  if (!isObject(message)) return { field: `messages.${i}`, expected: "must be an object: {role, content}" };
  const { role, content, images } = message;
  if (!ROLES.has(role)) return { field: `messages.${i}.role`, expected: ROLES_TEXT };
  for (const name of LIST_FIELDS) {
    const value = message[name];
    if (value != null && !Array.isArray(value))
      return { field: `messages.${i}.${name}`, expected: "must be an array" };
  }
  // An answer may consist of calls alone, and a question of images.
  const isOptional = role === "assistant" || images != null;
  if (typeof content === "string" || Array.isArray(content) || (content == null && isOptional)) return null;
  return { field: `messages.${i}.content`, expected: "is required: a text or an array of parts" };
}

const MEDIA_KEYS = ["image_url", "input_audio", "audio_url", "video_url", "input_video", "file"] as const;

export const mayHaveMedia = (messages: unknown): boolean =>
  Array.isArray(messages) && messages.some((message) => isObject(message) && hasMedia(message));

const hasMedia = ({ content, images }: Record<string, unknown>): boolean =>
  images !== undefined ||
  (Array.isArray(content) && content.some((part) => isObject(part) && MEDIA_KEYS.some((key) => key in part)));
