/** The parts of a chat-completions request that other APIs are translated to. */
export type ChatPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string; detail?: string } }
  | { type: "file"; file: { file_data: string; filename?: string } }
  | { type: "input_audio"; input_audio: unknown };

export interface ChatMessage {
  role: "system" | "user" | "assistant" | "tool";
  content: string | ChatPart[] | null;
  reasoning_content?: string;
  tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

export interface ChatTool {
  type: "function";
  function: { name: string; description?: string; parameters?: unknown; strict?: boolean };
}

export interface ChatBody {
  model: string;
  messages: ChatMessage[];
  tools?: ChatTool[];
  stream?: boolean;
  [field: string]: unknown;
}

/** The gateway's own fields, which every API may carry. */
export const GATEWAY_FIELDS = ["conversation_id", "memory", "provider", "extra"] as const;

/** The fields for streaming: usage comes as a chunk only if it is requested. */
export const streamFields = (stream: unknown): Record<string, unknown> =>
  stream === true ? { stream: true, stream_options: { include_usage: true } } : {};

export const textPart = (text: string): ChatPart => ({ type: "text", text });
/** A text as parts: none if it is empty. */
export const textParts = (text: string): ChatPart[] => (text === "" ? [] : [textPart(text)]);
export const imagePart = (url: string): ChatPart => ({ type: "image_url", image_url: { url } });
export const dataUrl = (mediaType: string, base64: string): string => `data:${mediaType};base64,${base64}`;

export const chatTool = (
  name: string,
  { description, parameters, strict }: { description?: unknown; parameters?: unknown; strict?: unknown },
): ChatTool => ({
  type: "function",
  function: {
    name,
    ...(typeof description === "string" && { description }),
    parameters: parameters ?? { type: "object", properties: {} },
    ...(typeof strict === "boolean" && { strict }),
  },
});

export const functionChoice = (name: unknown) => ({ type: "function", function: { name } });
export const schemaFormat = (json_schema: object) => ({
  response_format: { type: "json_schema", json_schema },
});
