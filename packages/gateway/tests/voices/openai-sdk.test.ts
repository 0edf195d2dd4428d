import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import OpenAI from "openai";
import { bootInference } from "../support/inference.ts";
import {
  type Any,
  bootVoices,
  completion,
  endlessStream,
  eventStream,
  failing,
  fixture,
  type Upstream,
  type VoiceBench,
} from "./support.ts";

let bench: VoiceBench;
let chat: Upstream;
let client: OpenAI;
beforeAll(async () => {
  bench = await bootVoices();
  chat = bench.asked;
  client = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: bench.key, maxRetries: 0 });
});
afterAll(() => bench.stop());
afterEach(() => bench.reset());

const weather = {
  type: "function" as const,
  name: "get_weather",
  description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: true,
};

test("responses.create: a text in, a text out, with usage", async () => {
  const response = await client.responses.create({
    model: "m",
    instructions: "Be brief.",
    input: "Hello",
    max_output_tokens: 50,
    temperature: 0.5,
    reasoning: { effort: "low" },
    text: {
      format: { type: "json_schema", name: "answer", schema: { type: "object" }, strict: true },
      verbosity: "low",
    },
    metadata: { a: "b" },
    prompt_cache_key: "session-1",
  });
  expect(chat.bodies[0]).toEqual({
    model: "m",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
    ],
    temperature: 0.5,
    prompt_cache_key: "session-1",
    max_tokens: 50,
    reasoning_effort: "low",
    verbosity: "low",
    response_format: {
      type: "json_schema",
      json_schema: { name: "answer", schema: { type: "object" }, strict: true },
    },
  });
  expect(response.output_text).toBe("ok");
  expect(response).toMatchObject({
    object: "response",
    status: "completed",
    model: "gpt-test",
    store: true,
    metadata: { a: "b" },
    usage: {
      input_tokens: 21,
      input_tokens_details: { cached_tokens: 16 },
      output_tokens: 9,
      output_tokens_details: { reasoning_tokens: 4 },
      total_tokens: 30,
    },
  });
  expect(response.id).toMatch(/^resp_/);
});

test("the history of a coding session becomes a chat in the right order", async () => {
  await client.responses.create({
    model: "m",
    instructions: "You are a coding agent.",
    store: true,
    include: ["reasoning.encrypted_content"],
    tool_choice: "auto",
    parallel_tool_calls: false,
    tools: [
      weather,
      { type: "web_search" },
      {
        type: "custom",
        name: "apply_patch",
        description: "Edit files",
        format: { type: "grammar", syntax: "lark", definition: "start: x" },
      },
      {
        type: "namespace",
        name: "mcp_files",
        description: "Files",
        tools: [{ type: "function", name: "read", parameters: { type: "object" } }],
      },
    ] as OpenAI.Responses.Tool[],
    input: [
      { type: "message", role: "developer", content: [{ type: "input_text", text: "Sandbox: off" }] },
      { type: "message", role: "user", content: [{ type: "input_text", text: "<env/>" }] },
      {
        role: "user",
        content: [
          { type: "input_text", text: "Fix it" },
          { type: "input_image", image_url: "data:image/png;base64,aWJt", detail: "high" },
        ],
      },
      { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text: "hm" }] },
      {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "Looking.", annotations: [] }],
      },
      { type: "function_call", call_id: "c1", name: "read", namespace: "mcp_files", arguments: '{"p":1}' },
      { type: "custom_tool_call", call_id: "c2", name: "apply_patch", input: "*** Begin" },
      {
        type: "function_call_output",
        call_id: "c1",
        output: [
          { type: "input_text", text: "file" },
          { type: "input_image", image_url: "data:image/png;base64,cGlj", detail: "auto" },
        ],
      },
      { type: "custom_tool_call_output", call_id: "c2", output: "Done" },
      { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search", query: "q" } },
    ] as OpenAI.Responses.ResponseInput,
  });
  const { messages, tools, ...rest } = chat.bodies[0];
  expect(messages).toEqual([
    { role: "system", content: "You are a coding agent.\n\nSandbox: off" },
    {
      role: "user",
      content: [
        { type: "text", text: "<env/>" },
        { type: "text", text: "Fix it" },
        { type: "image_url", image_url: { url: "data:image/png;base64,aWJt", detail: "high" } },
      ],
    },
    {
      role: "assistant",
      content: "Looking.",
      reasoning_content: "hm",
      tool_calls: [
        { id: "c1", type: "function", function: { name: "mcp_files__read", arguments: '{"p":1}' } },
        { id: "c2", type: "function", function: { name: "apply_patch", arguments: '{"input":"*** Begin"}' } },
      ],
    },
    { role: "tool", tool_call_id: "c1", content: "file" },
    { role: "tool", tool_call_id: "c2", content: "Done" },
    {
      role: "user",
      content: [{ type: "image_url", image_url: { url: "data:image/png;base64,cGlj", detail: "auto" } }],
    },
  ]);
  expect(tools.map((tool: Any) => tool.function.name)).toEqual([
    "get_weather",
    "apply_patch",
    "mcp_files__read",
  ]);
  expect(tools[0]).toEqual({
    type: "function",
    function: {
      name: "get_weather",
      description: "Weather of a city",
      parameters: weather.parameters,
      strict: true,
    },
  });
  expect(tools[1].function.parameters.properties.input.description).toContain("start: x");
  expect(rest).toEqual({ model: "m", tool_choice: "auto", parallel_tool_calls: false });
});

