import { isObject } from "../../../../kernel/json.ts";
import { thoughtsIn } from "../../../../kernel/own-thoughts.ts";
import {
  arrayAt,
  type ChatBody,
  type ChatMessage,
  type ChatPart,
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
import type { OutputItem } from "./response.ts";
import { type ClientTool, chatToolFields, chatToolName, readTools } from "./tools.ts";

interface ConvertedRequest {
  chat: ChatBody;
  clientTools: Map<string, ClientTool>;
  /** Tool and item types that were left out. */
  dropped: ReadonlySet<string>;
}

const NO_STATE =
  "items are not kept on their own: use `previous_response_id`, or send the whole conversation";
/** Fields that rely on state on OpenAI's servers. */
const SERVER_SIDE: Record<string, string> = {
  conversation: NO_STATE,
  prompt: "stored prompts are not kept here: send the text in `instructions` and `input`",
};
const PASSED = "temperature top_p user prompt_cache_key safety_identifier service_tier".split(" ");

function requireNoServerState(value: (name: string) => unknown): void {
  for (const name in SERVER_SIDE) if (value(name) != null) invalid(name, SERVER_SIDE[name]!);
  if ((value("background") ?? false) !== false)
    invalid("background", "background responses are not kept here; stream instead");
}

/** Refuses references to state on a vendor's servers, which all of the operator's users share. */
export function requireOwnState(payload: { value(name: string): unknown }): void {
  requireNoServerState((name) => payload.value(name));
  const input = payload.value("input");
  if (!Array.isArray(input)) return;
  // An item with only an id is a reference, too.
  const isReference = ({ type, role }: Record<string, unknown>) =>
    type === "item_reference" || (type == null && role == null);
  const at = input.findIndex((item) => isObject(item) && isReference(item));
  if (at !== -1) invalid(`input.${at}`, NO_STATE);
}

export function chatBodyOfResponses(value: unknown, history: readonly StoredTurn[] = []): ConvertedRequest {
  const { body, model } = requestAt(value);
  requireNoServerState((name) => body[name]);
  const naming = readTools(
    body.tools,
    [...history, body].map(({ input }) => input),
  );
  const dropped = new Set(naming.dropped);
  const tools = chatToolFields(naming, body.tool_choice);
  const chat: ChatBody = {
    model,
    messages: chatMessages(body, dropped, history),
    ...pick(body, PASSED),
    ...pick(body, GATEWAY_FIELDS),
  };
  if (body.max_output_tokens != null) chat.max_tokens = countAt(body.max_output_tokens, "max_output_tokens");
  if (tools) Object.assign(chat, tools, pick(body, ["parallel_tool_calls"]));
  if (body.text != null || body.reasoning != null) Object.assign(chat, outputFields(body));
  if (body.stream === true) Object.assign(chat, streamFields(true));
  return { chat, clientTools: naming.clientTools, dropped };
}

function outputFields({ text, reasoning }: Record<string, unknown>): Record<string, unknown> {
  const effort = isObject(reasoning) ? reasoning.effort : null;
  const config = isObject(text) ? text : {};
  const format = isObject(config.format) ? config.format : {};
  return {
    ...(typeof effort === "string" && { reasoning_effort: effort }),
    ...(typeof config.verbosity === "string" && { verbosity: config.verbosity }),
    ...(format.type === "json_object" && { response_format: { type: "json_object" } }),
    ...(format.type === "json_schema" && {
      response_format: {
        type: "json_schema",
        json_schema: pick(format, ["name", "description", "schema", "strict"]),
      },
    }),
  };
}

const INPUT_NEEDED = "is required: a text, or a list of items";

export interface WholeTurn {
  input: unknown;
  response: {
    id: string;
    object: "response";
    status: string;
    output: OutputItem[];
    [field: string]: unknown;
  };
}
export interface StoredTurn {
  id: string;
  input: unknown;
  output: OutputItem[];
}

/** The messages of a turn, without its instructions, which do not carry over to the next. */
export function messagesOfTurn(turn: StoredTurn): ChatMessage[] {
  const messages = new ChatMessages();
  addTurn(messages, turn);
  return messages.done();
}

function addTurn(messages: ChatMessages, { input, output }: StoredTurn): void {
  addInput(messages, input, new Set());
  const said = output.filter(({ type }) => type !== "reasoning");
  addInput(messages, said, new Set());
}

function chatMessages(
  body: Record<string, unknown>,
  dropped: Set<string>,
  history: readonly StoredTurn[],
): ChatMessage[] {
  const messages = new ChatMessages();
  const { instructions, input } = body;
  if (instructions != null) messages.system(stringAt(instructions, "instructions"));
  for (const turn of history) addTurn(messages, turn);
  addInput(messages, input, dropped);
  const done = messages.done();
  if (done.length === 0) invalid("input", INPUT_NEEDED);
  return done;
}

function addInput(messages: ChatMessages, input: unknown, dropped: Set<string>): void {
  if (typeof input === "string") messages.user([{ type: "text", text: input }]);
  else if (Array.isArray(input)) {
    for (const [i, item] of input.entries()) {
      addItem(messages, { item: objectAt(item, `input.${i}`), path: `input.${i}`, dropped });
    }
  } else invalid("input", INPUT_NEEDED);
}

function addItem(
  messages: ChatMessages,
  { item, path, dropped }: { item: Record<string, unknown>; path: string; dropped: Set<string> },
): void {
  switch (item.type ?? "message") {
    case "message":
      addMessage(messages, item, path);
      break;
    case "function_call":
      messages.toolCall(callAt(item, path, stringAt(item.arguments, `${path}.arguments`) || "{}"));
      break;
    case "custom_tool_call":
      messages.toolCall(callAt(item, path, JSON.stringify({ input: stringAt(item.input, `${path}.input`) })));
      break;
    case "function_call_output":
    case "custom_tool_call_output":
      messages.toolResult({
        callId: stringAt(item.call_id, `${path}.call_id`),
        parts: partsAt(item.output, `${path}.output`),
      });
      break;
    case "reasoning":
      messages.reasoning(thoughtsOf(item));
      break;
    case "additional_tools":
      break;
    case "item_reference":
      invalid(path, NO_STATE);
      break;
    case "compaction":
      invalid(path, "compacted history is sealed by OpenAI's servers; send the items themselves");
      break;
    default:
      dropped.add(stringAt(item.type, `${path}.type`));
  }
}

const callAt = (item: Record<string, unknown>, path: string, args: string) => ({
  id: stringAt(item.call_id, `${path}.call_id`),
  function: { name: chatToolName(stringAt(item.name, `${path}.name`), item.namespace), arguments: args },
});

/** Reasoning that any model may read. The summary of reasoning sealed by a vendor is left out. */
const thoughtsOf = ({ content, summary, encrypted_content: sealed }: Record<string, unknown>): string =>
  reasoningText(content) || (thoughtsIn(sealed) ?? (sealed == null ? reasoningText(summary) : ""));

/** Readable reasoning; only its vendor can read `encrypted_content`. */
const reasoningText = (content: unknown): string =>
  (Array.isArray(content) ? content : [])
    .flatMap((part) => (isObject(part) && typeof part.text === "string" ? [part.text] : []))
    .join("\n");

function addMessage(messages: ChatMessages, item: Record<string, unknown>, path: string): void {
  const parts = partsAt(item.content, `${path}.content`);
  if (item.role === "user") {
    messages.user(parts);
    return;
  }
  const texts = parts.map((part, i) =>
    part.type === "text"
      ? part.text
      : invalid(`${path}.content.${i}`, `a ${item.role} message holds only text`),
  );
  const text = texts.join("\n\n");
  if (item.role === "assistant") messages.assistant(text);
  else if (item.role === "system" || item.role === "developer") messages.system(text);
  else invalid(`${path}.role`, 'must be "user", "assistant", "system" or "developer"');
}

function partsAt(content: unknown, path: string): ChatPart[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  return arrayAt(content, path).map((one, i) => partAt(objectAt(one, `${path}.${i}`), `${path}.${i}`));
}

function partAt(part: Record<string, unknown>, path: string): ChatPart {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "text":
      return { type: "text", text: stringAt(part.text, `${path}.text`) };
    case "refusal":
      return { type: "text", text: stringAt(part.refusal, `${path}.refusal`) };
    case "input_image":
      if (part.image_url == null) invalid(path, "needs image_url: uploaded files are not kept here");
      return {
        type: "image_url",
        image_url: {
          url: stringAt(part.image_url, `${path}.image_url`),
          ...(typeof part.detail === "string" && { detail: part.detail }),
        },
      };
    case "input_file":
      if (part.file_data == null) invalid(path, "needs file_data: files are not fetched or kept here");
      return {
        type: "file",
        file: {
          file_data: stringAt(part.file_data, `${path}.file_data`),
          ...(typeof part.filename === "string" && { filename: part.filename }),
        },
      };
    case "input_audio":
      return { type: "input_audio", input_audio: part.input_audio };
    default:
      return invalid(`${path}.type`, `${JSON.stringify(part.type)} parts cannot be passed to this model`);
  }
}
