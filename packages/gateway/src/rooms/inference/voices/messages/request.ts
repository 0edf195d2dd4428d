import { isObject } from "../../../../kernel/json.ts";
import { ownThoughts } from "../../../../kernel/own-thoughts.ts";
import {
  arrayAt,
  type ChatBody,
  type ChatPart,
  type ChatTool,
  countAt,
  GATEWAY_FIELDS,
  invalid,
  objectAt,
  pick,
  requestAt,
  streamFields,
  stringAt,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";

/** Claude Code starts its prompt with this line; it differs in every conversation, which defeats prefix caches. */
const ATTRIBUTION_BLOCK = "x-anthropic-billing-header:";
/** Features that only Anthropic's servers have; silently ignoring them would mislead the client. */
const SERVER_SIDE = ["container", "mcp_servers", "thread"] as const;
const SAMPLING = ["temperature", "top_p", "top_k"] as const;

type ContentBlock = Record<string, unknown>;

export function chatBodyOfMessages(value: unknown): ChatBody {
  const { body, model } = requestAt(value);
  for (const name of SERVER_SIDE) {
    if (body[name] != null) invalid(name, "is a feature of Anthropic's own servers; leave it out here");
  }
  const tools = chatTools(body.tools);
  const gateways = pick(body, GATEWAY_FIELDS);
  const chat: ChatBody = { model, messages: chatMessages(body), ...pick(body, SAMPLING), ...gateways };
  if (body.max_tokens != null) chat.max_tokens = countAt(body.max_tokens, "max_tokens");
  if (body.stop_sequences != null) chat.stop = body.stop_sequences;
  if (tools.length > 0) Object.assign(chat, { tools }, chatToolChoice(body.tool_choice));
  if (body.output_config != null || body.output_format != null) Object.assign(chat, outputFields(body));
  if (body.stream === true) Object.assign(chat, streamFields(true));
  return chat;
}

function chatMessages(body: Record<string, unknown>) {
  const given = arrayAt(body.messages, "messages");
  if (given.length === 0) invalid("messages", "needs at least one message");
  const messages = new ChatMessages();
  messages.system(systemText(body.system ?? "", "system"));
  for (const [i, one] of given.entries()) {
    const path = `messages.${i}`;
    const message = objectAt(one, path);
    const blocks = blocksAt(message.content, `${path}.content`);
    if (message.role === "user") addUser(messages, blocks, `${path}.content`);
    else if (message.role === "assistant") addAssistant(messages, blocks, `${path}.content`);
    else if (message.role === "system") messages.system(systemText(message.content, `${path}.content`));
    else invalid(`${path}.role`, 'must be "user", "assistant" or "system"');
  }
  return messages.done();
}

function blocksAt(content: unknown, path: string): ContentBlock[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  return arrayAt(content, path).map((block, i) => objectAt(block, `${path}.${i}`));
}

function systemText(content: unknown, path: string): string {
  return blocksAt(content, path)
    .map((block, i) => stringAt(block.text, `${path}.${i}.text`))
    .filter((text) => !text.startsWith(ATTRIBUTION_BLOCK))
    .join("\n\n");
}

function addUser(messages: ChatMessages, blocks: ContentBlock[], path: string): void {
  // Results first, because they must directly follow their calls.
  for (const [i, block] of blocks.entries()) {
    if (block.type !== "tool_result") continue;
    const at = `${path}.${i}`;
    const parts = resultParts(block, at);
    messages.toolResult({ callId: stringAt(block.tool_use_id, `${at}.tool_use_id`), parts });
  }
  messages.user(
    blocks.flatMap((block, i) => (block.type === "tool_result" ? [] : userParts(block, `${path}.${i}`))),
  );
}

function resultParts(block: ContentBlock, path: string): ChatPart[] {
  const content = blocksAt(block.content ?? "", `${path}.content`);
  const parts = content.flatMap((one, i) => userParts(one, `${path}.content.${i}`));
  // Chat completions have no flag for a failed tool.
  return block.is_error === true ? [{ type: "text", text: "The tool failed:" }, ...parts] : parts;
}

function userParts(block: ContentBlock, path: string): ChatPart[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: stringAt(block.text, `${path}.text`) }];
    case "image":
      return [imagePart(objectAt(block.source, `${path}.source`), `${path}.source`)];
    case "document":
      return documentParts(block, path);
    case "search_result":
      return [
        {
          type: "text",
          text: titled(`${block.title ?? ""} ${block.source ?? ""}`, plainText(block.content)),
        },
      ];
    case "tool_reference":
      return [{ type: "text", text: `Tool: ${stringAt(block.tool_name, `${path}.tool_name`)}` }];
    default:
      return invalid(`${path}.type`, `${JSON.stringify(block.type)} blocks cannot be passed to this model`);
  }
}

