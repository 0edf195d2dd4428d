import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { until } from "@model-gateway/testing/until.ts";
import { ServiceError, toRestReply, toServiceError } from "../../src/kernel/errors.ts";
import { messages as voice } from "../../src/rooms/inference/voices/messages/index.ts";
import { refusalIn } from "../../src/rooms/inference/voices/replies.ts";
import { failureOf } from "../../src/rooms/inference/voices/voice.ts";
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
let client: Anthropic;
beforeAll(async () => {
  bench = await bootVoices();
  chat = bench.asked;
  client = new Anthropic({ baseURL: bench.url, authToken: bench.key, apiKey: null, maxRetries: 0 });
});
afterAll(() => bench.stop());
afterEach(() => bench.reset());

const weather: Anthropic.Tool = {
  name: "get_weather",
  description: "Weather of a city",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

test("messages.create: system, text and usage go through", async () => {
  const message = await client.messages.create({
    model: "m",
    max_tokens: 50,
    system: [
      { type: "text", text: "x-anthropic-billing-header: cc_version=2.1; cch=0;" },
      { type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } },
    ],
    messages: [{ role: "user", content: "Hello" }],
    stop_sequences: ["END"],
    temperature: 0.5,
  } as Anthropic.MessageCreateParamsNonStreaming);
  expect(chat.bodies[0]).toEqual({
    model: "m",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
    ],
    max_tokens: 50,
    temperature: 0.5,
    stop: ["END"],
  });
  expect(message.content).toEqual([{ type: "text", text: "ok", citations: null }]);
  expect(message).toMatchObject({
    type: "message",
    role: "assistant",
    model: "gpt-test",
    stop_reason: "end_turn",
  });
  expect(message.id).toMatch(/^msg_/);
  expect(message.usage).toMatchObject({ input_tokens: 5, cache_read_input_tokens: 16, output_tokens: 9 });
  expect(message._request_id).toBeTruthy();
});

test("x-api-key works like the bearer, and does not travel on", async () => {
  const other = new Anthropic({ baseURL: bench.url, apiKey: bench.key, authToken: null, maxRetries: 0 });
  await other.messages.create({ model: "m", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] });
  expect(chat.bodies).toHaveLength(1);
  expect(chat.requests[0]!.headers["x-api-key"]).toBeUndefined();
  expect(JSON.stringify(chat.requests[0]!.headers)).not.toContain(bench.key);
});

test("?beta=true and anthropic-beta are tolerated", async () => {
  const message = await client.beta.messages.create({
    model: "m",
    max_tokens: 5,
    betas: ["interleaved-thinking-2025-05-14"],
    messages: [{ role: "user", content: "Hi" }],
  });
  expect(message.content[0]).toMatchObject({ type: "text", text: "ok" });
  expect(chat.bodies[0].betas).toBeUndefined();
});

test("images, documents and mixed content become parts", async () => {
  await client.messages.create({
    model: "m",
    max_tokens: 5,
    messages: [
      {
        role: "user",
        content: [
          { type: "image", source: { type: "base64", media_type: "image/png", data: "aWJt" } },
          { type: "image", source: { type: "url", url: "https://example.com/a.jpg" } },
          {
            type: "document",
            title: "Notes",
            source: { type: "text", media_type: "text/plain", data: "body" },
          },
          { type: "text", text: "What is this?" },
        ],
      },
    ],
  });
  expect(chat.bodies[0].messages[0].content).toEqual([
    { type: "image_url", image_url: { url: "data:image/png;base64,aWJt" } },
    { type: "image_url", image_url: { url: "https://example.com/a.jpg" } },
    { type: "text", text: "Notes\n\nbody" },
    { type: "text", text: "What is this?" },
  ]);
});

