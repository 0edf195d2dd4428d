import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { chunk, politeHandler } from "@model-gateway/testing/upstream.ts";
import { embedMany, generateText, jsonSchema, streamText, tool } from "ai";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let provider: ReturnType<typeof createOpenAICompatible>;
beforeAll(async () => {
  bench = await bootInference();
  provider = createOpenAICompatible({
    name: "gateway",
    apiKey: bench.key,
    baseURL: `${bench.url}/v1`,
    includeUsage: true,
  });
});
afterAll(() => bench.stop());

const prompt = "good morning to you";
const weather = tool({
  description: "Weather of a city",
  inputSchema: jsonSchema<{ city: string }>({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
  }),
});

describe("the AI SDK's openai-compatible provider", () => {
  test("generates a text", async () => {
    const { text, usage } = await generateText({ model: provider("m"), prompt });
    expect(text).toBe(prompt);
    expect(usage.totalTokens).toBe(13);
  });

  test("streams a text with its usage", async () => {
    const result = streamText({ model: provider("m"), prompt });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    expect(text).toBe(prompt);
    expect((await result.usage).inputTokens).toBe(9);
    expect(await result.finishReason).toBe("stop");
  });

  test("calls a tool, as a whole and as a stream", async () => {
    const whole = await generateText({ model: provider("m"), prompt, tools: { weather } });
    expect(whole.toolCalls[0]).toMatchObject({ toolName: "weather", input: { city: "Oslo" } });
    const streamed = streamText({ model: provider("m"), prompt, tools: { weather } });
    expect((await streamed.toolCalls)[0]).toMatchObject({ toolName: "weather", input: { city: "Oslo" } });
  });

  test("embeds", async () => {
    const { embeddings } = await embedMany({ model: provider.embeddingModel("m"), values: ["abc", "de"] });
    expect(embeddings).toEqual([
      [3, 0.5, -1.25],
      [2, 0.5, -1.25],
    ]);
  });

  test("sees a cut stream as an error", async () => {
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "begun" } }));
      await Bun.sleep(20);
      reply.reset();
    });
    const errors: unknown[] = [];
    const result = streamText({
      model: provider("m"),
      prompt,
      maxRetries: 0,
      onError: ({ error }) => void errors.push(error),
    });
    const parts: string[] = [];
    for await (const part of result.fullStream) parts.push(part.type);
    expect(parts).toContain("error");
    expect(errors.length).toBe(1);
    bench.upstream.answer(politeHandler);
  });
});
