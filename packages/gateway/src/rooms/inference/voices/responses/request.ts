import { isObject } from "../../../../kernel/json.ts";
import { thoughtsIn } from "../../../../kernel/own-thoughts.ts";
import {
  type ChatBody,
  type ChatMessage,
  type ChatPart,
  GATEWAY_FIELDS,
  schemaFormat,
  streamFields,
  textPart,
  textParts,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";
import { Given, invalid, pick, textsIn } from "../given.ts";
import type { OutputItem } from "./speaker.ts";
import { chatToolFields, chatToolName, readTools } from "./tools.ts";

const NO_STATE =
  "items are not kept on their own: use `previous_response_id`, or send the whole conversation";
/** Fields that rely on state on OpenAI's servers. */
const SERVER_SIDE: Record<string, string> = {
  conversation: NO_STATE,
  prompt: "stored prompts are not kept here: send the text in `instructions` and `input`",
};
const PASSED = [
  ..."temperature top_p user prompt_cache_key safety_identifier service_tier".split(" "),
  ...GATEWAY_FIELDS,
];

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

export function chatBodyOfResponses(value: unknown, history: readonly StoredTurn[] = []) {
  const { body, model } = Given.request(value);
  const { fields } = body;
  requireNoServerState((name) => fields[name]);
  const naming = readTools(
    body,
    [...history, fields].map(({ input }) => input),
  );
  /** Tool and item types that are left out. */
  const dropped = new Set(naming.dropped);
  const tools = chatToolFields(naming, body);
  const chat: ChatBody = { model, messages: chatMessages(body, dropped, history), ...body.pick(PASSED) };
  if (fields.max_output_tokens != null) chat.max_tokens = body.count("max_output_tokens");
  if (tools) Object.assign(chat, tools, body.pick(["parallel_tool_calls"]));
  Object.assign(chat, outputFields(fields), streamFields(fields.stream));
  return { chat, clientTools: naming.clientTools, dropped };
}

function outputFields({ text, reasoning }: Given["fields"]): Record<string, unknown> {
  const effort = isObject(reasoning) ? reasoning.effort : null;
  const config = isObject(text) ? text : {};
  const format = isObject(config.format) ? config.format : {};
  return {
    ...(typeof effort === "string" && { reasoning_effort: effort }),
    ...(typeof config.verbosity === "string" && { verbosity: config.verbosity }),
    ...(format.type === "json_object" && { response_format: { type: "json_object" } }),
    ...(format.type === "json_schema" &&
      schemaFormat(pick(format, ["name", "description", "schema", "strict"]))),
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
  const said = output.filter(({ type }) => type !== "reasoning");
  for (const items of [input, said]) addInput(messages, new Given({ input: items }), new Set());
}

function chatMessages(body: Given, dropped: Set<string>, history: readonly StoredTurn[]): ChatMessage[] {
  const messages = new ChatMessages();
  if (body.fields.instructions != null) messages.system(body.string("instructions"));
  for (const turn of history) addTurn(messages, turn);
  addInput(messages, body, dropped);
  const done = messages.done();
  if (done.length === 0) body.refuse("input", INPUT_NEEDED);
  return done;
}

function addInput(messages: ChatMessages, body: Given, dropped: Set<string>): void {
  const { input } = body.fields;
  if (typeof input === "string") messages.user([textPart(input)]);
  else if (Array.isArray(input)) for (const item of body.objects("input")) addItem(messages, item, dropped);
  else body.refuse("input", INPUT_NEEDED);
}

function addItem(messages: ChatMessages, item: Given, dropped: Set<string>): void {
  switch (item.fields.type ?? "message") {
    case "message":
      addMessage(messages, item);
      break;
    case "function_call":
      messages.toolCall(callOf(item, item.string("arguments") || "{}"));
      break;
    case "custom_tool_call":
      messages.toolCall(callOf(item, JSON.stringify({ input: item.string("input") })));
      break;
    case "function_call_output":
    case "custom_tool_call_output":
      messages.toolResult({ callId: item.string("call_id"), parts: partsIn(item, "output") });
      break;
    case "reasoning":
      messages.reasoning(thoughtsOf(item.fields));
      break;
    case "additional_tools":
      break;
    case "item_reference":
      invalid(item.place, NO_STATE);
      break;
    case "compaction":
      invalid(item.place, "compacted history is sealed by OpenAI's servers; send the items themselves");
      break;
    default:
      dropped.add(item.string("type"));
  }
}

const callOf = (item: Given, args: string) => ({
  id: item.string("call_id"),
  name: chatToolName(item.string("name"), item.fields.namespace),
  arguments: args,
});

/** Reasoning that any model may read. The summary of reasoning sealed by a vendor is left out. */
const thoughtsOf = ({ content, summary, encrypted_content: sealed }: Given["fields"]): string =>
  textsIn(content) || (thoughtsIn(sealed) ?? (sealed == null ? textsIn(summary) : ""));

function addMessage(messages: ChatMessages, item: Given): void {
  const { role } = item.fields;
  const parts = partsIn(item, "content");
  if (role === "user") {
    messages.user(parts);
    return;
  }
  const text = parts
    .map((part, i) =>
      part.type === "text" ? part.text : item.refuse(`content.${i}`, `a ${role} message holds only text`),
    )
    .join("\n\n");
  if (role === "assistant") messages.assistant(text);
  else if (role === "system" || role === "developer") messages.system(text);
  else item.refuse("role", 'must be "user", "assistant", "system" or "developer"');
}

/** The parts of a field that may also be a text. */
function partsIn(given: Given, name: string): ChatPart[] {
  const text = given.fields[name];
  return typeof text === "string" ? textParts(text) : given.objects(name).map(partOf);
}

function partOf(part: Given): ChatPart {
  const { type, image_url, detail, file_data, filename, input_audio } = part.fields;
  switch (type) {
    case "input_text":
    case "output_text":
    case "text":
      return textPart(part.string("text"));
    case "refusal":
      return textPart(part.string("refusal"));
    case "input_image": {
      if (image_url == null) invalid(part.place, "needs image_url: uploaded files are not kept here");
      const url = part.string("image_url");
      return { type: "image_url", image_url: { url, ...(typeof detail === "string" && { detail }) } };
    }
    case "input_file": {
      if (file_data == null) invalid(part.place, "needs file_data: files are not fetched or kept here");
      const file = { file_data: part.string("file_data"), ...(typeof filename === "string" && { filename }) };
      return { type: "file", file };
    }
    case "input_audio":
      return { type: "input_audio", input_audio };
    default:
      return part.refuse("type", `${JSON.stringify(type)} parts cannot be passed to this model`);
  }
}