test("a tool's round trip: call, result with an image, answer", async () => {
  chat.answer = completion(
    {
      content: null,
      tool_calls: [
        {
          id: "call_1",
          type: "function",
          function: { name: "get_weather", arguments: '{"city":"Paris"}' },
        },
      ],
    },
    "tool_calls",
  );
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Weather in Paris?" }];
  const first = await client.messages.create({
    model: "m",
    max_tokens: 50,
    messages,
    tools: [weather],
    tool_choice: { type: "any", disable_parallel_tool_use: true },
  });
  expect(first.stop_reason).toBe("tool_use");
  expect(first.content[0]).toMatchObject({
    type: "tool_use",
    id: "call_1",
    name: "get_weather",
    input: { city: "Paris" },
  });
  expect(chat.bodies[0]).toMatchObject({
    tools: [
      {
        type: "function",
        function: { name: "get_weather", description: "Weather of a city", parameters: weather.input_schema },
      },
    ],
    tool_choice: "required",
    parallel_tool_calls: false,
  });

  chat.answer = completion({ content: "Sunny." });
  messages.push({ role: "assistant", content: first.content as Anthropic.ContentBlockParam[] });
  messages.push({
    role: "user",
    content: [
      {
        type: "tool_result",
        tool_use_id: "call_1",
        content: [
          { type: "text", text: "22 °C" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "cGlj" } },
        ],
      },
      { type: "text", text: "And?" },
    ],
  });
  const second = await client.messages.create({ model: "m", max_tokens: 50, messages, tools: [weather] });
  expect(second.content[0]).toMatchObject({ type: "text", text: "Sunny." });
  expect(chat.bodies[1].messages).toEqual([
    { role: "user", content: "Weather in Paris?" },
    {
      role: "assistant",
      content: null,
      tool_calls: [
        { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Paris"}' } },
      ],
    },
    { role: "tool", tool_call_id: "call_1", content: "22 °C" },
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: "data:image/png;base64,cGlj" } },
        { type: "text", text: "And?" },
      ],
    },
  ]);
});

test("messages.stream: text, and the final message with its usage", async () => {
  chat.answer = eventStream(fixture("openai-text.sse"));
  const stream = client.messages.stream({
    model: "m",
    max_tokens: 50,
    messages: [{ role: "user", content: "Hi" }],
  });
  const pieces: string[] = [];
  stream.on("text", (piece) => pieces.push(piece));
  const message = await stream.finalMessage();
  expect(chat.bodies[0]).toMatchObject({ stream: true, stream_options: { include_usage: true } });
  expect(pieces).toEqual(["Grüß", " Gott, ", "世界", " 👋", "!"]);
  expect(message.content).toMatchObject([{ type: "text", text: "Grüß Gott, 世界 👋!" }]);
  expect(message.stop_reason).toBe("end_turn");
  expect(message.usage).toMatchObject({ input_tokens: 5, cache_read_input_tokens: 16, output_tokens: 9 });
  expect(stream.request_id).toMatch(/^[0-9a-f]{8}-/);
});

test("messages.stream: parallel calls are put together, each with its own input", async () => {
  chat.answer = eventStream(fixture("openai-tools.sse"));
  const stream = client.messages.stream({
    model: "m",
    max_tokens: 50,
    tools: [weather],
    messages: [{ role: "user", content: "Hi" }],
  });
  const finished: string[] = [];
  stream.on("contentBlock", (block) => finished.push(block.type));
  const message = await stream.finalMessage();
  expect(finished).toEqual(["text", "tool_use", "tool_use"]);
  expect(message.stop_reason).toBe("tool_use");
  expect(message.content).toMatchObject([
    { type: "text", text: "Let me look." },
    { type: "tool_use", id: "call_paris", input: { city: "Paris", note: 'a "}" b' } },
    { type: "tool_use", id: "call_tokyo", input: { city: "東京" } },
  ]);
});

test("thinking reaches the client that asked for it, and goes back as reasoning", async () => {
  chat.answer = eventStream(fixture("vllm-reasoning.sse"));
  const ask = { model: "m", max_tokens: 5000, messages: [{ role: "user" as const, content: "Hi" }] };
  const stream = client.messages.stream({ ...ask, thinking: { type: "enabled", budget_tokens: 1024 } });
  const message = await stream.finalMessage();
  expect(message.content).toMatchObject([
    { type: "thinking", thinking: "The user wants a number." },
    { type: "text", text: "42" },
  ]);
  expect(message.stop_reason).toBe("stop_sequence");
  expect(message.stop_sequence).toBe("END");

  const unasked = await client.messages.stream(ask).finalMessage();
  expect(unasked.content).toMatchObject([{ type: "text", text: "42" }]);

  chat.answer = completion({ content: "ok", reasoning: "hm" });
  const followUp = await client.messages.create({
    ...ask,
    messages: [
      ...ask.messages,
      { role: "assistant", content: message.content as Anthropic.ContentBlockParam[] },
      ask.messages[0]!,
    ],
    thinking: { type: "adaptive" },
  });
  expect(chat.bodies.at(-1).messages[1]).toEqual({
    role: "assistant",
    content: "42",
    reasoning_content: "The user wants a number.",
  });
  expect(followUp.content).toMatchObject([
    { type: "thinking", thinking: "hm" },
    { type: "text", text: "ok" },
  ]);
});

