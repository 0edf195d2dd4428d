import { isObject } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import type { JsonBody, NativeDialect } from "../../contract.ts";
import {
  type ChatPart,
  chatToolChoice,
  copied,
  PENALTIES,
  type ReadChat,
  readChat,
  refuse,
  textOfParts,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";
import type { Item } from "./answer.ts";

/** Models without chat completions. */
const NO_CHAT =
  /(^|[/:])(o1-pro|o3-pro|gpt-5(\.\d+)?-pro|gpt-5(\.\d+)?-codex|gpt-5\.6-cyber|[\w.-]*deep-research)/i;
/** Since gpt-5.4, chat completions refuse tools with an effort; since 5.6 also without one. */
const NO_TOOLS_WITH_EFFORT = /(^|[/:])gpt-(5\.[45])([.-]|$)/i;
const NO_TOOLS = /(^|[/:])gpt-(5\.[6-9]|[6-9]|\d\d)/i;

/** Models that think. Their chat completions refuse temperature and `max_tokens`, and hide the thoughts. */
const THINKING_MODEL = /(^|[/:])(o\d|gpt-([5-9]|\d\d))(?!.*chat)/i;

/** Whether this chat must, or should, go to OpenAI's Responses API. */
export function isForResponses(model: string, body: Pick<JsonBody, "isMade" | "object">): boolean {
  if (NO_CHAT.test(model) || (body.isMade && THINKING_MODEL.test(model))) return true;
  if (!NO_TOOLS.test(model) && !NO_TOOLS_WITH_EFFORT.test(model)) return false;
  const { tools, reasoning_effort: effort } = body.object();
  if (!Array.isArray(tools) || tools.length === 0 || !tools.every(isObject)) return false;
  return NO_TOOLS.test(model) ? effort !== "none" : effort != null && effort !== "none";
}

/** The API refuses a lower limit. */
export const OUTPUT_TOKENS_MIN = 16;

const NO_STOP = { stop: (value: unknown) => Array.isArray(value) && value.length === 0 };
/** Models that think refuse these, unless thinking is off. */
const SAMPLING_FIELDS = ["temperature", "top_p"] as const;
const SAME = (
  "user metadata service_tier safety_identifier parallel_tool_calls prompt_cache_key " +
  "prompt_cache_options prompt_cache_retention"
).split(" ");

/** A chat request as a body of `POST /v1/responses`. Nothing is stored there, so it has the whole history. */
export function responsesRequest(
  body: Record<string, unknown>,
  { model, stream, kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  const chat = readChat(body, { ...PENALTIES, ...NO_STOP });
  const input = chat.turns.flatMap((turn): Item[] => {
    if (turn.role === "system" || turn.role === "user")
      return [{ role: turn.role === "system" ? "developer" : "user", content: turn.parts.map(inputPart) }];
    if (turn.role === "tool")
      return [{ type: "function_call_output", call_id: turn.callId, output: outputOf(turn.parts) }];
    const { text, calls } = turn;
    return (
      (kept(turn) as Item[] | null) ?? [
        ...(text === "" ? [] : [{ role: "assistant", content: [{ type: "output_text", text }] }]),
        ...calls.map(({ id, name, arguments: args }) => ({
          type: "function_call",
          call_id: id,
          name,
          arguments: args || "{}",
        })),
      ]
    );
  });
  const tools = chat.functions.map(({ name, description, parameters, strict = false }) => ({
    type: "function",
    name,
    ...(description !== undefined && { description }),
    parameters,
    strict,
  }));
  const choice = chatToolChoice(body.tool_choice);
  const text = textFields(body, chat);
  return {
    model,
    input,
    ...(tools.length > 0 && { tools }),
    ...(tools.length > 0 &&
      choice !== null && {
        tool_choice: typeof choice === "object" ? { type: "function", name: choice.name } : choice,
      }),
    ...copied(body, SAME),
    ...((body.reasoning_effort === "none" || !THINKING_MODEL.test(model)) && copied(body, SAMPLING_FIELDS)),
    ...(chat.limit !== null && { max_output_tokens: Math.max(OUTPUT_TOKENS_MIN, chat.limit) }),
    ...((wantsThoughts || typeof body.reasoning_effort === "string") && {
      reasoning: { ...(wantsThoughts && { summary: "auto" }), effort: body.reasoning_effort ?? undefined },
    }),
    ...(text && { text }),
    store: false,
    include: ["reasoning.encrypted_content"],
    ...(stream && { stream: true, stream_options: { include_obfuscation: false } }),
  };
}

function inputPart(part: ChatPart): Item {
  switch (part.type) {
    case "text":
      return { type: "input_text", text: part.text };
    case "image":
      return { type: "input_image", image_url: part.url, detail: part.detail ?? "auto" };
    case "file":
      return { type: "input_file", file_data: part.url, filename: part.filename ?? "file" };
    case "audio":
      return refuse("input_audio", "cannot be passed to this backend's API");
  }
}

const outputOf = (parts: readonly ChatPart[]): unknown =>
  parts.every((part) => part.type === "text") ? textOfParts(parts) : parts.map(inputPart);

function textFields({ verbosity }: Record<string, unknown>, { schema, wantsAnyJson }: ReadChat) {
  const anyJson = wantsAnyJson ? { type: "json_object" } : null;
  const format = schema ? { type: "json_schema", ...schema } : anyJson;
  if (!format && verbosity == null) return null;
  return { ...(format && { format }), ...(verbosity != null && { verbosity }) };
}

/** We store nothing at the vendor, so the model's own reasoning is always encrypted. */
const isUnsealed = (item: unknown): boolean =>
  isObject(item) &&
  item.type === "reasoning" &&
  (item.encrypted_content == null || thoughtsIn(item.encrypted_content) !== null);

/** Removes the reasoning of other models. */
export const mendedResponses: NativeDialect["mended"] = (body) => {
  const input = body.value("input");
  if (!Array.isArray(input) || !input.some(isUnsealed)) return [];
  return [["input", JSON.stringify(input.filter((item) => !isUnsealed(item)))]];
};
