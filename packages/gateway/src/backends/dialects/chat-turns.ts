import { isObject, membersOf, objectIn, textOf } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

/** A message of a chat request, checked, for conversion to another dialect. */
export type ChatTurn =
  | { role: "system"; parts: TextPart[] }
  | { role: "user"; parts: ChatPart[] }
  | AssistantTurn
  | { role: "tool"; callId: string; name: string; parts: ChatPart[] };

export interface AssistantTurn {
  role: "assistant";
  text: string;
  reasoning: string;
  calls: ChatCall[];
  /** Index among the messages. */
  at: number;
}

export interface ChatCall {
  id: string;
  name: string;
  arguments: string;
}

export interface TextPart {
  type: "text";
  text: string;
  /** Anthropic's mark for the end of a cached prefix, which some clients put into chats. */
  cacheControl?: unknown;
}

/** `url` may be a data: URL; `field` is its path in the request. */
export type ChatPart =
  | TextPart
  | { type: "image"; url: string; field: string; detail?: string }
  | { type: "file"; url: string; field: string; filename?: string }
  | { type: "audio"; data: string; format: string };

export const refuse = (field: string, problem: string): never => {
  throw new BackendError("request", `\`${field}\` ${problem}`);
};

const isZero = (value: unknown): boolean => value === 0;
const never = (): boolean => false;
/** Fields that no other dialect has, with the values that change nothing. */
const UNSUPPORTED = {
  n: (value: unknown) => value === 1,
  logprobs: (value: unknown) => value === false,
  top_logprobs: isZero,
  logit_bias: (value: unknown) => isObject(value) && Object.keys(value).length === 0,
  audio: never,
  functions: never,
};
export const PENALTIES = { frequency_penalty: isZero, presence_penalty: isZero };

/** Null: not a data: URL. */
export function inlineData(url: string): { mimeType: string; data: string } | null {
  const found = /^data:([^;,]*)(?:;[^,]*)?;base64,/.exec(url);
  return found && { mimeType: found[1] || "application/octet-stream", data: url.slice(found[0].length) };
}

export const requireInline = ({ url, field }: { url: string; field: string }) =>
  inlineData(url) ??
  refuse(field, "must be a data: URL in base64: this backend's API does not load addresses");

/** Invalid JSON is sent back to the model as it wrote it. */
export const argumentsObject = ({ arguments: json }: ChatCall): Record<string, unknown> =>
  objectIn(json || "{}") ?? { INVALID_JSON: json };

const cacheMark = (cacheControl: unknown) => (isObject(cacheControl) ? { cacheControl } : {});

function partOf(part: unknown, field: string): ChatPart[] {
  if (typeof part === "string") return [{ type: "text", text: part }];
  if (!isObject(part)) return refuse(field, "must be an object with a type");
  const { image_url: image, input_audio: audio, file } = part;
  if (image !== undefined) {
    const url = isObject(image) ? image.url : image;
    const detail = isObject(image) && typeof image.detail === "string" ? { detail: image.detail } : {};
    const at = `${field}.image_url`;
    return [{ type: "image", url: textOf(url) || refuse(at, "must have a url"), field: at, ...detail }];
  }
  if (isObject(audio))
    return [{ type: "audio", data: textOf(audio.data), format: textOf(audio.format) || "wav" }];
  if (isObject(file)) {
    const at = `${field}.file`;
    const url = textOf(file.file_data) || refuse(at, "must have file_data: files are not kept here");
    const named = typeof file.filename === "string" ? { filename: file.filename } : {};
    return [{ type: "file", url, field: at, ...named }];
  }
  const words = part.text ?? part.refusal;
  if (typeof words === "string") return [{ type: "text", text: words, ...cacheMark(part.cache_control) }];
  if (words !== undefined) return refuse(`${field}.text`, "must be text");
  return refuse(`${field}.type`, `${JSON.stringify(part.type)} parts cannot be passed to this backend's API`);
}

/** One of a message's `images`: base64 text, an address, or an object with either. */
function imageOf(image: unknown, field: string): ChatPart {
  const inner = isObject(image) ? image : { url: image };
  if (typeof inner.data_base64 === "string") {
    const mimeType = typeof inner.mime_type === "string" ? inner.mime_type : "image/png";
    return { type: "image", url: `data:${mimeType};base64,${inner.data_base64}`, field };
  }
  if (inner.image_url !== undefined) return imageOf(inner.image_url, field);
  const url = textOf(inner.url) || refuse(field, "must be an image as base64 text or a URL");
  return { type: "image", url: url.includes(":") ? url : `data:image/png;base64,${url}`, field };
}

function partsOf(message: Record<string, unknown>, field: string): ChatPart[] {
  const { content, images } = message;
  const given = Array.isArray(content) ? content : [content ?? ""];
  const parts = given.flatMap((part, i) =>
    partOf(part, `${field}.content${given === content ? `.${i}` : ""}`),
  );
  if (Array.isArray(images)) parts.push(...images.map((image, i) => imageOf(image, `${field}.images.${i}`)));
  return parts.filter((part) => part.type !== "text" || part.text !== "");
}

const textParts = (parts: readonly ChatPart[]): TextPart[] => parts.filter((part) => part.type === "text");
export const textOfParts = (parts: readonly ChatPart[]): string =>
  textParts(parts)
    .map((part) => part.text)
    .join("\n");

