/** OpenAI's models and chat completions, from the types of the openai SDK; Responses are beside it. */
import {
  type Desk,
  type Exchange,
  type FakeVendor,
  startVendor,
  type VendorOptions,
  words,
} from "./model.ts";
import { checkEffort, checkSampling, GPT_MODELS, type Json, modelOf, refuse, run } from "./openai-models.ts";
import { OpenAIResponses } from "./openai-responses.ts";

const CHAT_FIELDS = new Set([
  ...["messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias"],
  ...["logprobs", "max_completion_tokens", "max_tokens", "metadata", "modalities", "n", "moderation"],
  ...["parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options"],
  ...["prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed"],
  ...["service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools"],
  ...["top_logprobs", "top_p", "user", "verbosity", "web_search_options"],
]);
export function startOpenAI(options: VendorOptions = {}): FakeVendor {
  return startVendor("sk-proj-fake", options, (desk) => {
    const responses = new OpenAIResponses(desk);
    const thoughtCalls = new Map<string, string>();
    return async (exchange) => {
      const { request, reply } = exchange;
      if (request.headers.authorization !== `Bearer ${desk.apiKey}`)
        refuse("Incorrect API key provided.", { status: 401, code: "invalid_api_key" });
      const { pathname: path } = new URL(request.path, "http://fake");
      if (path === "/v1/models" && request.method === "GET")
        return reply.json({
          object: "list",
          data: Object.keys(GPT_MODELS).map((id) => ({
            id,
            object: "model",
            created: 1,
            owned_by: "openai",
          })),
        });
      if (path.startsWith("/v1/responses")) return responses.handle(exchange, path);
      if (path !== "/v1/chat/completions" || request.method !== "POST")
        refuse(`Invalid URL (${request.method} ${path})`, { status: 404 });
      checkChat(request.json);
      if (modelOf(request.json.model).showsThoughts) checkThoughts(thoughtCalls, request.json.messages);
      await chat(desk, thoughtCalls, exchange);
    };
  });
}

function checkChat(body: Json): void {
  const unknown = Object.keys(body).find((field) => !CHAT_FIELDS.has(field));
  if (unknown) refuse(`Unknown parameter: '${unknown}'.`, { param: unknown, code: "unknown_parameter" });
  const model = modelOf(body.model);
  if (!model.isChat)
    refuse("This model is only supported in v1/responses and not in v1/chat/completions.", {
      status: 404,
      param: "model",
    });
  const isReasoning = model.efforts.length > 0;
  if (isReasoning && !model.showsThoughts && body.max_tokens !== undefined)
    refuse(
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      { param: "max_tokens", code: "unsupported_parameter" },
    );
  const named = body.reasoning_effort;
  if (named !== undefined) checkEffort(named, model, "reasoning_effort");
  const hasTools = body.tools?.length > 0;
  const allows = {
    always: true,
    unnamed: named === undefined,
    none: named === "none",
    never: false,
  }[model.chatTools];
  if (hasTools && !allows)
    refuse(
      `Function tools with reasoning_effort are not supported for ${body.model} in /v1/chat/completions. Please use /v1/responses instead.`,
      { param: "reasoning_effort" },
    );
  checkSampling(body, named ?? model.effort);
  if (body.stream_options && !body.stream)
    refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", {
      param: "stream_options",
    });
  checkToolMessages(body.messages, model.showsThoughts);
}

/** Thoughts come back as they were shown. */
function checkThoughts(thoughtCalls: ReadonlyMap<string, string>, messages: Json[]): void {
  messages.forEach(({ tool_calls: calls = [], reasoning_content: thoughts }, at) => {
    const shown = thoughtCalls.get(calls[0]?.id);
    if (shown !== undefined && shown !== thoughts)
      refuse(`Missing \`reasoning_content\` field in the assistant message at message index ${at}.`);
  });
}

