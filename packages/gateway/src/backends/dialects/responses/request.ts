import {
  answerSchema,
  type ChatPart,
  chatFunctions,
  chatToolChoice,
  chatTurns,
  copied,
  outputLimit,
  PENALTIES,
  refuse,
  refuseUnsupported,
  textOfParts,
  UNSUPPORTED,
  wantsAnyJson,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";
import type { Item } from "./answer.ts";
import { THINKING_MODEL } from "./only.ts";

/** The API refuses a lower limit. */
const OUTPUT_TOKENS_MIN = 16;

const NO_STOP = { stop: (value: unknown) => Array.isArray(value) && value.length === 0 };
/** Models that think take none of these, unless they are told not to think. */
const SAMPLING_FIELDS = ["temperature", "top_p"] as const;
const SAME = (
  "user metadata service_tier safety_identifier parallel_tool_calls prompt_cache_key " +
  "prompt_cache_options prompt_cache_retention"
).split(" ");

/** A chat request as a body of `POST /v1/responses`. Nothing is stored there: the whole history goes along. */
export function responsesRequest(
  body: Record<string, unknown>,
  { model, stream, kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  refuseUnsupported(body, { ...UNSUPPORTED, ...PENALTIES, ...NO_STOP });
  const input: Item[] = [];
  for (const turn of chatTurns(body.messages)) {
    if (turn.role === "system" || turn.role === "user")
      input.push({ role: turn.role === "system" ? "developer" : "user", content: turn.parts.map(inputPart) });
    else if (turn.role === "tool")
      input.push({ type: "function_call_output", call_id: turn.callId, output: outputOf(turn.parts) });
    else {
      const known = kept(turn) as Item[] | null;
      if (known) input.push(...known);
      else {
        if (turn.text !== "")
          input.push({ role: "assistant", content: [{ type: "output_text", text: turn.text }] });
        for (const { id, name, arguments: args } of turn.calls)
          input.push({ type: "function_call", call_id: id, name, arguments: args || "{}" });
      }
    }
  }
  const tools = chatFunctions(body.tools).map(({ name, description, parameters, strict = false }) => ({
    type: "function",
    name,
    ...(description !== undefined && { description }),
    parameters,
    strict,
  }));
  const limit = outputLimit(body);
  const choice = chatToolChoice(body.tool_choice);
  const text = textFields(body);
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
    ...(limit !== null && { max_output_tokens: Math.max(OUTPUT_TOKENS_MIN, limit) }),
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

function textFields(body: Record<string, unknown>): Record<string, unknown> | null {
  const schema = answerSchema(body);
  const format = schema
    ? { type: "json_schema", ...schema }
    : wantsAnyJson(body)
      ? { type: "json_object" }
      : null;
  const { verbosity } = body;
  if (!format && verbosity == null) return null;
  return { ...(format && { format }), ...(verbosity != null && { verbosity }) };
}
