import { newCallId } from "../../kernel/ids.ts";
import { isObject, membersOf, textOf } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";
import {
  argumentsObject,
  type ChatCall,
  type ChatPart,
  type ChatTurn,
  chatTurns,
  copied,
  refuse,
  requireInline,
  textOfParts,
} from "../dialects/chat-turns.ts";
import type { ChatAnswer, ChatRequestOptions, StreamConverter, Translation } from "../dialects/dialect.ts";
import { type ChatDelta, openedCall } from "../shared/chat-events.ts";

type OllamaBody = Record<string, unknown>;

const NATIVE_FIELDS = ["keep_alive", "truncate", "shift", "logprobs", "top_logprobs"] as const;

const OPTION_FIELDS = (
  "temperature top_p top_k min_p typical_p seed frequency_penalty presence_penalty repeat_penalty " +
  "repeat_last_n num_ctx num_batch num_gpu main_gpu use_mmap num_thread num_keep num_predict"
).split(" ");

const EFFORTS = new Map<unknown, boolean | string>(
  Object.entries({
    none: false,
    minimal: "low",
    low: "low",
    medium: "medium",
    high: "high",
    xhigh: "max",
    max: "max",
  }),
);

const given = (fields: OllamaBody): OllamaBody =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null));

/** Only what the client set: a default of ours would override the model's own. */
function optionsOf(body: OllamaBody): OllamaBody | undefined {
  const set = given({
    ...copied(body, OPTION_FIELDS),
    repeat_penalty: body.repeat_penalty ?? body.repetition_penalty,
    num_predict: body.max_completion_tokens ?? body.max_tokens ?? body.num_predict,
    stop: typeof body.stop === "string" ? [body.stop] : body.stop,
  });
  const all = { ...membersOf(body.options), ...set };
  return Object.keys(all).length > 0 ? all : undefined;
}

function formatOf({ format, response_format: wanted }: OllamaBody): unknown {
  if (format !== undefined) return format;
  const { type, json_schema: schema } = membersOf(wanted);
  if (type === "json_object") return "json";
  return type === "json_schema" ? membersOf(schema).schema : undefined;
}

function thinkOf({ think, reasoning_effort: effort, reasoning }: OllamaBody): unknown {
  return think ?? EFFORTS.get(effort ?? membersOf(reasoning).effort);
}

/** Base64 of an image or a sound, which the native API keeps apart from the text. */
function mediaOf(part: ChatPart): string[] {
  if (part.type === "text") return [];
  // Audio models take audio in the list of images.
  if (part.type === "audio") return [part.data];
  if (part.type === "image") return [requireInline(part).data];
  return refuse(part.field, "cannot be passed to this backend's API: it takes text, images and audio");
}

function messageOf(turn: ChatTurn): OllamaBody {
  const { role } = turn;
  if (role === "assistant")
    return {
      role,
      content: turn.text,
      ...(turn.reasoning && { thinking: turn.reasoning }),
      ...(turn.calls.length > 0 && {
        tool_calls: turn.calls.map((call, index) => ({
          ...(call.id && { id: call.id }),
          function: { index, name: call.name, arguments: argumentsObject(call) },
        })),
      }),
    };
  const images = turn.parts.flatMap(mediaOf);
  return {
    role,
    content: textOfParts(turn.parts),
    ...(images.length > 0 && { images }),
    ...(role === "tool" && given({ tool_call_id: turn.callId || null, tool_name: turn.name || null })),
  };
}

export const ollamaRequest = (
  body: OllamaBody,
  { model, stream }: Pick<ChatRequestOptions, "model" | "stream">,
): OllamaBody => ({
  model,
  messages: chatTurns(body.messages).map(messageOf),
  stream,
  ...given({
    ...copied(body, NATIVE_FIELDS),
    options: optionsOf(body),
    format: formatOf(body),
    think: thinkOf(body),
    // The native API has no tool_choice; only "none" can be expressed, by leaving the tools out.
    tools: body.tool_choice === "none" ? null : body.tools,
  }),
});

function callsOf({ tool_calls: calls }: OllamaBody): ChatCall[] {
  return (Array.isArray(calls) ? calls : []).filter(isObject).map((call) => {
    const { name, arguments: args = {} } = membersOf(call.function);
    return {
      id: textOf(call.id) || newCallId(),
      name: textOf(name),
      arguments: typeof args === "string" ? args : JSON.stringify(args),
    };
  });
}

function failureOf({ error }: OllamaBody): BackendError | null {
  if (error === undefined || error === null) return null;
  const words = isObject(error) ? error.message : error;
  return new BackendError("upstream", typeof words === "string" ? words : JSON.stringify(error), 500);
}

function answerOf(line: OllamaBody): ChatAnswer {
  const message = membersOf(line.message);
  const { prompt_eval_count: prompt, eval_count: completion } = line;
  const isCounted = typeof prompt === "number" || typeof completion === "number";
  // The server leaves out counts that are zero.
  const [prompt_tokens, completion_tokens] = [Number(prompt ?? 0), Number(completion ?? 0)];
  const total_tokens = prompt_tokens + completion_tokens;
  const calls = callsOf(message);
  return {
    text: textOf(message.content),
    reasoning: textOf(message.thinking),
    refusal: "",
    calls,
    finishReason: calls.length > 0 ? "tool_calls" : line.done_reason === "length" ? "length" : "stop",
    usage: isCounted ? { prompt_tokens, completion_tokens, total_tokens } : null,
    ...(Array.isArray(line.logprobs) && { logprobs: { content: line.logprobs } }),
    content: null,
  };
}

function ollamaAnswer(body: OllamaBody): ChatAnswer {
  const failure = failureOf(body);
  if (failure) throw failure;
  if (!isObject(body.message)) throw new BackendError("transport", "the upstream answered without a message");
  return answerOf(body);
}

class OllamaStream implements StreamConverter {
  answer: ChatAnswer | null = null;
  #callCount = 0;
  readonly failureOf = failureOf;

  deltas(line: OllamaBody): ChatDelta[] {
    const said = answerOf(line);
    const { text: content, reasoning, calls, logprobs, finishReason } = said;
    const delta: ChatDelta = {
      ...(content && { content }),
      ...(reasoning && { reasoning_content: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map((call) => openedCall(this.#callCount++, call)) }),
    };
    if (line.done === true)
      this.answer = { ...said, finishReason: this.#callCount > 0 ? "tool_calls" : finishReason };
    return Object.keys(delta).length > 0 ? [{ ...delta, logprobs }] : [];
  }
}

export const ollama: Translation = {
  request: ollamaRequest,
  answer: ollamaAnswer,
  stream: () => new OllamaStream(),
};