function callOf(call: unknown, field: string): ChatCall {
  const fn = isObject(call) ? call.function : null;
  if (!isObject(call) || !isObject(fn) || typeof fn.name !== "string")
    return refuse(`${field}.function`, "must have a name");
  const args = typeof fn.arguments === "string" ? fn.arguments : JSON.stringify(fn.arguments ?? {});
  return { id: textOf(call.id), name: fn.name, arguments: args };
}

export function chatTurns(messages: unknown): ChatTurn[] {
  if (!Array.isArray(messages)) return refuse("messages", "must be an array");
  const names = new Map<string, string>();
  return messages.map((message, i) => turnOf(message, i, names));
}

/** For each message a digest of all messages before it, and last the digest for the answer. */
export function digestsBefore(messages: unknown): string[] {
  let before = 0n;
  const after = (turn: ChatTurn): string => {
    before = BigInt(Bun.hash(formOf(turn), before));
    return before.toString(36);
  };
  return [before.toString(36), ...chatTurns(messages).map(after)];
}

/** Without spaces, because clients join the parts of a text in different ways. */
const formOf = (turn: ChatTurn): string =>
  turn.role === "assistant"
    ? JSON.stringify([turn.text.replace(/\s+/g, ""), turn.calls.map(({ id }) => id)])
    : JSON.stringify(turn, (name, value) =>
        name === "cacheControl" || name === "field" ? undefined : value,
      );

export function afterSystem(turns: readonly ChatTurn[]) {
  const first = turns.findIndex(({ role }) => role !== "system");
  const length = first === -1 ? turns.length : first;
  const system = turns.slice(0, length).flatMap((turn) => (turn.role === "system" ? turn.parts : []));
  return { system, rest: turns.slice(length) };
}

function turnOf(message: unknown, i: number, names: Map<string, string>): ChatTurn {
  const field = `messages.${i}`;
  if (!isObject(message)) return refuse(field, "must be an object with role and content");
  const parts = partsOf(message, field);
  switch (message.role) {
    case "system":
    case "developer":
      return { role: "system", parts: textParts(parts) };
    case "user":
      return { role: "user", parts };
    case "assistant": {
      const calls = Array.isArray(message.tool_calls)
        ? message.tool_calls.map((call, at) => callOf(call, `${field}.tool_calls.${at}`))
        : [];
      for (const { id, name } of calls) names.set(id, name);
      const reasoning = textOf(message.reasoning_content ?? message.reasoning);
      return { role: "assistant", text: textOfParts(parts), reasoning, calls, at: i };
    }
    case "tool":
    case "function": {
      const callId = textOf(message.tool_call_id);
      const name = textOf(message.name) || names.get(callId) || "";
      return { role: "tool", callId, name, parts };
    }
    default:
      return refuse(`${field}.role`, 'must be "system", "user", "assistant" or "tool"');
  }
}

const NO_PARAMETERS = { type: "object", properties: {} };

function chatFunctions(tools: unknown) {
  if (!Array.isArray(tools)) return [];
  return tools.map((tool, i) => {
    const fn = isObject(tool) ? tool.function : null;
    if (!isObject(tool) || !isObject(fn) || typeof fn.name !== "string")
      return refuse(
        `tools.${i}`,
        "must be a function with a name: no other tool exists on this backend's API",
      );
    return {
      name: fn.name,
      ...(typeof fn.description === "string" && { description: fn.description }),
      parameters: fn.parameters ?? NO_PARAMETERS,
      ...(typeof fn.strict === "boolean" && { strict: fn.strict }),
      ...cacheMark(tool.cache_control),
    };
  });
}

export function chatToolChoice(choice: unknown) {
  if (choice == null) return null;
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  const fn = isObject(choice) ? choice.function : null;
  if (isObject(fn) && typeof fn.name === "string") return { name: fn.name };
  return refuse("tool_choice", "must be auto, none, required or a function's name on this backend's API");
}

function schemaOf({ name, schema, strict, description }: Record<string, unknown>) {
  return {
    name: typeof name === "string" ? name : "answer",
    schema,
    ...(strict != null && { strict }),
    ...(description != null && { description }),
  };
}

/** Checks a chat request for conversion to a dialect, which may lack further fields. */
export function readChat(body: Record<string, unknown>, alsoUnsupported = {}) {
  const unsupported: Record<string, (value: unknown) => boolean> = { ...UNSUPPORTED, ...alsoUnsupported };
  for (const [name, changesNothing] of Object.entries(unsupported))
    if (body[name] != null && !changesNothing(body[name]))
      refuse(name, "cannot be passed to this backend's API; leave it out");
  const limit = body.max_completion_tokens ?? body.max_tokens;
  const { type, json_schema: schema } = membersOf(body.response_format);
  return {
    turns: chatTurns(body.messages),
    functions: chatFunctions(body.tools),
    limit: typeof limit === "number" ? limit : null,
    schema: type === "json_schema" && isObject(schema) ? schemaOf(schema) : null,
    wantsAnyJson: type === "json_object",
  };
}

export type ReadChat = ReturnType<typeof readChat>;

export const copied = (body: Record<string, unknown>, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(names.flatMap((name) => (body[name] != null ? [[name, body[name]]] : [])));