test("what was left out is named in a header", async () => {
  const response = await bench.post("/v1/responses", {
    model: "m",
    input: "Hi",
    tools: [{ type: "web_search" }],
  });
  expect(response.status).toBe(200);
  expect(response.headers.get("x-service-dropped")).toBe("web_search");
  expect(chat.bodies[0].tools).toBeUndefined();
});

test("calls come back under the names and in the form that the client knows", async () => {
  const call = (id: string, name: string, args: string) => ({
    id,
    type: "function",
    function: { name, arguments: args },
  });
  chat.answer = completion(
    {
      content: null,
      reasoning_content: "hm",
      tool_calls: [
        call("c1", "get_weather", '{"city":"Paris"}'),
        call("c2", "apply_patch", '{"input":"*** Begin Patch"}'),
        call("c3", "mcp__read", "{}"),
      ],
    },
    "tool_calls",
  );
  const response = await client.responses.create({
    model: "m",
    input: "Hi",
    tools: [
      weather,
      { type: "custom", name: "apply_patch" },
      { type: "namespace", name: "mcp", description: "d", tools: [{ type: "function", name: "read" }] },
    ],
  });
  expect(response.output as Any[]).toMatchObject([
    { type: "reasoning", content: [{ type: "reasoning_text", text: "hm" }] },
    { type: "function_call", call_id: "c1", name: "get_weather", arguments: '{"city":"Paris"}' },
    { type: "custom_tool_call", call_id: "c2", name: "apply_patch", input: "*** Begin Patch" },
    { type: "function_call", call_id: "c3", name: "read", namespace: "mcp", arguments: "{}" },
  ]);
});

test("responses.stream: text, then the final response", async () => {
  chat.answer = eventStream(fixture("openai-text.sse"));
  const stream = client.responses.stream({ model: "m", input: "Hi" });
  const pieces: string[] = [];
  stream.on("response.output_text.delta", ({ delta }) => pieces.push(delta));
  const response = await stream.finalResponse();
  expect(chat.bodies[0]).toMatchObject({ stream: true, stream_options: { include_usage: true } });
  expect(pieces.join("")).toBe("Grüß Gott, 世界 👋!");
  expect(response.output_text).toBe("Grüß Gott, 世界 👋!");
  expect(response.status).toBe("completed");
  expect(response.usage?.total_tokens).toBe(30);
});

for (const [name, expected] of [
  ["openai-tools", { text: "Let me look.", calls: ["call_paris", "call_tokyo"], status: "completed" }],
  ["interleaved-tools", { text: "", calls: ["call_a", "call_b"], status: "completed" }],
  ["shared-index-tools", { text: "", calls: ["call_a", "call_b"], status: "completed" }],
  ["vllm-reasoning", { text: "42", calls: [], status: "completed" }],
  ["llamacpp-length", { text: "Hi", calls: [], status: "incomplete" }],
  ["openai-refusal", { text: "", calls: [], status: "completed" }],
] as const) {
  test(`responses.stream: the client puts ${name} together as the last event says it`, async () => {
    chat.answer = eventStream(fixture(`${name}.sse`));
    const stream = client.responses.stream({ model: "m", input: "Hi", tools: [weather] });
    const done: Any[] = [];
    for await (const event of stream) if (event.type === "response.output_item.done") done.push(event.item);
    const response = await stream.finalResponse();
    const calls = response.output.flatMap((item) => (item.type === "function_call" ? [item.call_id] : []));
    expect({ text: response.output_text, calls, status: response.status as string }).toEqual({
      ...expected,
      calls: [...expected.calls],
    });
    expect(response.output.map(({ id }) => id)).toEqual(done.map(({ id }) => id));
    for (const item of response.output) if (item.type === "function_call") JSON.parse(item.arguments);
  });
}

