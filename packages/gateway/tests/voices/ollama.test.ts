import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { HumanMessage } from "@langchain/core/messages";
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, usageChunk } from "@model-gateway/testing/upstream.ts";
import { Ollama } from "ollama";
import { bootVoices, completion, endlessStream, type VoiceBench } from "./support.ts";

let bench: VoiceBench;
let client: Ollama;
const headers = () => ({ authorization: `Bearer ${bench.key}` });
beforeAll(async () => {
  bench = await bootVoices();
  client = new Ollama({ host: bench.url, headers: headers() });
});
afterAll(() => bench.stop());
afterEach(() => bench.reset());

const ask = { model: "m", messages: [{ role: "user", content: "Why is the sky blue?" }] };
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Weather of a city",
    parameters: { type: "object", required: ["city"], properties: { city: { type: "string" } } },
  },
};

test("a chat as a whole, with options, in both directions", async () => {
  bench.asked.answer = completion({ content: "Rayleigh.", reasoning_content: "hm" });
  const answer = await client.chat({
    ...ask,
    format: { type: "object" },
    think: "low",
    options: { temperature: 0.5, num_predict: 77, stop: ["x"], num_ctx: 4096, seed: 3 },
  });
  expect(answer).toMatchObject({
    model: "m",
    message: { role: "assistant", content: "Rayleigh.", thinking: "hm" },
    done: true,
    done_reason: "stop",
    prompt_eval_count: 21,
    eval_count: 9,
  });
  expect(bench.asked.bodies[0]).toEqual({
    ...ask,
    temperature: 0.5,
    seed: 3,
    stop: ["x"],
    max_tokens: 77,
    reasoning_effort: "low",
    response_format: { type: "json_schema", json_schema: { name: "answer", schema: { type: "object" } } },
  });
  const [row] = await bench.usageRows();
  expect(row).toMatchObject({ model: "m", prompt_tokens: 21, completion_tokens: 9 });
});

test("a streamed chat: one line a piece, and the usage in the last", async () => {
  bench.asked.answer = (_, reply) =>
    reply.stream([
      chunk({ delta: { role: "assistant", content: "" } }),
      chunk({ delta: { reasoning_content: "hm" } }),
      chunk({ delta: { content: "Hel" } }),
      chunk({ delta: { content: "lo" } }),
      chunk({ finish_reason: "length" }),
      usageChunk(),
      DONE,
    ]);
  const parts = [];
  for await (const part of await client.chat({ ...ask, stream: true })) parts.push(part);
  expect(parts.map(({ message }) => message.content).join("")).toBe("Hello");
  expect(parts[0]!.message.thinking).toBe("hm");
  expect(parts.at(-1)).toMatchObject({
    done: true,
    done_reason: "length",
    prompt_eval_count: 9,
    eval_count: 4,
  });
  expect(bench.asked.bodies[0].stream).toBe(true);
});

test("a tool is called, and its result finds its call again", async () => {
  const tool_calls = [
    { id: "c1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
  ];
  bench.asked.answer = completion({ content: null, tool_calls }, "tool_calls");
  const first = await client.chat({ ...ask, tools: [weather] });
  expect(first.message.tool_calls![0]!.function).toEqual({
    name: "get_weather",
    arguments: { city: "Oslo" },
  });
  bench.asked.answer = completion({ content: "Rain." });
  const png = "iVBORw0KGgo=";
  await client.chat({
    model: "m",
    messages: [
      { role: "user", content: "Look", images: [png] },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ function: { name: "get_weather", arguments: { city: "Oslo" } } }],
      },
      { role: "tool", content: "rain", tool_name: "get_weather" },
    ],
  });
  expect(bench.asked.bodies.at(-1).messages).toEqual([
    {
      role: "user",
      content: [
        { type: "text", text: "Look" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
      ],
    },
    {
      role: "assistant",
      content: null,
      tool_calls: [
        { id: "call_0", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } },
      ],
    },
    { role: "tool", tool_call_id: "call_0", content: "rain" },
  ]);
});

