import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogle } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { type Content, GoogleGenAI, type Part, ThinkingLevel } from "@google/genai";
import { generateText, isStepCount, jsonSchema, type LanguageModel, streamText, tool } from "ai";
import OpenAI from "openai";

/** Coding agents in miniature: the vendors' own clients, each going on until the model calls no more tools. */
export interface AgentOptions {
  url: string;
  key: string;
  model: string;
  isStream: boolean;
  /** Of the system prompt. */
  repeated?: number;
  /** The backend to be asked; absent: any. */
  provider?: string;
}

export interface AgentRun {
  turns: number;
  text: string;
  /** Thoughts that the client was shown, of all turns. */
  thoughts: string;
  /** Of the last turn, in the client's own terms. */
  usage: { prompt: number; cached: number; completion: number };
}

export type Agent = (options: AgentOptions) => Promise<AgentRun>;

const PNG_DATA =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PNG = `data:image/png;base64,${PNG_DATA}`;
const QUESTION = "What is in this picture? Look at every part of it.";
const RESULT = `seen ${"detail ".repeat(50)}`;
const SYSTEM = "You are careful, and look at every detail. ";
const PARAMETERS = { type: "object" as const, properties: { step: { type: "integer" } } };

const run = (): AgentRun => ({
  turns: 0,
  text: "",
  thoughts: "",
  usage: { prompt: 0, cached: 0, completion: 0 },
});

/** Chat completions by OpenAI's client, which drops what it does not know, as most agents do; DeepSeek's thoughts go back. */
export const chatAgent: Agent = async ({ url, key, model, isStream, repeated = 600 }) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: "system", content: SYSTEM.repeat(repeated) },
    {
      role: "user",
      content: [
        { type: "text", text: QUESTION },
        { type: "image_url", image_url: { url: PNG } },
      ],
    },
  ];
  const params = {
    model,
    reasoning_effort: "high" as const,
    tools: [{ type: "function" as const, function: { name: "look", parameters: PARAMETERS } }],
  };
  const told = run();
  for (;;) {
    let thought = "";
    const answer = isStream
      ? await client.chat.completions
          .stream({ ...params, messages, stream_options: { include_usage: true } })
          .on("chunk", ({ choices: [choice] }) => {
            thought += (choice?.delta as { reasoning_content?: string } | undefined)?.reasoning_content ?? "";
          })
          .finalChatCompletion()
      : await client.chat.completions.create({ ...params, messages });
    told.turns++;
    const { usage } = answer;
    told.usage = {
      prompt: usage?.prompt_tokens ?? 0,
      cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
      completion: usage?.completion_tokens ?? 0,
    };
    const [{ message, finish_reason }] = answer.choices as [OpenAI.ChatCompletion.Choice];
    const reasoning_content = thought || (message as { reasoning_content?: string }).reasoning_content;
    told.thoughts += reasoning_content ?? "";
    const { content, tool_calls: calls } = message;
    if (finish_reason !== "tool_calls") return { ...told, text: content ?? "" };
    const thoughts = /deepseek|-chat/.test(model) ? { reasoning_content } : {};
    messages.push({ role: "assistant", content, tool_calls: calls, ...thoughts });
    for (const { id } of calls ?? []) messages.push({ role: "tool", tool_call_id: id, content: RESULT });
  }
};