test("errors keep their status and come in Anthropic's form", async () => {
  const ask = { model: "m", max_tokens: 5, messages: [{ role: "user" as const, content: "Hi" }] };
  const stranger = new Anthropic({
    baseURL: bench.url,
    authToken: "service-nobody",
    apiKey: null,
    maxRetries: 0,
  });
  const unauthorized = await failing(stranger.messages.create(ask));
  expect(unauthorized).toBeInstanceOf(Anthropic.AuthenticationError);
  expect(unauthorized.error).toMatchObject({ type: "error", error: { type: "authentication_error" } });
  expect(unauthorized.apiMessage).toContain("Invalid API key");
  expect(chat.bodies).toHaveLength(0);

  const missing = await failing(client.messages.create({ ...ask, model: "nobody-serves-this" }));
  expect(missing).toBeInstanceOf(Anthropic.NotFoundError);
  expect(missing.error.request_id).toBe(missing.requestID);
  expect(missing.requestID).toMatch(/^[0-9a-f]{8}-/);

  const slow = await bootInference({ config: { apiRateLimitRpm: 1 } });
  try {
    const hasty = new Anthropic({ baseURL: slow.url, authToken: slow.key, apiKey: null, maxRetries: 0 });
    await hasty.messages.create(ask);
    const limited = await failing(hasty.messages.create(ask));
    expect(limited).toBeInstanceOf(Anthropic.RateLimitError);
    expect(limited.apiMessage).toBe("Rate limit exceeded. Try again later.");
  } finally {
    await slow.stop();
  }
});

test("every refusal of the gateway has a form of Anthropic's, and keeps what it says beside it", () => {
  const formOf = (error: ServiceError) => {
    const { head, body } = refusalIn(voice, toRestReply(error, "abc"), failureOf(error));
    return { ...head, body: JSON.parse(String(body)) };
  };
  const limited = formOf(new ServiceError("quota_exceeded", "quota", { retryAfterSeconds: 60 }));
  expect(limited).toMatchObject({ status: 429, headers: { "retry-after": "60", "request-id": "abc" } });
  expect(limited.body).toMatchObject({
    type: "error",
    error: { type: "rate_limit_error", message: "quota" },
    request_id: "abc",
  });
  expect(formOf(new ServiceError("payment_required", "pay"))).toMatchObject({
    status: 402,
    body: { error: { type: "billing_error" } },
  });
  const broken = formOf(toServiceError(new Error("secret detail")));
  expect(broken).toMatchObject({ status: 500, body: { error: { type: "api_error" } } });
  expect(JSON.stringify(broken)).not.toContain("secret detail");
});

test("a request that cannot be passed on is refused with the field's name", async () => {
  const refused = async (body: object, words: string) => {
    const response = await bench.post("/v1/messages", { model: "m", max_tokens: 5, ...body });
    expect(response.status).toBe(400);
    const { error } = (await response.json()) as Any;
    expect(error.type).toBe("invalid_request_error");
    expect(error.message).toContain(words);
  };
  const hi = [{ role: "user", content: "Hi" }];
  await refused({ messages: [] }, "`messages`");
  await refused({ messages: "Hi" }, "`messages`");
  await refused({ messages: [{ role: "tool", content: "x" }] }, "`messages.0.role`");
  await refused(
    { messages: [{ role: "user", content: [{ type: "container_upload" }] }] },
    "`messages.0.content.0.type`",
  );
  await refused(
    { messages: hi, tools: [{ type: "web_search_20250305", name: "web_search" }] },
    "`tools.0.type`",
  );
  await refused({ messages: hi, mcp_servers: [{}] }, "`mcp_servers`");
  await refused({ messages: hi, model: "" }, "`model`");
  expect((await bench.post("/v1/messages", "{")).status).toBe(400);
  expect(chat.bodies).toHaveLength(0);
});

