import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, politeHandler } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let model: ChatOpenAI;
const modelNamed = (name: string) =>
  new ChatOpenAI({
    model: name,
    apiKey: bench.key,
    configuration: { baseURL: `${bench.url}/v1` },
    maxRetries: 0,
    streamUsage: true,
  });
beforeAll(async () => {
  bench = await bootInference();
  model = modelNamed("m");
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

  test("gets the gateway's error", async () => {
    const error = await modelNamed("nobody")
      .invoke(question)
      .catch((e) => e);
    expect(String(error.message)).toContain("No backend available for model: nobody");
  });

  test("aborts", async () => {
    bench.upstream.answer(async (request, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      while (request.closedAtMs === null) {
        await reply.write(chunk({ delta: { role: "assistant", content: "on and on " } }));
        await Bun.sleep(10);
      }
    });
    const leaving = new AbortController();
    const read = async () => {
      for await (const _ of await model.stream(question, { signal: leaving.signal })) leaving.abort();
    };
    await read().catch(() => {});
    await until("the upstream was let go", () => bench.upstream.requests.at(-1)!.closedAtMs !== null);
    bench.upstream.answer(politeHandler);
  });
});