/** Every call is answered before anything else is said. */
function checkToolMessages(messages: Json[], showsThoughts = false): void {
  let open: string[] = [];
  messages.forEach((message, at) => {
    if (message.reasoning_content !== undefined && !showsThoughts)
      refuse(`Unknown parameter: 'messages[${at}].reasoning_content'.`, { code: "unknown_parameter" });
    if (message.role === "tool") {
      if (!open.includes(message.tool_call_id))
        refuse(
          "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
          { param: `messages.[${at}].role` },
        );
      open = open.filter((id) => id !== message.tool_call_id);
    } else {
      refuseOpen(open);
      open = (message.tool_calls ?? []).map(({ id }: Json) => id);
    }
  });
  refuseOpen(open);
}

function refuseOpen(open: readonly string[]): void {
  if (open.length > 0)
    refuse(
      `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${open.join(", ")}`,
      { param: "messages" },
    );
}

async function chat(desk: Desk, thoughtCalls: Map<string, string>, exchange: Exchange): Promise<void> {
  const { json: body } = exchange.request;
  const effort = body.reasoning_effort ?? modelOf(body.model).effort;
  const tools = body.tool_choice === "none" ? [] : (body.tools ?? []);
  const ran = run(desk, {
    body,
    prompt: [...(body.tools ?? []), ...body.messages].map((part) => JSON.stringify(part)).join("\n"),
    step: body.messages.filter(({ role }: Json) => role === "assistant").length,
    tools: tools.map((tool: Json) => tool.function.name),
    limit: body.max_completion_tokens ?? body.max_tokens,
    isReasoning: effort !== null && effort !== "none",
  });
  const { turn, promptTokens, outputTokens } = ran;
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    prompt_tokens_details: {
      cached_tokens: ran.cachedTokens,
      ...(ran.model.isWriteBilled && { cache_write_tokens: ran.writtenTokens }),
      audio_tokens: 0,
    },
    completion_tokens_details: { reasoning_tokens: ran.reasoningTokens, audio_tokens: 0 },
  };
  const calls = (turn.calls ?? []).map(({ name, args }) => ({
    id: desk.nextId("call_"),
    type: "function",
    function: { name, arguments: JSON.stringify(args) },
  }));
  const thoughts = ran.model.showsThoughts ? turn.thinking : undefined;
  if (thoughts !== undefined && calls[0]) thoughtCalls.set(calls[0].id, thoughts);
  const finish_reason = turn.isCut ? "length" : calls.length > 0 ? "tool_calls" : "stop";
  const id = desk.nextId("chatcmpl-");
  const frame = { id, created: 1_763_000_000, model: body.model, service_tier: "default" };
  const headers = {
    "x-request-id": desk.nextId("req_"),
    "openai-processing-ms": "5",
    "x-ratelimit-remaining-requests": "999",
  };
  if (body.stream) {
    const withUsage = body.stream_options?.include_usage === true;
    const chunk = (rest: Json) =>
      `data: ${JSON.stringify({ ...frame, object: "chat.completion.chunk", ...rest })}\n\n`;
    const delta = (delta: Json, finish: string | null = null) =>
      chunk({
        choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
        ...(withUsage && { usage: null }),
      });
    const pieces = [
      delta({ role: "assistant", content: turn.text ? "" : null, refusal: null }),
      ...words(thoughts ?? "").map((reasoning_content) => delta({ reasoning_content })),
      ...words(turn.text ?? "").map((content) => delta({ content })),
      ...calls.flatMap(({ function: { name, arguments: args }, ...call }, index) => [
        delta({ tool_calls: [{ index, ...call, function: { name, arguments: "" } }] }),
        delta({ tool_calls: [{ index, function: { arguments: args } }] }),
      ]),
      delta({}, finish_reason),
      ...(withUsage ? [chunk({ choices: [], usage })] : []),
      "data: [DONE]\n\n",
    ];
    return desk.stream(exchange, { pieces, headers, ended: (share) => ran.charge(id, share) });
  }
  ran.charge(id, 1);
  const message = {
    ...{ role: "assistant", content: turn.text ?? null, refusal: null, annotations: [] },
    ...(thoughts !== undefined && { reasoning_content: thoughts }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  const choices = [{ index: 0, message, logprobs: null, finish_reason }];
  await exchange.reply.json({ ...frame, object: "chat.completion", choices, usage }, 200, headers);
}