test("generate: a prompt is a chat, a gap is a completion", async () => {
  const answer = await client.generate({ model: "m", system: "Be brief.", prompt: "Hello" });
  expect(answer).toMatchObject({ model: "m", response: "ok", done: true, eval_count: 9 });
  expect(bench.asked.bodies[0].messages).toEqual([
    { role: "system", content: "Be brief." },
    { role: "user", content: "Hello" },
  ]);
  const text = { id: "c", object: "text_completion", created: 1, model: "m" };
  bench.upstream.answer((request, reply) => {
    if (!request.json.stream)
      return reply.json({
        ...text,
        choices: [{ index: 0, text: "a + b", finish_reason: "stop" }],
        usage: { prompt_tokens: 7, completion_tokens: 3 },
      });
    return reply.stream([
      `data: ${JSON.stringify({ ...text, choices: [{ index: 0, text: "a + b", finish_reason: "stop" }] })}\n\n`,
      DONE,
    ]);
  });
  try {
    const gap = { model: "m", prompt: "def add(a, b): return ", suffix: "\n" };
    const filled = await client.generate(gap);
    expect(filled).toMatchObject({ response: "a + b", prompt_eval_count: 7, eval_count: 3 });
    const sent = bench.upstream.requests.at(-1)!;
    expect(sent.path).toEndWith("/v1/completions");
    expect(sent.json).toMatchObject({ prompt: gap.prompt, suffix: "\n" });
    let streamed = "";
    for await (const part of await client.generate({ ...gap, stream: true })) streamed += part.response;
    expect(streamed).toBe("a + b");
  } finally {
    bench.upstream.answer((request, reply) => bench.asked.answer(request, reply));
  }
});

test("what warms a model up asks no model and costs nothing", async () => {
  const before = (await bench.usageRows()).length;
  expect(await client.generate({ model: "m", prompt: "" })).toMatchObject({
    done: true,
    done_reason: "load",
  });
  expect(await client.chat({ model: "m", messages: [] })).toMatchObject({ done_reason: "load" });
  await expect(client.chat({ model: "none", messages: [] })).rejects.toThrow(/No backend/);
  expect(bench.asked.bodies).toHaveLength(0);
  expect((await bench.usageRows()).length).toBe(before);
});

test("models: tags, show, version; a name with and without its tag", async () => {
  const { models } = await client.list();
  expect(models.map(({ name }) => name)).toContain("m");
  const shown = await client.show({ model: "m:latest" });
  expect(shown.capabilities).toContain("completion");
  expect(Object.keys(shown.model_info)).toContain("general.architecture");
  await expect(client.show({ model: "none" })).rejects.toThrow(/No backend/);
  expect((await client.version()).version).toMatch(/^\d+\./);
  expect((await client.chat({ ...ask, model: "m:latest" })).message.content).toBe("ok");
});

test("vectors, charged like those of the other path", async () => {
  bench.upstream.answer((_, reply) =>
    reply.json({
      object: "list",
      model: "m",
      data: [
        { object: "embedding", index: 0, embedding: [0.5, -1] },
        { object: "embedding", index: 1, embedding: [1, 2] },
      ],
      usage: { prompt_tokens: 6, total_tokens: 6 },
    }),
  );
  const { embeddings, prompt_eval_count } = await client.embed({ model: "m", input: ["a", "b"] });
  expect(embeddings).toEqual([
    [0.5, -1],
    [1, 2],
  ]);
  expect(prompt_eval_count).toBe(6);
  const [row] = await bench.usageRows();
  expect(row).toMatchObject({ prompt_tokens: 6, completion_tokens: 0 });
  const langchain = new OllamaEmbeddings({ model: "m", baseUrl: bench.url, headers: new Headers(headers()) });
  expect(await langchain.embedDocuments(["a", "b"])).toEqual([
    [0.5, -1],
    [1, 2],
  ]);
  bench.upstream.answer((request, reply) => bench.asked.answer(request, reply));
});

