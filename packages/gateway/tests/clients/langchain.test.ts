import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let model: ChatOpenAI;
beforeAll(async () => {
  bench = await bootInference();
  model = new ChatOpenAI({
    model: "m",
    apiKey: bench.key,
    configuration: { baseURL: `${bench.url}/v1` },
    maxRetries: 0,
    streamUsage: true,
  });
});
afterAll(() => bench.stop());

const question = "good morning to you";

describe("LangChain's ChatOpenAI", () => {
  test("invokes", async () => {
    const answer = await model.invoke(question);
    expect(answer.text).toBe(question);
    expect(answer.usage_metadata!.total_tokens).toBe(13);
  });

  test("streams", async () => {
    let text = "";
    for await (const piece of await model.stream(question)) text += piece.text;
    expect(text).toBe(question);
  });

  test("calls a tool", async () => {
    const weather = {
      type: "function",
      function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
    };
    const answer = await model.bindTools([weather]).invoke(question);
    expect(answer.tool_calls![0]).toMatchObject({ name: "weather", args: { city: "Oslo" } });
  });

  test("embeds", async () => {
    const embeddings = new OpenAIEmbeddings({
      model: "m",
      apiKey: bench.key,
      configuration: { baseURL: `${bench.url}/v1` },
      maxRetries: 0,
    });
    expect(await embeddings.embedDocuments(["abc", "de"])).toEqual([
      [3, 0.5, -1.25],
      [2, 0.5, -1.25],
    ]);
  });
});
