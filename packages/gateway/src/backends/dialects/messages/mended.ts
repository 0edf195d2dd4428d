import { isObject } from "../../../kernel/json.ts";
import { OWN_SIGNATURES, ownThoughts } from "../../../kernel/own-thoughts.ts";
import type { NativeDialect } from "../../contract.ts";

const isOwn = (block: unknown): boolean =>
  isObject(block) && block.type === "thinking" && ownThoughts(block) !== null;
const isOfType = (block: unknown, type: string): boolean => isObject(block) && block.type === type;

/** Thinking of other models is left out. */
export const mended: NativeDialect["mended"] = (body) => {
  if (!body.includes('"signature"') || !OWN_SIGNATURES.some((text) => body.includes(text))) return [];
  const given = body.value("messages");
  if (!Array.isArray(given)) return [];
  const messages = given.flatMap((message) => {
    if (!isObject(message) || !Array.isArray(message.content) || !message.content.some(isOwn))
      return [message];
    const content = message.content.filter((block) => !isOwn(block));
    return content.length > 0 ? [{ ...message, content }] : [];
  });
  const thinking = body.value("thinking");
  const newest: unknown = messages.findLast((message) => isObject(message) && message.role === "assistant");
  const blocks = isObject(newest) && Array.isArray(newest.content) ? newest.content : [];
  // With a budget, the calls whose results are new must come with the thoughts that led to them.
  const isRefused =
    isOfType(thinking, "enabled") &&
    blocks.some((block) => isOfType(block, "tool_use")) &&
    !isOfType(blocks[0], "thinking") &&
    !isOfType(blocks[0], "redacted_thinking");
  return [
    ["messages", JSON.stringify(messages)],
    ...(isRefused ? [["thinking", '{"type":"disabled"}'] as const] : []),
  ];
};