test("LangChain's client, streamed and with a tool", async () => {
  const model = new ChatOllama({
    model: "m",
    baseUrl: bench.url,
    headers: new Headers(headers()),
    maxRetries: 0,
  });
  bench.asked.answer = (_, reply) =>
    reply.stream([
      chunk({ delta: { role: "assistant", content: "Hel" } }),
      chunk({ delta: { content: "lo" } }),
      chunk({ finish_reason: "stop" }),
      usageChunk(),
      DONE,
    ]);
  let text = "";
  for await (const part of await model.stream([new HumanMessage("Hi")])) text += part.content;
  expect(text).toBe("Hello");
  bench.asked.answer = (_, reply) =>
    reply.stream([
      chunk({
        delta: {
          role: "assistant",
          tool_calls: [
            { index: 0, id: "c1", type: "function", function: { name: "get_weather", arguments: "" } },
          ],
        },
      }),
      chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] } }),
      chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] } }),
      chunk({ finish_reason: "tool_calls" }),
      usageChunk(),
      DONE,
    ]);
  const called = await model.bindTools([weather]).invoke([new HumanMessage("Weather in Oslo?")]);
  expect(called.tool_calls).toMatchObject([{ name: "get_weather", args: { city: "Oslo" } }]);
  expect(called.usage_metadata).toMatchObject({ input_tokens: 9, output_tokens: 4 });
});

test("refusals in the form that these clients read; bad fields by their names", async () => {
  const stranger = new Ollama({ host: bench.url, headers: { authorization: "Bearer service-nope" } });
  await expect(stranger.chat(ask)).rejects.toThrow(/Invalid API key/);
  await expect(client.chat({ ...ask, model: "none" })).rejects.toThrow(/No backend available/);
  const refused = async (body: object, field: string) => {
    const reply = await bench.post("/api/chat", { ...ask, ...body });
    expect(reply.status).toBe(400);
    expect((await reply.json()).error).toContain(field);
  };
  await refused({ options: { num_predict: -7 } }, "options.num_predict");
  await refused({ options: { Num_Predict: 7 } }, "options.Num_Predict");
  await refused({ options: { n: 50 } }, "options.n");
  await refused({ messages: [{ role: "wizard", content: "x" }] }, "messages.0.role");
  expect(bench.asked.bodies).toHaveLength(0);
  const plain = await fetch(`${bench.url}/api/chat`, { method: "POST", body: JSON.stringify(ask) });
  expect(plain.status).toBe(401);
});

test("an upstream that breaks is told in the stream, one that refuses by the status", async () => {
  bench.asked.answer = (_, reply) =>
    reply.stream([chunk({ delta: { content: "Hel" } }), `data: {"error":{"message":"out of memory"}}\n\n`]);
  const read = async () => {
    for await (const _ of await client.chat({ ...ask, stream: true }));
  };
  await expect(read()).rejects.toThrow(/out of memory/);
});

test("arguments of a tool that do not end are cut off", async () => {
  const call = {
    index: 0,
    id: "c",
    type: "function",
    function: { name: "f", arguments: "x".repeat(500_000) },
  };
  bench.asked.answer = endlessStream(bench.asked, chunk({ delta: { tool_calls: [call] } }));
  const text = await (
    await bench.post("/api/chat", { model: "m", messages: [{ role: "user", content: "hi" }] })
  ).text();
  expect(JSON.parse(text.trim().split("\n").at(-1)!)).toEqual({
    error: expect.stringContaining("characters of arguments"),
  });
  await until("the upstream is stopped", () => bench.asked.aborts === 1);
});

test("a client that aborts frees the upstream", async () => {
  bench.asked.answer = endlessStream(bench.asked, chunk({ delta: { content: "x" } }));
  const own = new Ollama({ host: bench.url, headers: headers() });
  const stream = await own.chat({ ...ask, stream: true });
  const reading = (async () => {
    for await (const _ of stream) own.abort();
  })();
  await reading.then(
    () => null,
    () => null,
  );
  await until("the upstream is left", () => bench.asked.aborts > 0);
  await bench.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
});
