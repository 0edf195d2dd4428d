import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chunk, politeHandler } from "@model-gateway/testing/upstream.ts";
import OpenAI from "openai";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let client: OpenAI;
beforeAll(async () => {
  bench = await bootInference();
  client = new OpenAI({ apiKey: bench.key, baseURL: `${bench.url}/v1`, maxRetries: 0 });
});
afterAll(() => bench.stop());

const messages = [{ role: "user" as const, content: "good morning to you" }];
const tools = [
  {
    type: "function" as const,
    function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
  },
];

describe("the openai client", () => {
  test("chats", async () => {
    const answer = await client.chat.completions.create({ model: "m", messages });
    expect(answer.choices[0]!.message.content).toBe("good morning to you");
    expect(answer.usage!.total_tokens).toBe(13);
    expect(answer._request_id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("iterates over a stream", async () => {
    const stream = await client.chat.completions.create({ model: "m", messages, stream: true });
    let text = "";
    for await (const part of stream) text += part.choices[0]?.delta.content ?? "";
    expect(text).toBe("good morning to you");
  });

  test("uses its stream helper, usage included", async () => {
    const stream = client.chat.completions.stream({
      model: "m",
      messages,
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]!.message.content).toBe("good morning to you");
    expect(final.usage!.prompt_tokens).toBe(9);
  });

  test("uses its stream helper on an upstream that leaves out role, index, type and finish", async () => {
    bench.upstream.answer((_, reply) =>
      reply.stream([
        `data: {"id":"1","created":1,"model":"m","object":"chat.completion.chunk","choices":[{"delta":{"tool_calls":[{"id":"c1","function":{"name":"weather","arguments":"{}"}}]}}]}\n\n`,
        "data: [DONE]\n\n",
      ]),
    );
    const final = await client.chat.completions.stream({ model: "m", messages, tools }).finalChatCompletion();
    expect(final.choices[0]!.message.tool_calls![0]).toMatchObject({ id: "c1", type: "function" });
    expect(final.choices[0]!.finish_reason).toBe("tool_calls");
    bench.upstream.answer(politeHandler);
  });

  test("calls tools, as a whole and as a stream", async () => {
    const whole = await client.chat.completions.create({ model: "m", messages, tools });
    expect(whole.choices[0]!.message.tool_calls![0]).toMatchObject({
      function: { name: "weather", arguments: '{"city":"Oslo"}' },
    });
    const final = await client.chat.completions.stream({ model: "m", messages, tools }).finalChatCompletion();
    expect(final.choices[0]!.message.tool_calls![0]).toMatchObject({
      function: { name: "weather", arguments: '{"city":"Oslo"}' },
    });
    expect(bench.upstream.requests.at(-1)!.json.tools).toEqual(tools);
  });

  test("embeds with its default, base64, and with floats", async () => {
    const base64 = await client.embeddings.create({ model: "m", input: ["abc", "de"] });
    expect(bench.upstream.requests.at(-1)!.json.encoding_format).toBe("base64");
    expect(base64.data.map(({ embedding }) => embedding)).toEqual([
      [3, 0.5, -1.25],
      [2, 0.5, -1.25],
    ]);
    const floats = await client.embeddings.create({ model: "m", input: "abcd", encoding_format: "float" });
    expect(floats.data[0]!.embedding).toEqual([4, 0.5, -1.25]);
  });

  test("lists models", async () => {
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toContain("m");
    expect(ids.length).toBe(7);
    expect(await client.models.retrieve("m")).toMatchObject({ id: "m", object: "model" });
    const unknown = await client.models.retrieve("acme/nothing").catch((e) => e);
    expect(unknown).toBeInstanceOf(OpenAI.NotFoundError);
    expect(unknown.message).toContain("No backend available for model: acme/nothing");
  });

  test("gets errors that it understands", async () => {
    const error = await client.chat.completions.create({ model: "nobody", messages }).catch((e) => e);
    expect(error).toBeInstanceOf(OpenAI.NotFoundError);
    expect(error.code).toBe("model_not_found");
    expect(error.message).toContain("No backend available for model: nobody");
    const stranger = new OpenAI({ apiKey: "service-none", baseURL: `${bench.url}/v1`, maxRetries: 0 });
    const refusal = await stranger.chat.completions.create({ model: "m", messages }).catch((e) => e);
    expect(refusal).toBeInstanceOf(OpenAI.AuthenticationError);
  });

  test("sees a cut stream as an error", async () => {
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "begun" } }));
      await Bun.sleep(20);
      reply.reset();
    });
    const stream = await client.chat.completions.create({ model: "m", messages, stream: true });
    const read = async () => {
      for await (const _ of stream);
    };
    const error = await read().catch((e) => e);
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error.code).toBe("bad_gateway");
    bench.upstream.answer(politeHandler);
  });
});