test("an error inside the stream is thrown by the client", async () => {
  chat.answer = eventStream(fixture("error-midstream.sse"));
  const stream = client.messages.stream({
    model: "m",
    max_tokens: 5,
    messages: [{ role: "user", content: "Hi" }],
  });
  const error = await failing(stream.finalMessage());
  expect(error.error).toMatchObject({
    type: "error",
    error: { type: "api_error", message: "upstream 500: engine died" },
  });
});

test("a client that leaves stops the upstream, and nothing is read ahead of a slow one", async () => {
  const line = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "x".repeat(1024) } }] })}\n\n`;
  chat.answer = endlessStream(chat, line);
  const response = await bench.post("/v1/messages", {
    model: "m",
    max_tokens: 5,
    stream: true,
    messages: [{ role: "user", content: "Hi" }],
  });
  const reader = response.body!.getReader();
  await reader.read();
  await until("the stream began", () => chat.bytesRead > 0);
  let before = -1;
  // Sockets buffer some; once they are full, the upstream must stand still.
  while (before !== chat.bytesRead) {
    before = chat.bytesRead;
    await Bun.sleep(200);
  }
  expect(chat.bytesRead).toBeLessThan(64 * 1024 * 1024);
  await reader.cancel();
  await until("the abort reached the upstream", () => chat.aborts > 0);

  const stream = client.messages.stream({
    model: "m",
    max_tokens: 5,
    messages: [{ role: "user", content: "Hi" }],
  });
  stream.once("text", () => stream.abort());
  expect(await failing(stream.finalMessage())).toBeInstanceOf(Anthropic.APIUserAbortError);
  await until("the second abort reached the upstream", () => chat.aborts > 1);
});

test("a client that leaves before the answer stops the upstream", async () => {
  chat.answer = (request) => until("the gateway left", () => request.closedAtMs !== null);
  const leaving = new AbortController();
  const pending = failing(
    client.messages.create(
      { model: "m", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
      { signal: leaving.signal },
    ),
  );
  await until("the request arrived", () => chat.requests.length > 0);
  leaving.abort();
  expect(await pending).toBeInstanceOf(Anthropic.APIUserAbortError);
  await until("the abort reached the upstream", () => chat.aborts > 0);
});

test("countTokens estimates without asking a model", async () => {
  const small = await client.messages.countTokens({
    model: "m",
    messages: [{ role: "user", content: "Hello" }],
  });
  const large = await client.messages.countTokens({
    model: "m",
    system: "word ".repeat(400),
    tools: [weather],
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Hello" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "A".repeat(400_000) } },
        ],
      },
    ],
  });
  expect(small.input_tokens).toBeGreaterThan(1);
  expect(small.input_tokens).toBeLessThan(20);
  expect(large.input_tokens).toBeGreaterThan(1400);
  expect(large.input_tokens).toBeLessThan(1600);
  expect(chat.bodies).toHaveLength(0);
  const stranger = await bench.post(
    "/v1/messages/count_tokens",
    {},
    { headers: { authorization: "Bearer service-x" } },
  );
  expect(stranger.status).toBe(401);
});

test("models.list and models.retrieve in Anthropic's form; others get the usual one", async () => {
  const listed = [];
  for await (const model of client.models.list()) listed.push(model);
  // Advertised, but served by nobody here: agents would offer it.
  expect(listed.map(({ id }) => id)).not.toContain("claude-opus-5-5");
  expect(listed.find(({ id }) => id === "m")).toEqual({
    type: "model",
    id: "m",
    display_name: "m",
    created_at: "1970-01-01T00:00:00.000Z",
  } as (typeof listed)[number]);
  expect(await client.models.retrieve("m")).toMatchObject({ type: "model", id: "m" });
  const usual = await (await fetch(`${bench.url}/v1/models`)).json();
  expect(usual).toMatchObject({ object: "list" });
  expect(usual.data[0]).toMatchObject({ object: "model" });
});

test("message_start has an estimate of the prompt, the end what is charged", async () => {
  chat.answer = eventStream(fixture("openai-text.sse"));
  const stream = await client.messages.create({
    model: "m",
    max_tokens: 10,
    stream: true,
    messages: [{ role: "user", content: "word ".repeat(400) }],
  });
  const seen = [];
  for await (const event of stream) seen.push(event);
  const [start] = seen;
  if (start?.type !== "message_start") throw new Error("no message_start");
  expect(start.message.usage.input_tokens).toBeGreaterThan(200);
  expect(start.message.usage.input_tokens).toBeLessThan(1_000);
});
