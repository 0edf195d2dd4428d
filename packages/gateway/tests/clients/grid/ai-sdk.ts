import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogle } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, type LanguageModel, streamText, tool } from "ai";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const weather = tool({
  description: TOOL.description,
  inputSchema: jsonSchema<{ city: string }>(TOOL.parameters),
  execute: async () => WEATHER,
});
const ROUNDS_MAX = 3;
// It would warn that it does not know the model.
globalThis.AI_SDK_LOG_WARNINGS = false;

function client(
  provider: string,
  surface: string,
  { modelOf, name = provider }: { modelOf: (door: Door) => LanguageModel; name?: string },
): Client {
  /** The library tells of errors in a stream by a callback; they are thrown here, as users do it. */
  const streamed = async (options: Parameters<typeof streamText>[0], each = () => {}) => {
    let failure: unknown;
    const { textStream } = streamText({
      ...options,
      onError: ({ error }) => {
        failure ??= error;
      },
    });
    const text = await joined(textStream, (piece) => {
      each();
      return piece;
    });
    if (failure) throw failure;
    return text;
  };
  return {
    name: `AI SDK, ${name}`,
    version: `ai ${versionOf("ai")}, ${provider} ${versionOf(provider)}`,
    surface,
    async ask(door, { prompt, stream }) {
      const model = modelOf(door);
      return stream ? streamed({ model, prompt }) : (await generateText({ model, prompt })).text;
    },
    useTool: (door, prompt) =>
      streamed({ model: modelOf(door), prompt, tools: { weather }, stopWhen: isStepCount(ROUNDS_MAX) }),
    leave: (door, prompt) =>
      leaving((controller) =>
        streamed({ model: modelOf(door), prompt, abortSignal: controller.signal }, () => controller.abort()),
      ),
  };
}

export const aiSdk: readonly Client[] = [
  client("@ai-sdk/openai-compatible", "/v1/chat/completions", {
    modelOf: ({ url, key, model }) =>
      createOpenAICompatible({ name: "gateway", apiKey: key, baseURL: `${url}/v1` })(model),
  }),
  client("@ai-sdk/openai", "/v1/responses", {
    name: "@ai-sdk/openai, responses",
    modelOf: ({ url, key, model }) => createOpenAI({ apiKey: key, baseURL: `${url}/v1` })(model),
  }),
  client("@ai-sdk/openai", "/v1/chat/completions", {
    name: "@ai-sdk/openai, chat",
    modelOf: ({ url, key, model }) => createOpenAI({ apiKey: key, baseURL: `${url}/v1` }).chat(model),
  }),
  client("@ai-sdk/anthropic", "/v1/messages", {
    modelOf: ({ url, key, model }) => createAnthropic({ authToken: key, baseURL: `${url}/v1` })(model),
  }),
  client("@ai-sdk/google", "/v1beta/models/{call}", {
    modelOf: ({ url, key, model }) => createGoogle({ apiKey: key, baseURL: `${url}/v1beta` })(model),
  }),
];
