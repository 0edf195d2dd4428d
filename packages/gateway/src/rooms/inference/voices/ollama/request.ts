import { isObject } from "../../../../kernel/json.ts";
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
  streamFields,
  stringAt,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";

/** Options with the same name and meaning in a chat. */
const SAME_OPTIONS =
  "temperature top_p top_k min_p typical_p seed stop repeat_penalty presence_penalty frequency_penalty".split(
    " ",
  );
/** Options for the server that do not change the answer. */
const SERVER_OPTIONS: ReadonlySet<string> = new Set(
  "num_ctx num_batch num_gpu main_gpu use_mmap num_thread num_keep repeat_last_n".split(" "),
);

export interface ConvertedRequest {
  chat: ChatBody;
  dropped: string[];
}

/** Ollama streams by default. */
export const streams = (body: Record<string, unknown>): boolean => body.stream !== false;

/** The chat fields that `/api/chat` and `/api/generate` have in common. */
export function sharedFields(body: Record<string, unknown>): {
  fields: Record<string, unknown>;
  dropped: string[];
} {
  const options = body.options == null ? {} : objectAt(body.options, "options");
  const dropped = Object.keys(options).filter((name) => SERVER_OPTIONS.has(name));
  const known = new Set<string>([...SAME_OPTIONS, ...SERVER_OPTIONS, "num_predict"]);
  for (const name of Object.keys(options)) {
    if (!known.has(name)) invalid(`options.${name}`, "is not an option that is known here");
  }
  return {
    fields: {
      ...pick(body, GATEWAY_FIELDS),
      ...pick(options, SAME_OPTIONS),
      ...limitOf(options.num_predict),
      ...formatOf(body.format),
      ...(typeof body.think === "string" && { reasoning_effort: body.think }),
      ...streamFields(streams(body)),
    },
    dropped,
  };
}

/** -1 and -2 mean no limit. */
const limitOf = (value: unknown): Record<string, unknown> =>
  value == null || value === -1 || value === -2 ? {} : { max_tokens: countAt(value, "options.num_predict") };

function formatOf(format: unknown): Record<string, unknown> {
  if (format == null || format === "") return {};
  if (format === "json") return { response_format: { type: "json_object" } };
  const schema = objectAt(format, "format");
  return { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };
}

export function chatBodyOfChat(body: Record<string, unknown>, model: string): ConvertedRequest {
  const { fields, dropped } = sharedFields(body);
  const messages = new ChatMessages();
  const calls = new CallIds();
  for (const [i, message] of arrayAt(body.messages, "messages").entries()) {
    addMessage(messages, { message: objectAt(message, `messages.${i}`), path: `messages.${i}`, calls });
  }
  const tools = body.tools == null ? [] : (arrayAt(body.tools, "tools") as ChatTool[]);
  const chat = { ...fields, model, messages: messages.done(), ...(tools.length > 0 && { tools }) };
  return { chat, dropped };
}

/** `/api/generate` with a prompt for the model's chat template. */
export function chatBodyOfGenerate(body: Record<string, unknown>, model: string): ConvertedRequest {
  const { fields, dropped } = sharedFields(body);
  const messages = new ChatMessages();
  if (body.system != null) messages.system(stringAt(body.system, "system"));
  messages.user([...textParts(body.prompt, "prompt"), ...imageParts(body.images, "images")]);
  return { chat: { ...fields, model, messages: messages.done() }, dropped };
}

/** `/api/generate` with a raw prompt, or with a gap to fill. */
export function textBodyOfGenerate(body: Record<string, unknown>, model: string): Record<string, unknown> {
  if (Array.isArray(body.images) && body.images.length > 0)
    invalid("images", "cannot go with `raw` or `suffix`");
  const { fields } = sharedFields(body);
  return {
    ...fields,
    model,
    prompt: stringAt(body.prompt, "prompt"),
    ...(body.suffix != null && { suffix: stringAt(body.suffix, "suffix") }),
  };
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

function addMessage(
  messages: ChatMessages,
  { message, path, calls }: { message: Record<string, unknown>; path: string; calls: CallIds },
): void {
  const { role } = message;
  const text = message.content == null ? "" : stringAt(message.content, `${path}.content`);
  if (role === "system") messages.system(text);
  else if (role === "user") {
    messages.user([...textParts(text, `${path}.content`), ...imageParts(message.images, `${path}.images`)]);
  } else if (role === "assistant") {
    if (typeof message.thinking === "string") messages.reasoning(message.thinking);
    if (text !== "" || message.tool_calls == null) messages.assistant(text);
    for (const [i, one] of arrayAt(message.tool_calls ?? [], `${path}.tool_calls`).entries()) {
      const at = `${path}.tool_calls.${i}`;
      const call = objectAt(one, at);
      const { name, arguments: args } = objectAt(call.function, `${at}.function`);
      const called = stringAt(name, `${at}.function.name`);
      messages.toolCall({
        id: calls.called(called, call.id),
        function: { name: called, arguments: JSON.stringify(args ?? {}) },
      });
    }
  } else if (role === "tool") {
    const callId = calls.answered(message.tool_call_id, message.tool_name ?? message.name);
    messages.toolResult({ callId, parts: textParts(text, path) });
  } else invalid(`${path}.role`, 'must be "system", "user", "assistant" or "tool"');
}

const textParts = (text: unknown, path: string): ChatPart[] =>
  text == null || text === "" ? [] : [{ type: "text", text: stringAt(text, path) }];

/** How images of each type begin in base64. */
const MEDIA_TYPES: readonly (readonly [string, string])[] = [
  ["/9j/", "image/jpeg"],
  ["R0lGOD", "image/gif"],
  ["UklGR", "image/webp"],
];

function imageParts(images: unknown, path: string): ChatPart[] {
  if (images == null) return [];
  return arrayAt(images, path).map((image, i) => {
    const base64 = stringAt(image, `${path}.${i}`);
    const type = MEDIA_TYPES.find(([start]) => base64.startsWith(start))?.[1] ?? "image/png";
    const url = base64.startsWith("data:") ? base64 : `data:${type};base64,${base64}`;
    return { type: "image_url", image_url: { url } };
  });
}

/** Whether the request only loads a model: clients send it to warm one up. */
export const asksNothing = (body: Record<string, unknown>): boolean =>
  body.messages === undefined
    ? !body.prompt && !body.suffix && !(Array.isArray(body.images) && body.images.length > 0)
    : Array.isArray(body.messages) && body.messages.length === 0;

export const isGap = (body: Record<string, unknown>): boolean =>
  body.raw === true || (typeof body.suffix === "string" && body.suffix !== "");

/** Translates a body of `/api/embed` to `/v1/embeddings`. */
export function embeddingsBody(body: Record<string, unknown>, model: string): Record<string, unknown> {
  const { input } = body;
  const isInput =
    typeof input === "string" || (Array.isArray(input) && input.every((one) => typeof one === "string"));
  if (!isInput) invalid("input", "is required: a string or an array of strings");
  if (isObject(body.options)) sharedFields({ options: body.options });
  return {
    ...pick(body, GATEWAY_FIELDS),
    model,
    input,
    encoding_format: "float",
    ...(body.dimensions != null && { dimensions: countAt(body.dimensions, "dimensions") }),
  };
}