function imagePart(source: ContentBlock, path: string): ChatPart {
  if (source.type === "url")
    return { type: "image_url", image_url: { url: stringAt(source.url, `${path}.url`) } };
  if (source.type !== "base64") {
    invalid(`${path}.type`, "must be base64 or url: uploaded files are not kept here");
  }
  return { type: "image_url", image_url: { url: dataUrl(source, path) } };
}

const dataUrl = (source: ContentBlock, path: string): string =>
  `data:${stringAt(source.media_type, `${path}.media_type`)};base64,${stringAt(source.data, `${path}.data`)}`;

const titled = (title: string, text: string): string => (title.trim() ? `${title.trim()}\n\n${text}` : text);

const plainText = (content: unknown): string =>
  typeof content === "string"
    ? content
    : (Array.isArray(content) ? content : [])
        .flatMap((block) => (isObject(block) && typeof block.text === "string" ? [block.text] : []))
        .join("\n");

function documentParts(block: ContentBlock, path: string): ChatPart[] {
  const source = objectAt(block.source, `${path}.source`);
  const title = typeof block.title === "string" ? block.title : "";
  switch (source.type) {
    case "text":
      return [{ type: "text", text: titled(title, stringAt(source.data, `${path}.source.data`)) }];
    case "content":
      return blocksAt(source.content, `${path}.source.content`).flatMap((one, i) =>
        userParts(one, `${path}.source.content.${i}`),
      );
    case "base64":
      return [
        {
          type: "file",
          file: { filename: title || "document.pdf", file_data: dataUrl(source, `${path}.source`) },
        },
      ];
    default:
      return invalid(
        `${path}.source.type`,
        "must be base64, text or content: documents are not fetched or kept here",
      );
  }
}

function addAssistant(messages: ChatMessages, blocks: ContentBlock[], path: string): void {
  for (const [i, block] of blocks.entries()) {
    const at = `${path}.${i}`;
    if (block.type === "text") messages.assistant(stringAt(block.text, `${at}.text`));
    else if (block.type === "thinking") {
      stringAt(block.thinking, `${at}.thinking`);
      // Only the vendor that signed them can read other thoughts.
      messages.reasoning(ownThoughts(block) ?? "");
    } else if (block.type === "tool_use") {
      messages.toolCall({
        id: stringAt(block.id, `${at}.id`),
        function: { name: stringAt(block.name, `${at}.name`), arguments: JSON.stringify(block.input ?? {}) },
      });
    } else if (block.type !== "redacted_thinking") {
      invalid(`${at}.type`, `${JSON.stringify(block.type)} blocks cannot be passed to this model`);
    }
  }
}

/** Translates `output_config`: answer schema and effort. */
function outputFields(body: Record<string, unknown>): Record<string, unknown> {
  const config = isObject(body.output_config) ? body.output_config : {};
  const format = isObject(config.format) ? config.format : body.output_format;
  return {
    ...(typeof config.effort === "string" && { reasoning_effort: config.effort }),
    ...(isObject(format) &&
      format.type === "json_schema" && {
        response_format: {
          type: "json_schema",
          json_schema: { name: "answer", schema: format.schema, strict: true },
        },
      }),
  };
}

/** How thinking blocks are sent: with text, or sealed for return only; null: not at all. */
export type Thoughts = "shown" | "sealed" | null;

export function thoughtsFor(body: unknown): Thoughts {
  const thinking = isObject(body) ? body.thinking : null;
  if (!isObject(thinking) || thinking.type === "disabled") return null;
  return thinking.display === "omitted" ? "sealed" : "shown";
}

/** Tools that the client runs. Those built into Anthropic's servers or models do not exist here. */
function chatTools(given: unknown): ChatTool[] {
  if (given == null) return [];
  return arrayAt(given, "tools").map((one, i) => {
    const tool = objectAt(one, `tools.${i}`);
    const name = stringAt(tool.name, `tools.${i}.name`);
    if (tool.type != null && tool.type !== "custom") {
      invalid(
        `tools.${i}.type`,
        `${JSON.stringify(tool.type)} is built into Anthropic's service; describe the tool with name, description and input_schema instead`,
      );
    }
    return {
      type: "function",
      function: {
        name,
        ...(typeof tool.description === "string" && { description: tool.description }),
        parameters: tool.input_schema ?? { type: "object", properties: {} },
        ...(typeof tool.strict === "boolean" && { strict: tool.strict }),
      },
    };
  });
}

const CHOICES: Record<string, string> = { auto: "auto", any: "required", none: "none" };

function chatToolChoice(choice: unknown): Record<string, unknown> {
  if (!isObject(choice)) return {};
  const parallel = choice.disable_parallel_tool_use === true ? { parallel_tool_calls: false } : {};
  if (choice.type === "tool") {
    const name = stringAt(choice.name, "tool_choice.name");
    return { tool_choice: { type: "function", function: { name } }, ...parallel };
  }
  const mapped =
    CHOICES[String(choice.type)] ?? invalid("tool_choice.type", "must be auto, any, tool or none");
  return { tool_choice: mapped, ...parallel };
}