/** Responses by OpenAI's client, stateless and with encrypted reasoning, as Codex has it. */
export const responsesAgent: Agent = async ({ url, key, model, isStream, repeated = 600 }) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const input: OpenAI.Responses.ResponseInputItem[] = [
    {
      role: "user",
      content: [
        { type: "input_text", text: QUESTION },
        { type: "input_image", image_url: PNG, detail: "auto" },
      ],
    },
  ];
  const params: Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, "input"> = {
    model,
    instructions: SYSTEM.repeat(repeated),
    store: false,
    include: ["reasoning.encrypted_content"],
    reasoning: { effort: "high" },
    prompt_cache_key: "session-1",
    tools: [{ type: "function", name: "look", parameters: PARAMETERS, strict: false }],
  };
  const told = run();
  for (;;) {
    const answer = isStream
      ? await client.responses.stream({ ...params, input, stream: true }).finalResponse()
      : await client.responses.create({ ...params, input });
    told.turns++;
    const { usage } = answer;
    told.usage = {
      prompt: usage?.input_tokens ?? 0,
      cached: usage?.input_tokens_details.cached_tokens ?? 0,
      completion: usage?.output_tokens ?? 0,
    };
    for (const item of answer.output)
      if (item.type === "reasoning") told.thoughts += item.content?.map(({ text }) => text).join("") ?? "";
    const calls = answer.output.flatMap((item) => (item.type === "function_call" ? [item] : []));
    if (calls.length === 0) return { ...told, text: answer.output_text };
    input.push(...(answer.output as OpenAI.Responses.ResponseInputItem[]));
    for (const { call_id } of calls) input.push({ type: "function_call_output", call_id, output: RESULT });
  }
};

/** Messages by Anthropic's client, with the marks for the cache that Claude Code sets. */
export const messagesAgent: Agent = async ({ url, key, model, isStream, repeated = 600, provider }) => {
  const client = new Anthropic({ baseURL: url, apiKey: key, authToken: null, maxRetries: 0 });
  const cache_control = { type: "ephemeral" as const };
  const messages: Anthropic.MessageParam[] = [
    {
      role: "user",
      content: [
        { type: "text", text: QUESTION },
        { type: "image", source: { type: "base64", media_type: "image/png", data: PNG_DATA } },
      ],
    },
  ];
  const params = {
    model,
    max_tokens: 4_000,
    system: [
      {
        type: "text" as const,
        text: SYSTEM.repeat(repeated),
        cache_control: { ...cache_control, ttl: "1h" as const },
      },
    ],
    thinking: { type: "adaptive" as const, display: "summarized" as const },
    output_config: { effort: "high" as const },
    cache_control,
    tools: [{ name: "look", input_schema: PARAMETERS }],
    ...(provider && { provider }),
  };
  const told = run();
  for (;;) {
    const answer = isStream
      ? await client.messages.stream({ ...params, messages }).finalMessage()
      : await client.messages.create({ ...params, messages });
    told.turns++;
    const { usage } = answer;
    const cached = usage.cache_read_input_tokens ?? 0;
    told.usage = {
      prompt: usage.input_tokens + cached + (usage.cache_creation_input_tokens ?? 0),
      cached,
      completion: usage.output_tokens,
    };
    for (const block of answer.content) if (block.type === "thinking") told.thoughts += block.thinking;
    const calls = answer.content.filter((block) => block.type === "tool_use");
    const text = answer.content.map((block) => (block.type === "text" ? block.text : "")).join("");
    if (calls.length === 0) return { ...told, text };
    messages.push(
      { role: "assistant", content: answer.content },
      {
        role: "user",
        content: calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: RESULT })),
      },
    );
  }
};

