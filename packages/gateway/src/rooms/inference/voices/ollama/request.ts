import { isObject } from "../../../../kernel/json.ts";
import { type AnswerForm, TEXT_FORM } from "../../call/answer.ts";
import {
  type ChatPart,
  dataUrl,
  GATEWAY_FIELDS,
  imagePart,
  schemaFormat,
  streamFields,
  textParts,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";
import { Given, invalid } from "../given.ts";

/** Options with the same name and meaning in a chat. */
const SAME_OPTIONS =
  "temperature top_p top_k min_p typical_p seed stop repeat_penalty presence_penalty frequency_penalty".split(
    " ",
  );
/** Options for the server that do not change the answer. */
const SERVER_OPTIONS = "num_ctx num_batch num_gpu main_gpu use_mmap num_thread num_keep repeat_last_n".split(
  " ",
);
const KNOWN_OPTIONS: ReadonlySet<string> = new Set([...SAME_OPTIONS, ...SERVER_OPTIONS, "num_predict"]);

/** The fields of a chat, or of a text with its own form of answer. */
export interface ConvertedRequest {
  fields: Record<string, unknown>;
  form?: AnswerForm;
  dropped: string[];
}

function optionsOf(body: Given): Given {
  const options = body.fields.options == null ? new Given({}) : body.object("options");
  const unknown = Object.keys(options.fields).find((name) => !KNOWN_OPTIONS.has(name));
  if (unknown !== undefined) options.refuse(unknown, "is not an option that is known here");
  return options;
}

const droppedOf = ({ fields }: Given): string[] =>
  Object.keys(fields).filter((name) => SERVER_OPTIONS.includes(name));

/** -1 and -2 mean no limit. */
function limitOf(options: Given): Record<string, unknown> {
  const { num_predict: limit } = options.fields;
  return limit == null || limit === -1 || limit === -2 ? {} : { max_tokens: options.count("num_predict") };
}

/** The chat fields that `/api/chat` and `/api/generate` have in common. Ollama streams by default. */
function sharedFields(body: Given, options: Given, model: string): Record<string, unknown> {
  const { think, stream } = body.fields;
  return {
    ...body.pick(GATEWAY_FIELDS),
    ...options.pick(SAME_OPTIONS),
    ...limitOf(options),
    ...formatOf(body),
    ...(typeof think === "string" && { reasoning_effort: think }),
    ...streamFields(stream !== false),
    model,
  };
}

function formatOf(body: Given): Record<string, unknown> {
  const { format } = body.fields;
  if (format == null || format === "") return {};
  if (format === "json") return { response_format: { type: "json_object" } };
  return schemaFormat({ name: "answer", schema: body.object("format").fields });
}

/** `/api/chat`; null if the request only loads a model: clients send it to warm one up. */
export function chatRequest(body: Given, model: string): ConvertedRequest | null {
  const given = body.objectsIfAny("messages");
  if (given.length === 0) return null;
  const options = optionsOf(body);
  const fields = sharedFields(body, options, model);
  const messages = new ChatMessages();
  const calls = new CallIds();
  for (const message of given) addMessage(messages, message, calls);
  const tools = body.fields.tools == null ? [] : body.list("tools");
  return {
    fields: { ...fields, messages: messages.done(), ...(tools.length > 0 && { tools }) },
    dropped: droppedOf(options),
  };
}

/** `/api/generate`; null if the request only loads a model. */
export function generateRequest(body: Given, model: string): ConvertedRequest | null {
  const { prompt, suffix, images, raw, system } = body.fields;
  const hasImages = Array.isArray(images) && images.length > 0;
  if (!prompt && !suffix && !hasImages) return null;
  const isGap = raw === true || suffix;
  if (isGap && hasImages) body.refuse("images", "cannot go with `raw` or `suffix`");
  const options = optionsOf(body);
  const fields = sharedFields(body, options, model);
  if (isGap) {
    const gap = suffix != null && { suffix };
    return { fields: { ...fields, prompt: body.string("prompt"), ...gap }, form: TEXT_FORM, dropped: [] };
  }
  const messages = new ChatMessages();
  if (system != null) messages.system(body.string("system"));
  messages.user([...textParts(prompt == null ? "" : body.string("prompt")), ...imageParts(body)]);
  return { fields: { ...fields, messages: messages.done() }, dropped: droppedOf(options) };
}

/** Gives calls ids: in Ollama's API results refer to calls by order or by tool name. */
class CallIds {
  #count = 0;
  #open: { id: string; name: string }[] = [];

  called(name: string, given: unknown): string {
    const id = typeof given === "string" && given !== "" ? given : `call_${this.#count++}`;
    this.#open.push({ id, name });
    return id;
  }
  answered(given: unknown, name: unknown): string {
    if (typeof given === "string" && given !== "") return given;
    const at = typeof name === "string" ? this.#open.findIndex((call) => call.name === name) : 0;
    const [call] = this.#open.splice(Math.max(0, at), 1);
    return call?.id ?? `call_${this.#count++}`;
  }
}

function addMessage(messages: ChatMessages, message: Given, calls: CallIds): void {
  const { role, content, thinking, tool_calls, tool_call_id, tool_name, name } = message.fields;
  const text = content == null ? "" : message.string("content");
  if (role === "system") messages.system(text);
  else if (role === "user") messages.user([...textParts(text), ...imageParts(message)]);
  else if (role === "assistant") {
    if (typeof thinking === "string") messages.reasoning(thinking);
    if (text !== "" || tool_calls == null) messages.assistant(text);
    for (const call of message.objectsIfAny("tool_calls")) {
      const called = call.object("function");
      const name = called.string("name");
      const id = calls.called(name, call.fields.id);
      messages.toolCall({ id, name, arguments: JSON.stringify(called.fields.arguments ?? {}) });
    }
  } else if (role === "tool")
    messages.toolResult({ callId: calls.answered(tool_call_id, tool_name ?? name), parts: textParts(text) });
  else message.refuse("role", 'must be "system", "user", "assistant" or "tool"');
}

/** How images of each type begin in base64. */
const MEDIA_TYPES: readonly (readonly [string, string])[] = [
  ["/9j/", "image/jpeg"],
  ["R0lGOD", "image/gif"],
  ["UklGR", "image/webp"],
];

function imageParts(given: Given): ChatPart[] {
  if (given.fields.images == null) return [];
  return given.list("images").map((image, i) => {
    if (typeof image !== "string") return given.refuse(`images.${i}`, "must be a string");
    if (image.startsWith("data:")) return imagePart(image);
    const type = MEDIA_TYPES.find(([start]) => image.startsWith(start))?.[1] ?? "image/png";
    return imagePart(dataUrl(type, image));
  });
}

/** Translates a body of `/api/embed` to `/v1/embeddings`. */
export function embeddingsBody(body: Given, model: string): Record<string, unknown> {
  const { input, options, dimensions } = body.fields;
  const isInput =
    typeof input === "string" || (Array.isArray(input) && input.every((one) => typeof one === "string"));
  if (!isInput) invalid("input", "is required: a string or an array of strings");
  // They have no effect on vectors, but wrong ones are refused.
  if (isObject(options)) limitOf(optionsOf(body));
  return {
    ...body.pick(GATEWAY_FIELDS),
    model,
    input,
    encoding_format: "float",
    ...(dimensions != null && { dimensions: body.count("dimensions") }),
  };
}
