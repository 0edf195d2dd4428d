import { isObject } from "../../../../kernel/json.ts";
import { ownThoughts } from "../../../../kernel/own-thoughts.ts";
import {
  type ChatBody,
  type ChatPart,
  type ChatTool,
  chatTool,
  dataUrl,
  functionChoice,
  GATEWAY_FIELDS,
  imagePart,
  schemaFormat,
  streamFields,
  textPart,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";
import { Given, textsIn } from "../given.ts";

/** Claude Code starts its prompt with this line; it differs in every conversation, which defeats prefix caches. */
const ATTRIBUTION_BLOCK = "x-anthropic-billing-header:";
/** Features that only Anthropic's servers have; silently ignoring them would mislead the client. */
const SERVER_SIDE = ["container", "mcp_servers", "thread"] as const;
const PASSED = ["temperature", "top_p", "top_k", ...GATEWAY_FIELDS] as const;

export function chatBodyOfMessages(value: unknown): ChatBody {
  const { body, model } = Given.request(value);
  const { fields } = body;
  for (const name of SERVER_SIDE)
    if (fields[name] != null) body.refuse(name, "is a feature of Anthropic's own servers; leave it out here");
  const tools = body.objectsIfAny("tools").map(toolOf);
  const chat: ChatBody = { model, messages: chatMessages(body), ...body.pick(PASSED) };
  if (fields.max_tokens != null) chat.max_tokens = body.count("max_tokens");
  if (fields.stop_sequences != null) chat.stop = fields.stop_sequences;
  if (tools.length > 0) Object.assign(chat, { tools }, toolChoice(body));
  return Object.assign(chat, outputFields(fields), streamFields(fields.stream));
}

function chatMessages(body: Given) {
  const given = body.objects("messages");
  if (given.length === 0) body.refuse("messages", "needs at least one message");
  const messages = new ChatMessages();
  if (body.fields.system != null) messages.system(systemText(blocksIn(body, "system")));
  for (const message of given) {
    const { role } = message.fields;
    const blocks = blocksIn(message, "content");
    if (role === "user") addUser(messages, blocks);
    else if (role === "assistant") addAssistant(messages, blocks);
    else if (role === "system") messages.system(systemText(blocks));
    else message.refuse("role", 'must be "user", "assistant" or "system"');
  }
  return messages.done();
}

/** The blocks of a field that may also be a text. */
function blocksIn(given: Given, name: string): Given[] {
  const text = given.fields[name];
  if (typeof text !== "string") return given.objects(name);
  return text === "" ? [] : [new Given({ type: "text", text })];
}

const systemText = (blocks: readonly Given[]): string =>
  blocks
    .map((block) => block.string("text"))
    .filter((text) => !text.startsWith(ATTRIBUTION_BLOCK))
    .join("\n\n");

function addUser(messages: ChatMessages, blocks: readonly Given[]): void {
  const isResult = ({ fields }: Given) => fields.type === "tool_result";
  // Results first, because they must directly follow their calls.
  for (const block of blocks.filter(isResult))
    messages.toolResult({ callId: block.string("tool_use_id"), parts: resultParts(block) });
  messages.user(blocks.filter((block) => !isResult(block)).flatMap(userParts));
}

function resultParts(block: Given): ChatPart[] {
  const { content, is_error } = block.fields;
  const parts = content == null ? [] : blocksIn(block, "content").flatMap(userParts);
  // Chat completions have no flag for a failed tool.
  return is_error === true ? [textPart("The tool failed:"), ...parts] : parts;
}

function userParts(block: Given): ChatPart[] {
  const { type, title, source, content } = block.fields;
  switch (type) {
    case "text":
      return [textPart(block.string("text"))];
    case "image":
      return [imagePart(imageUrl(block.object("source")))];
    case "document":
      return documentParts(block.object("source"), typeof title === "string" ? title : "");
    case "search_result": {
      const text = typeof content === "string" ? content : textsIn(content);
      return [textPart(titled(`${title ?? ""} ${source ?? ""}`, text))];
    }
    case "tool_reference":
      return [textPart(`Tool: ${block.string("tool_name")}`)];
    default:
      return refuseBlock(block);
  }
}

const refuseBlock = (block: Given): never =>
  block.refuse("type", `${JSON.stringify(block.fields.type)} blocks cannot be passed to this model`);

function imageUrl(source: Given): string {
  const { type } = source.fields;
  if (type === "url") return source.string("url");
  if (type === "base64") return sourceUrl(source);
  return source.refuse("type", "must be base64 or url: uploaded files are not kept here");
}

const sourceUrl = (source: Given): string => dataUrl(source.string("media_type"), source.string("data"));

const titled = (title: string, text: string): string => (title.trim() ? `${title.trim()}\n\n${text}` : text);

function documentParts(source: Given, title: string): ChatPart[] {
  switch (source.fields.type) {
    case "text":
      return [textPart(titled(title, source.string("data")))];
    case "content":
      return blocksIn(source, "content").flatMap(userParts);
    case "base64":
      return [{ type: "file", file: { filename: title || "document.pdf", file_data: sourceUrl(source) } }];
    default:
      return source.refuse("type", "must be base64, text or content: documents are not fetched or kept here");
  }
}

function addAssistant(messages: ChatMessages, blocks: readonly Given[]): void {
  for (const block of blocks) {
    const { type, input } = block.fields;
    if (type === "text") messages.assistant(block.string("text"));
    else if (type === "thinking") {
      block.string("thinking");
      // Only the vendor that signed them can read other thoughts.
      messages.reasoning(ownThoughts(block.fields) ?? "");
    } else if (type === "tool_use") {
      const [id, name] = [block.string("id"), block.string("name")];
      messages.toolCall({ id, name, arguments: JSON.stringify(input ?? {}) });
    } else if (type !== "redacted_thinking") refuseBlock(block);
  }
}

/** Translates `output_config`: answer schema and effort. */
function outputFields({ output_config, output_format }: Given["fields"]): Record<string, unknown> {
  const config = isObject(output_config) ? output_config : {};
  const format = isObject(config.format) ? config.format : output_format;
  return {
    ...(typeof config.effort === "string" && { reasoning_effort: config.effort }),
    ...(isObject(format) &&
      format.type === "json_schema" &&
      schemaFormat({ name: "answer", schema: format.schema, strict: true })),
  };
}

/** How thinking blocks are sent: with text, or sealed for return only; null: not at all. */
export type Thoughts = "shown" | "sealed" | null;

export function thoughtsFor(body: unknown): Thoughts {
  const thinking = isObject(body) ? body.thinking : null;
  if (!isObject(thinking) || thinking.type === "disabled") return null;
  return thinking.display === "omitted" ? "sealed" : "shown";
}

/** A tool that the client runs. Those built into Anthropic's servers or models do not exist here. */
function toolOf(tool: Given): ChatTool {
  const { type, description, input_schema, strict } = tool.fields;
  const name = tool.string("name");
  if (type != null && type !== "custom")
    tool.refuse(
      "type",
      `${JSON.stringify(type)} is built into Anthropic's service; describe the tool with name, description and input_schema instead`,
    );
  return chatTool(name, { description, parameters: input_schema, strict });
}

const CHOICES: Record<string, string> = { auto: "auto", any: "required", none: "none" };

function toolChoice({ fields }: Given): Record<string, unknown> {
  if (!isObject(fields.tool_choice)) return {};
  const choice = new Given(fields.tool_choice, "tool_choice");
  const { type, disable_parallel_tool_use } = choice.fields;
  const tool_choice =
    type === "tool"
      ? functionChoice(choice.string("name"))
      : (CHOICES[String(type)] ?? choice.refuse("type", "must be auto, any, tool or none"));
  return { tool_choice, ...(disable_parallel_tool_use === true && { parallel_tool_calls: false }) };
}
