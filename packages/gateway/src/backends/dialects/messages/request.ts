import {
  type AssistantTurn,
  afterSystem,
  answerSchema,
  argumentsObject,
  type ChatPart,
  chatFunctions,
  chatToolChoice,
  chatTurns,
  copied,
  inlineData,
  outputLimit,
  PENALTIES,
  refuse,
  refuseUnsupported,
  type TextPart,
  textOfParts,
  UNSUPPORTED,
  wantsAnyJson,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";

type Block = Record<string, unknown>;
interface Message {
  role: "user" | "assistant";
  content: Block[];
}

/** The API wants a limit. Models before Claude 4 refuse more than 8,192. */
const OUTPUT_TOKENS_USUAL = 32_000;
const OUTPUT_TOKENS_OLDER = 8_192;
const OLDER_MODEL = /claude-(3|2|instant)/i;
export const usualOutputTokens = (model: string): number =>
  OLDER_MODEL.test(model) ? OUTPUT_TOKENS_OLDER : OUTPUT_TOKENS_USUAL;
/** Models that think by a budget; later ones refuse it, and are told an effort instead. */
const BUDGETED_MODEL = /claude-(3-7|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$)/i;
/** Claude models that take temperature and the like; later ones refuse them. */
const SAMPLED_MODEL = /claude-(3|2|instant|(opus|sonnet|haiku)-4(-[0-6]\b|-\d{8}|@|$))/i;
const isSampled = (model: string): boolean => !/claude/i.test(model) || SAMPLED_MODEL.test(model);
/** Models that cannot be told not to think. */
const ALWAYS_THINKING_MODEL = /claude-(fable|mythos|opus-5-[5-9])/i;
const BUDGETS: Readonly<Record<string, number>> = { minimal: 1_024, low: 2_048, medium: 8_192, high: 16_384 };
const BUDGET_MOST = 24_576;

/** Fields of the Messages API that clients give in a chat request. */
const OWN_FIELDS = ["thinking", "context_management"] as const;
const SAMPLING_FIELDS = ["temperature", "top_p", "top_k"] as const;
const EPHEMERAL = { type: "ephemeral" };

export function messagesRequest(
  body: Record<string, unknown>,
  { model, stream, kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  refuseUnsupported(body, { ...UNSUPPORTED, ...PENALTIES });
  if (wantsAnyJson(body))
    refuse("response_format", "must be json_schema on this backend's API: it has no json_object");
  const opened = afterSystem(chatTurns(body.messages));
  const system = opened.system.map(textBlock);
  const messages = new Messages();
  /** Of the calls whose results are new. */
  let isReasoningKnown = true;
  for (const turn of opened.rest) {
    if (turn.role === "system") messages.add("user", turn.parts.map(textBlock));
    else if (turn.role === "user") messages.add("user", turn.parts.map(userBlock));
    else if (turn.role === "tool") messages.add("user", [resultBlock(turn.callId, turn.parts)]);
    else {
      const known = kept(turn) as Block[] | null;
      isReasoningKnown = known !== null || turn.calls.length === 0;
      messages.add("assistant", known ?? assistantBlocks(turn));
    }
  }
  const tools = chatFunctions(body.tools).map(({ name, description, parameters, cacheControl }) => ({
    name,
    ...(description !== undefined && { description }),
    input_schema: parameters,
    ...(cacheControl !== undefined && { cache_control: cacheControl }),
  }));
  const request: Record<string, unknown> = {
    model,
    max_tokens: outputLimit(body) ?? usualOutputTokens(model),
    ...(system.length > 0 && { system }),
    messages: messages.list,
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
  // A call whose thinking is no longer known is refused unless thinking is off.
  else if (wantsThinking && !ALWAYS_THINKING_MODEL.test(model)) request.thinking = { type: "disabled" };
  const schema = answerSchema(body);
  if (schema)
    request.output_config = {
      ...(request.output_config as object | undefined),
      format: { type: "json_schema", schema: schema.schema },
    };
  if (tools.length > 0 || messages.list.some(({ role }) => role === "assistant"))
    markPrefix(system, tools, messages.list);
  return request;
}

class Messages {
  readonly list: Message[] = [];

  /** Blocks of the same side go into one message, which is how the API reads them anyway. */
  add(role: Message["role"], blocks: readonly Block[]): void {
    if (blocks.length === 0) return;
    const last = this.list.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else this.list.push({ role, content: [...blocks] });
  }
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

/** The API takes no other characters; ids of other vendors may have them. */
const idOf = (id: string): string => id.replace(/[^\w-]/g, "_");

function toolChoice(body: Record<string, unknown>): Record<string, unknown> {
  const choice = chatToolChoice(body.tool_choice);
  const alone = body.parallel_tool_calls === false ? { disable_parallel_tool_use: true } : {};
  if (choice === null)
    return body.parallel_tool_calls === false ? { tool_choice: { type: "auto", ...alone } } : {};
  if (choice === "none") return { tool_choice: { type: "none" } };
  if (typeof choice === "object") return { tool_choice: { type: "tool", name: choice.name, ...alone } };
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
  // What is left of the limit is for the answer; a smaller limit leaves no room to think.
  if (Number(limit) <= budget)
    return Number(limit) > 2 * 1_024 ? { thinking: { type: "enabled", budget_tokens: 1_024 } } : {};
  return { thinking: { type: "enabled", budget_tokens: budget } };
}

/** The API caches nothing without marks. A session's prompt is marked where it will be read again, unless its client did. */
function markPrefix(system: Block[], tools: Block[], messages: readonly Message[]): void {
  const all = [...system, ...tools, ...messages.flatMap(({ content }) => content)];
  if (all.some((block) => block.cache_control !== undefined)) return;
  const fixed = system.at(-1) ?? tools.at(-1);
  if (fixed) fixed.cache_control = EPHEMERAL;
  const newest = messages.at(-1);
  if (newest?.role === "user") newest.content.at(-1)!.cache_control = EPHEMERAL;
}
