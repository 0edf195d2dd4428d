import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

/** As an editor sends it: `input`, flat tools, to the chat path. */
const editorBody = {
  model: "m",
  input: [
    { role: "system", content: "be brief" },
    { role: "user", content: [{ type: "input_text", text: "hi there" }] },
  ],
  max_output_tokens: 50,
  store: false,
  include: ["reasoning.encrypted_content"],
};
const tools = [
  {
    type: "function",
    name: "look_up",
    description: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
];
const path = "/v1/chat/completions";

test("a Responses body on the chat path is answered as a chat completion", async () => {
  const answer = await (await bench.post(path, editorBody)).json();
  expect(answer).toMatchObject({
    object: "chat.completion",
    choices: [{ message: { role: "assistant", content: "hi there" }, finish_reason: "stop" }],
    usage: { prompt_tokens: 9, completion_tokens: 4 },
  });
  const sent = bench.upstream.requests.at(-1)!.json;
  expect(sent).toMatchObject({
    max_tokens: 50,
    messages: [
      { role: "system", content: "be brief" },
      { role: "user", content: "hi there" },
    ],
  });
  expect(sent.input).toBeUndefined();
});

test("streamed, with its flat tools, and without a usage chunk that it did not ask for", async () => {
  const response = await bench.post(path, { ...editorBody, stream: true, tools });
  const events = eventsOf(await response.text());
  expect(events.at(-1)).toBe("[DONE]");
  const chunks = events.slice(0, -1);
  expect(
    chunks.every(({ object, choices }) => object === "chat.completion.chunk" && choices.length > 0),
  ).toBe(true);
  const calls = chunks.flatMap(({ choices }) => choices[0].delta.tool_calls ?? []);
  expect(calls.map((call: { function: { arguments: string } }) => call.function.arguments).join("")).toBe(
    '{"city":"Oslo"}',
  );
  expect(bench.upstream.requests.at(-1)!.json.tools).toMatchObject([
    { type: "function", function: { name: "look_up" } },
  ]);
  expect((await bench.usageRows())[0]).toMatchObject({ prompt_tokens: 9, completion_tokens: 4 });
});

test("the official client's own chat stream reads it", async () => {
  const openai = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: bench.key, maxRetries: 0 });
  const body = { model: "m", input: "hi there", stream: true, stream_options: { include_usage: true } };
  const stream = await openai.chat.completions.create(
    body as unknown as OpenAI.ChatCompletionCreateParamsStreaming,
  );
  let text = "";
  let tokens = 0;
  for await (const { choices, usage } of stream) {
    text += choices[0]?.delta.content ?? "";
    tokens += usage?.total_tokens ?? 0;
  }
  expect({ text, tokens }).toEqual({ text: "hi there", tokens: 13 });
});

test("what is neither is refused as before, and what needs stored state says so", async () => {
  const neither = await bench.post(path, { model: "m" });
  expect(neither.status).toBe(400);
  expect((await neither.json()).error.message).toContain("`messages` is required");
  const stateful = await bench.post(path, { ...editorBody, previous_response_id: "resp_1" });
  expect(stateful.status).toBe(400);
  expect((await stateful.json()).error.message).toContain("previous_response_id");
});
