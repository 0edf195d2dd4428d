import { isObject } from "../../../kernel/json.ts";
import { OWN_SIGNATURES, ownThoughts } from "../../../kernel/own-thoughts.ts";
import type { NativeDialect } from "../../contract.ts";
import {
  type AssistantTurn,
  afterSystem,
  argumentsObject,
  type ChatPart,
  chatToolChoice,
  copied,
  inlineData,
  PENALTIES,
  readChat,
  refuse,
  type TextPart,
  textOfParts,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";

type Block = Record<string, unknown>;
interface Message {
  role: "user" | "assistant";
  content: Block[];
}

/** The API requires a limit. Models before Claude 4 refuse more than 8,192. */
const OUTPUT_TOKENS_USUAL = 32_000;
const OUTPUT_TOKENS_OLDER = 8_192;
const OLDER_MODEL = /claude-(3|2|instant)/i;
export const usualOutputTokens = (model: string): number =>
  OLDER_MODEL.test(model) ? OUTPUT_TOKENS_OLDER : OUTPUT_TOKENS_USUAL;
/** Models that take a thinking budget; later ones refuse it and take an effort instead. */
const BUDGETED_MODEL = /claude-(3-7|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$)/i;
/** Claude models that take sampling fields; later ones refuse them. */
const SAMPLED_MODEL = /claude-(3|2|instant|(opus|sonnet|haiku)-4(-[0-6]\b|-\d{8}|@|$))/i;
const isSampled = (model: string): boolean => !/claude/i.test(model) || SAMPLED_MODEL.test(model);
/** Models whose thinking cannot be turned off. */
const ALWAYS_THINKING_MODEL = /claude-(fable|mythos|opus-5-[5-9])/i;
const BUDGETS: Readonly<Record<string, number>> = { minimal: 1_024, low: 2_048, medium: 8_192, high: 16_384 };
const BUDGET_MOST = 24_576;

/** Fields of the Messages API that clients may set in a chat request. */
const OWN_FIELDS = ["thinking", "context_management"] as const;
const SAMPLING_FIELDS = ["temperature", "top_p", "top_k"] as const;
const EPHEMERAL = { type: "ephemeral" };

export function messagesRequest(
  body: Record<string, unknown>,
  { model, stream, kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  const { turns, functions, limit, schema, wantsAnyJson } = readChat(body, PENALTIES);
  if (wantsAnyJson)
    refuse("response_format", "must be json_schema on this backend's API: it has no json_object");
  const opened = afterSystem(turns);
  const system = opened.system.map(textBlock);
  const messages: Message[] = [];
  const add = (role: Message["role"], blocks: readonly Block[]) => {
    const last = messages.at(-1);
    if (blocks.length === 0) return;
    if (last?.role === role) last.content.push(...blocks);
    else messages.push({ role, content: [...blocks] });
  };
  /** Whether we still have the thinking that led to the newest calls. */
  let isReasoningKnown = true;
  for (const turn of opened.rest) {
    if (turn.role === "system") add("user", turn.parts.map(textBlock));
    else if (turn.role === "user") add("user", turn.parts.map(userBlock));
    else if (turn.role === "tool") add("user", [resultBlock(turn.callId, turn.parts)]);
    else {
      const known = kept(turn) as Block[] | null;
      isReasoningKnown = known !== null || turn.calls.length === 0;
      add("assistant", known ?? assistantBlocks(turn));
    }
  }
  const tools = functions.map(({ name, description, parameters, cacheControl }) => ({
    name,
    ...(description !== undefined && { description }),
    input_schema: parameters,
    ...(cacheControl !== undefined && { cache_control: cacheControl }),
  }));
  const request: Record<string, unknown> = {
    model,
    max_tokens: limit ?? usualOutputTokens(model),
    ...(system.length > 0 && { system }),
    messages,
    ...(tools.length > 0 && { tools, ...toolChoice(body) }),
    ...copied(body, OWN_FIELDS),
    ...(isSampled(model) && copied(body, SAMPLING_FIELDS)),
    ...(body.stop != null && { stop_sequences: Array.isArray(body.stop) ? body.stop : [body.stop] }),
    ...(typeof body.user === "string" && { metadata: { user_id: body.user } }),
    ...(stream && { stream: true }),
  };
  const thinking = thinkingFields(body, request, wantsThoughts);
  const wantsThinking = request.thinking !== undefined || thinking.thinking !== undefined;
  if (isReasoningKnown) Object.assign(request, thinking);
  // The API refuses calls without their thinking, unless thinking is off.
  else if (wantsThinking && !ALWAYS_THINKING_MODEL.test(model)) request.thinking = { type: "disabled" };
  if (schema)
    request.output_config = {
      ...(request.output_config as object | undefined),
      format: { type: "json_schema", schema: schema.schema },
    };
  if (tools.length > 0 || messages.some(({ role }) => role === "assistant"))
    markPrefix(system, tools, messages);
  return request;
}

const textBlock = ({ text, cacheControl }: TextPart): Block => ({
  type: "text",
  text,
  ...(cacheControl !== undefined && { cache_control: cacheControl }),
});

function userBlock(part: ChatPart): Block {
  if (part.type === "text") return textBlock(part);
  if (part.type === "audio") return refuse("input_audio", "cannot be passed to this backend's API");
  const data = inlineData(part.url);
  const source = data
    ? { type: "base64", media_type: data.mimeType, data: data.data }
    : { type: "url", url: part.url };
  if (part.type === "image") return { type: "image", source };
  return { type: "document", source, ...(part.filename !== undefined && { title: part.filename }) };
}

function resultBlock(callId: string, parts: readonly ChatPart[]): Block {
  const isPlain = parts.every((part) => part.type === "text");
  const content = isPlain ? textOfParts(parts) : parts.map(userBlock);
  return { type: "tool_result", tool_use_id: idOf(callId), content };
}

const assistantBlocks = ({ text, calls }: AssistantTurn): Block[] => [
  ...(text.trim() === "" ? [] : [{ type: "text", text: text.trimEnd() }]),
  ...calls.map((call) => ({
    type: "tool_use",
    id: idOf(call.id),
    name: call.name,
    input: argumentsObject(call),
  })),
];

/** Ids of other vendors may have characters that the API refuses. */
const idOf = (id: string): string => id.replace(/[^\w-]/g, "_");

function toolChoice(body: Record<string, unknown>): Record<string, unknown> {
  const choice = chatToolChoice(body.tool_choice);
  const alone = body.parallel_tool_calls === false ? { disable_parallel_tool_use: true } : {};
  if (choice === null && body.parallel_tool_calls !== false) return {};
  if (choice === "none") return { tool_choice: { type: "none" } };
  if (choice !== null && typeof choice === "object")
    return { tool_choice: { type: "tool", name: choice.name, ...alone } };
  return { tool_choice: { type: choice === "required" ? "any" : "auto", ...alone } };
}

function thinkingFields(
  { reasoning_effort: effort }: Record<string, unknown>,
  { model, thinking, max_tokens: limit }: Record<string, unknown>,
  wantsThoughts?: boolean,
): Record<string, unknown> {
  const isEffort = typeof effort === "string";
  if (thinking !== undefined || !(isEffort || wantsThoughts)) return {};
  if (effort === "none") return { thinking: { type: "disabled" } };
  const isBudgeted = BUDGETED_MODEL.test(String(model));
  if (!isBudgeted && OLDER_MODEL.test(String(model))) return {};
  if (!isBudgeted)
    return {
      thinking: { type: "adaptive", display: "summarized" },
      ...(isEffort && { output_config: { effort: effort === "minimal" ? "low" : effort } }),
    };
  const budget = isEffort ? (BUDGETS[effort] ?? BUDGET_MOST) : BUDGETS.medium!;
  // The budget is part of the limit; a small limit leaves no room to think.
  if (Number(limit) <= budget)
    return Number(limit) > 2 * 1_024 ? { thinking: { type: "enabled", budget_tokens: 1_024 } } : {};
  return { thinking: { type: "enabled", budget_tokens: budget } };
}

/** The API caches only marked prefixes. Marks the prompt of a conversation, unless the client has marked it. */
function markPrefix(system: Block[], tools: Block[], messages: readonly Message[]): void {
  const all = [...system, ...tools, ...messages.flatMap(({ content }) => content)];
  if (all.some((block) => block.cache_control !== undefined)) return;
  const fixed = system.at(-1) ?? tools.at(-1);
  if (fixed) fixed.cache_control = EPHEMERAL;
  const newest = messages.at(-1);
  if (newest?.role === "user") newest.content.at(-1)!.cache_control = EPHEMERAL;
}

const isOwn = (block: unknown): boolean =>
  isObject(block) && block.type === "thinking" && ownThoughts(block) !== null;
const isOfType = (block: unknown, type: string): boolean => isObject(block) && block.type === type;

/** Removes the thinking of other models. */
export const mendedMessages: NativeDialect["mended"] = (body) => {
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
  // With a thinking budget, the newest calls must come with the thinking that led to them.
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
