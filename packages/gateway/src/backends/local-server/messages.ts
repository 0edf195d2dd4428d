import { isObject, objectIn } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

interface OllamaToolCall {
  id?: string;
  function: { index: number; name: string; arguments: Record<string, unknown> };
}

export interface OllamaMessage {
  role: string;
  content: string;
  thinking?: string;
  images?: string[];
  tool_calls?: OllamaToolCall[];
  tool_name?: string;
  tool_call_id?: string;
}

const ROLES: ReadonlyMap<string, string> = new Map([
  ["developer", "system"],
  ["function", "tool"],
]);

const refuse = (field: string, problem: string): never => {
  throw new BackendError("request", `\`${field}\` ${problem}`);
};

/** Bare base64: what the native API wants where others take a data: URL. */
function bareBase64(url: string, field: string): string {
  if (!url.includes(":")) return url;
  const comma = url.indexOf(",");
  const isData = url.startsWith("data:") && comma !== -1 && url.slice(5, comma).endsWith(";base64");
  return isData
    ? url.slice(comma + 1)
    : refuse(field, "must be a data: URL in base64: this backend does not load images by address");
}

/** One image in any form that clients send: a string, `{data_base64}`, `{url}` or `{image_url}`. */
function imageOf(image: unknown, field: string): string {
  if (typeof image === "string") return bareBase64(image, field);
  if (isObject(image)) {
    if (typeof image.data_base64 === "string") return image.data_base64;
    if (typeof image.url === "string") return bareBase64(image.url, field);
    if (image.image_url !== undefined) return imageOf(image.image_url, field);
  }
  return refuse(field, "must be an image as base64 text or a data: URL");
}

/** Text and images of a message's content, which the native API keeps apart. */
function splitContent(content: unknown, field: string): { text: string; images: string[] } {
  if (typeof content === "string") return { text: content, images: [] };
  if (content === undefined || content === null) return { text: "", images: [] };
  if (!Array.isArray(content)) return refuse(field, "must be a text or an array of parts");
  const texts: string[] = [];
  const images: string[] = [];
  for (const [i, part] of content.entries()) {
    const at = `${field}.${i}`;
    if (!isObject(part)) refuse(at, "must be an object with a type");
    else if (part.type === "image_url") images.push(imageOf(part.image_url, `${at}.image_url`));
    // Audio models take their audio through the same list.
    else if (isObject(part.input_audio) && typeof part.input_audio.data === "string")
      images.push(part.input_audio.data);
    else if (typeof part.text === "string") texts.push(part.text);
    else if (typeof part.refusal === "string") texts.push(part.refusal);
    else if (part.type === "text") refuse(`${at}.text`, "must be a text");
    else
      refuse(
        at,
        `has the type ${JSON.stringify(part.type)}; this backend takes text, image_url and input_audio`,
      );
  }
  return { text: texts.join("\n"), images };
}

/** Arguments are text in chat-completions and an object in the native API. */
function argumentsObject(value: unknown, field: string): Record<string, unknown> {
  if (isObject(value)) return value;
  if (value === undefined || value === null || value === "") return {};
  return objectIn(String(value)) ?? refuse(field, "must be the JSON text of an object");
}

function toolCalls(calls: readonly unknown[], field: string): OllamaToolCall[] {
  return calls.map((call, index) => {
    const at = `${field}.${index}.function`;
    const fn = isObject(call) ? call.function : undefined;
    if (!isObject(fn) || typeof fn.name !== "string") return refuse(at, "must have a name");
    const id = (call as Record<string, unknown>).id;
    return {
      ...(typeof id === "string" && { id }),
      function: { index, name: fn.name, arguments: argumentsObject(fn.arguments, `${at}.arguments`) },
    };
  });
}

/** Messages in the native form. Tool results get the name of the tool that was called. */
export function toOllamaMessages(messages: unknown): OllamaMessage[] {
  if (!Array.isArray(messages)) return refuse("messages", "must be an array");
  const toolNames = new Map<string, string>();
  return messages.map((message: unknown, i) => {
    const field = `messages.${i}`;
    if (!isObject(message)) return refuse(field, "must be an object with role and content");
    const { text, images } = splitContent(message.content, `${field}.content`);
    if (Array.isArray(message.images)) {
      images.push(...message.images.map((image, at) => imageOf(image, `${field}.images.${at}`)));
    }
    const { role } = message;
    if (typeof role !== "string") return refuse(`${field}.role`, "must be a text such as user");
    const converted: OllamaMessage = { role: ROLES.get(role) ?? role, content: text };
    if (images.length > 0) converted.images = images;
    const thinking = message.reasoning_content ?? message.reasoning;
    if (typeof thinking === "string" && thinking) converted.thinking = thinking;
    if (Array.isArray(message.tool_calls) && message.tool_calls.length > 0) {
      converted.tool_calls = toolCalls(message.tool_calls, `${field}.tool_calls`);
      for (const { id, function: fn } of converted.tool_calls) if (id) toolNames.set(id, fn.name);
    }
    if (converted.role === "tool") {
      const id = typeof message.tool_call_id === "string" ? message.tool_call_id : undefined;
      const name = typeof message.name === "string" ? message.name : id && toolNames.get(id);
      if (id) converted.tool_call_id = id;
      if (name) converted.tool_name = name;
    }
    return converted;
  });
}
