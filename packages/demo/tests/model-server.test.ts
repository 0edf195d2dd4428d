import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { DEMO_MODELS, type DemoModelServer, startDemoModelServer } from "../src/model-server.ts";

let server: DemoModelServer;
let client: OpenAI;
beforeAll(() => {
  server = startDemoModelServer();
  client = new OpenAI({ apiKey: "none", baseURL: `${server.url}/v1`, maxRetries: 0 });
});
afterAll(() => server.stop());

const messages = [{ role: "user" as const, content: "Hello there" }];
const tools = [
  {
    type: "function" as const,
    function: {
      name: "weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" }, unit: { enum: ["C", "F"] } },
      },
    },
  },
];

test("it lists its models", async () => {
  const ids = (await client.models.list()).data.map(({ id }) => id);
  expect(ids).toEqual(Object.keys(DEMO_MODELS));
});

test("the same question gets the same answer, streamed or not", async () => {
  const ask = () => client.chat.completions.create({ model: "demo", messages });
  const first = await ask();
  expect(await ask()).toEqual(first);
  expect(first.choices[0]!.message.content).toBe('This is the demo model. You said: "Hello there".');
  expect(first.usage!.total_tokens).toBe(first.usage!.prompt_tokens + first.usage!.completion_tokens);
  const streamed = await client.chat.completions.stream({ model: "demo", messages }).finalChatCompletion();
  expect(streamed.choices[0]!.message.content).toBe(first.choices[0]!.message.content);
  expect(streamed.choices[0]!.finish_reason).toBe("stop");
});

test("it calls the first tool, and repeats what the tool said", async () => {
  const { choices } = await client.chat.completions
    .stream({ model: "demo", messages, tools })
    .finalChatCompletion();
  const call = choices[0]!.message.tool_calls![0]!;
  expect(choices[0]!.finish_reason).toBe("tool_calls");
  expect(call).toMatchObject({ id: "call_demo_1", type: "function", function: { name: "weather" } });
  expect(JSON.parse((call as { function: { arguments: string } }).function.arguments)).toEqual({
    city: "Hello there",
    days: 1,
    unit: "C",
  });
  const after = await client.chat.completions.create({
    model: "demo",
    tools,
    messages: [
      ...messages,
      { role: "assistant", tool_calls: [call] },
      { role: "tool", tool_call_id: call.id, content: "rain" },
    ],
  });
  expect(after.choices[0]!.message.content).toBe("The tool answered: rain");
});

test("facts that end the newest message are remembered aloud, and not repeated", async () => {
  const content = "Hello there\n\nFacts recalled from earlier:\n- My cat is called Misty.";
  const { choices } = await client.chat.completions.create({
    model: "demo",
    messages: [{ role: "user", content }],
  });
  expect(choices[0]!.message.content).toEndWith('"Hello there". I remember: My cat is called Misty.');
});

test("embeddings are unit vectors in which related texts are close", async () => {
  const input = ["the cat sat on the mat", "a cat on a mat", "quarterly revenue forecast"];
  const { data } = await client.embeddings.create({ model: "demo-embed", input });
  const [a, b, c] = data.map(({ embedding }) => embedding);
  const dot = (x: number[], y: number[]) => x.reduce((sum, value, i) => sum + value * y[i]!, 0);
  expect(dot(a!, a!)).toBeCloseTo(1, 5);
  expect(dot(a!, b!)).toBeGreaterThan(dot(a!, c!));
  const small = await client.embeddings.create({ model: "demo-embed", input: "x", dimensions: 8 });
  expect(small.data[0]!.embedding).toHaveLength(8);
});

describe("faults by the model's name", () => {
  test("demo-429 and demo-500", async () => {
    const busy = await client.chat.completions
      .create({ model: "demo-429", messages })
      .catch((error) => error);
    expect(busy).toMatchObject({ status: 429 });
    expect(busy.headers.get("retry-after")).toBe("2");
    const broken = await client.chat.completions
      .create({ model: "demo-500", messages })
      .catch((error) => error);
    expect(broken).toMatchObject({ status: 500 });
  });

  test("demo-cut breaks in the middle, demo-slow takes its time", async () => {
    const request = (model: string) =>
      fetch(`${server.url}/v1/chat/completions`, {
        method: "POST",
        body: JSON.stringify({ model, messages, stream: true }),
      });
    const cut = await request("demo-cut");
    await expect(cut.text()).rejects.toThrow();
    const slow = await request("demo-slow");
    const reader = slow.body!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toContain("This ");
    await reader.cancel();
  });

  test("unknown models, paths and bodies are refused", async () => {
    const post = (path: string, body: string) =>
      fetch(`${server.url}${path}`, { method: "POST", body }).then(({ status }) => status);
    expect(await post("/v1/chat/completions", '{"model":"toString"}')).toBe(404);
    expect(await post("/v1/chat/completions", "nonsense")).toBe(400);
    expect(await post("/v1/other", "{}")).toBe(404);
    expect(await post("/v1/embeddings", '{"model":"demo","input":[1]}')).toBe(400);
  });
});
