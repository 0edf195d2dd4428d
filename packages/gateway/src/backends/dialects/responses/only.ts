import { isObject } from "../../../kernel/json.ts";
import type { JsonBody } from "../../contract.ts";

/** Models that have no chat completions at all. */
const NO_CHAT =
  /(^|[/:])(o1-pro|o3-pro|gpt-5(\.\d+)?-pro|gpt-5(\.\d+)?-codex|gpt-5\.6-cyber|[\w.-]*deep-research)/i;
/** Since gpt-5.4, chat completions refuse tools together with an effort; since 5.6 without one as well. */
const NO_TOOLS_WITH_EFFORT = /(^|[/:])gpt-(5\.[45])([.-]|$)/i;
const NO_TOOLS = /(^|[/:])gpt-(5\.[6-9]|[6-9]|\d\d)/i;

/** Models that think. By chats they refuse what other APIs' clients set (temperature, `max_tokens`), and hide their thoughts. */
export const THINKING_MODEL = /(^|[/:])(o\d|gpt-([5-9]|\d\d))(?!.*chat)/i;

/** Whether OpenAI takes this chat by Responses only, or better so. */
export function isForResponses(model: string, body: JsonBody): boolean {
  if (NO_CHAT.test(model) || (body.isMade && THINKING_MODEL.test(model))) return true;
  if (!NO_TOOLS.test(model) && !NO_TOOLS_WITH_EFFORT.test(model)) return false;
  const { tools, reasoning_effort: effort } = body.object();
  if (!Array.isArray(tools) || tools.length === 0 || !tools.every(isObject)) return false;
  return NO_TOOLS.test(model) ? effort !== "none" : effort != null && effort !== "none";
}