test("a custom tool's input streams out of its JSON", async () => {
  const chunk = (delta: object, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const piece = (fn: object, id?: string) =>
    chunk({ tool_calls: [{ index: 0, ...(id && { id }), function: fn }] });
  chat.answer = eventStream(
    piece({ name: "apply_patch", arguments: "" }, "c1") +
      piece({ arguments: '{"input":"*** Begin' }) +
      piece({ arguments: '\\n+x"}' }) +
      chunk({}, "tool_calls") +
      "data: [DONE]\n\n",
  );
  const stream = client.responses.stream({
    model: "m",
    input: "Hi",
    tools: [{ type: "custom", name: "apply_patch" }],
  });
  const response = await stream.finalResponse();
  expect(response.output as Any[]).toMatchObject([
    { type: "custom_tool_call", call_id: "c1", name: "apply_patch", input: "*** Begin\n+x" },
  ]);
});

test("errors keep their status and come in OpenAI's form", async () => {
  const stranger = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: "service-nobody", maxRetries: 0 });
  const unauthorized = await failing(stranger.responses.create({ model: "m", input: "Hi" }));
  expect(unauthorized).toBeInstanceOf(OpenAI.AuthenticationError);
  expect(unauthorized.message).toContain("Invalid API key");

  const missing = await failing(client.responses.create({ model: "nobody-serves-this", input: "Hi" }));
  expect(missing).toBeInstanceOf(OpenAI.NotFoundError);
  expect(missing).toMatchObject({ code: "model_not_found", type: "invalid_request_error" });
  expect(missing.message).toContain("No backend available for model: nobody-serves-this");
  expect(missing.requestID).toMatch(/^[0-9a-f]{8}-/);

  const slow = await bootInference({ config: { apiRateLimitRpm: 1 } });
  try {
    const hasty = new OpenAI({ baseURL: `${slow.url}/v1`, apiKey: slow.key, maxRetries: 0 });
    await hasty.responses.create({ model: "m", input: "Hi" });
    const limited = await failing(hasty.responses.create({ model: "m", input: "Hi" }));
    expect(limited).toBeInstanceOf(OpenAI.RateLimitError);
    expect(limited.error.message).toBe("Rate limit exceeded. Try again later.");
  } finally {
    await slow.stop();
  }
});

test("what needs server-side state is refused, and says what to send instead", async () => {
  const refused = async (body: object, words: string) => {
    const response = await bench.post("/v1/responses", { model: "m", input: "Hi", ...body });
    expect(response.status).toBe(400);
    expect(((await response.json()) as Any).error.message).toContain(words);
  };
  await refused(
    { previous_response_id: "resp_1" },
    "`previous_response_id`: no such response of yours is kept",
  );
  await refused({ conversation: "conv_1" }, "`conversation`");
  await refused({ prompt: { id: "p" } }, "`prompt`");
  await refused({ background: true }, "`background`");
  await refused({ input: [{ type: "item_reference", id: "msg_1" }] }, "`input.0`");
  await refused(
    { input: [{ type: "message", role: "user", content: [{ type: "input_image", file_id: "f" }] }] },
    "image_url",
  );
  await refused({ input: undefined }, "`input`");
  await refused(
    { tool_choice: { type: "web_search_preview" }, tools: [{ type: "web_search_preview" }] },
    "`tool_choice.type`",
  );
  expect(chat.bodies).toHaveLength(0);
});

test("an error inside the stream is thrown by the client, after the failed response", async () => {
  chat.answer = eventStream(fixture("error-midstream.sse"));
  const stream = await client.responses.create({ model: "m", input: "Hi", stream: true });
  const types: string[] = [];
  const error = await failing(
    (async () => {
      for await (const event of stream) types.push(event.type);
    })(),
  );
  expect(types.at(-1)).toBe("response.failed");
  expect(error).toBeInstanceOf(OpenAI.APIError);
  expect(error.message).toContain("engine died");
});

test("a client that leaves stops the upstream", async () => {
  const line = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "x" } }] })}\n\n`;
  chat.answer = endlessStream(chat, line);
  const stream = await client.responses.create({ model: "m", input: "Hi", stream: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  await until("the abort reached the upstream", () => chat.aborts > 0);
});