/** Gemini's own API by Google's client. */
export const geminiAgent: Agent = async ({ url, key, model, isStream, repeated = 600 }) => {
  const client = new GoogleGenAI({ apiKey: key, vertexai: false, httpOptions: { baseUrl: url } });
  const contents: Content[] = [
    { role: "user", parts: [{ text: QUESTION }, { inlineData: { mimeType: "image/png", data: PNG_DATA } }] },
  ];
  const config = {
    systemInstruction: SYSTEM.repeat(repeated),
    thinkingConfig: { includeThoughts: true, thinkingLevel: ThinkingLevel.HIGH },
    tools: [{ functionDeclarations: [{ name: "look", parametersJsonSchema: PARAMETERS }] }],
  };
  const told = run();
  for (;;) {
    const parts: Part[] = [];
    let usage: {
      promptTokenCount?: number;
      cachedContentTokenCount?: number;
      candidatesTokenCount?: number;
    } = {};
    const chunks = isStream
      ? await client.models.generateContentStream({ model, contents, config })
      : [await client.models.generateContent({ model, contents, config })];
    for await (const chunk of chunks) {
      parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
      usage = chunk.usageMetadata ?? usage;
    }
    told.turns++;
    told.usage = {
      prompt: usage.promptTokenCount ?? 0,
      cached: usage.cachedContentTokenCount ?? 0,
      completion: usage.candidatesTokenCount ?? 0,
    };
    for (const { thought, text } of parts) if (thought) told.thoughts += text ?? "";
    const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
    const text = parts.map((part) => (part.thought ? "" : (part.text ?? ""))).join("");
    if (calls.length === 0) return { ...told, text };
    contents.push(
      { role: "model", parts },
      {
        role: "user",
        parts: calls.map(({ id, name }) => ({
          functionResponse: { id, name, response: { output: RESULT } },
        })),
      },
    );
  }
};

/** Vercel's AI SDK, which goes on by itself; each of its providers speaks another API. */
globalThis.AI_SDK_LOG_WARNINGS = false;
const aiAgent =
  (
    modelOf: (options: AgentOptions) => LanguageModel,
    providerOptions: Parameters<typeof generateText>[0]["providerOptions"],
  ): Agent =>
  async (options) => {
    const look = tool({ inputSchema: jsonSchema(PARAMETERS), execute: async () => RESULT });
    const asked = {
      model: modelOf(options),
      providerOptions,
      maxRetries: 0,
      instructions: SYSTEM.repeat(options.repeated ?? 600),
      tools: { look },
      stopWhen: isStepCount(12),
      messages: [
        {
          role: "user" as const,
          content: [
            { type: "text" as const, text: QUESTION },
            { type: "file" as const, mediaType: "image/png", data: PNG_DATA },
          ],
        },
      ],
    };
    let failure: unknown;
    const streamed = () =>
      streamText({
        ...asked,
        onError: ({ error }) => {
          failure = error;
        },
      });
    const answer = options.isStream ? streamed() : await generateText(asked);
    const steps = await Promise.resolve(answer.steps).catch((error) => {
      throw failure ?? error;
    });
    const { usage, text } = steps.at(-1)!;
    return {
      turns: steps.length,
      text,
      thoughts: steps.map(({ reasoningText = "" }) => reasoningText).join(""),
      usage: {
        prompt: usage.inputTokens ?? 0,
        cached: usage.inputTokenDetails.cacheReadTokens ?? 0,
        completion: usage.outputTokens ?? 0,
      },
    };
  };

const cache_control = { type: "ephemeral" as const };
export const aiAgents: Record<string, Agent> = {
  "AI SDK, chat": aiAgent(
    ({ url, key, model }) =>
      createOpenAICompatible({ name: "gateway", includeUsage: true, baseURL: `${url}/v1`, apiKey: key })(
        model,
      ),
    { gateway: { reasoningEffort: "high" } },
  ),
  "AI SDK, responses": aiAgent(
    ({ url, key, model }) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).responses(model),
    {
      openai: {
        store: false,
        include: ["reasoning.encrypted_content"],
        reasoningEffort: "high",
        reasoningSummary: "auto",
        forceReasoning: true,
      },
    },
  ),
  "AI SDK, messages": aiAgent(
    ({ url, key, model }) => createAnthropic({ baseURL: `${url}/v1`, apiKey: key })(model),
    {
      anthropic: {
        thinking: { type: "adaptive", display: "summarized" },
        effort: "high",
        cacheControl: cache_control,
      },
    },
  ),
  "AI SDK, gemini": aiAgent(
    ({ url, key, model }) => createGoogle({ baseURL: `${url}/v1beta`, apiKey: key })(model),
    { google: { thinkingConfig: { includeThoughts: true, thinkingLevel: "high" } } },
  ),
};
