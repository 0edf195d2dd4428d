import { afterAll, beforeAll, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, completion, DONE, politeHandler, usageChunk } from "@model-gateway/testing/upstream.ts";
import OpenAI from "openai";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { failing, fixture } from "./support.ts";

let bench: InferenceBench;
let anthropic: Anthropic;
let openai: OpenAI;
beforeAll(async () => {
  bench = await bootInference();
  anthropic = new Anthropic({ baseURL: bench.url, authToken: bench.key, apiKey: null, maxRetries: 0 });
  openai = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: bench.key, maxRetries: 0 });
});
afterAll(() => bench.stop());

const ask = { model: "m", max_tokens: 100, messages: [{ role: "user" as const, content: "hi there" }] };
const lookUp = { type: "object" as const, properties: { city: { type: "string" } } };

test("a message is answered, routed and recorded like a chat", async () => {
  const message = await anthropic.messages.create(ask, { headers: { "x-service-ref": "order-8" } });
  expect(message.content).toMatchObject([{ type: "text", text: "hi there" }]);
  expect(message.usage).toMatchObject({ input_tokens: 9, output_tokens: 4 });
  expect(bench.upstream.requests.at(-1)!.json).toMatchObject({ model: "m", max_tokens: 100 });
  const [row] = await bench.usageRows();
  expect(row).toMatchObject({
    model: "m",
    backend: "gateway",
    prompt_tokens: 9,
    completion_tokens: 4,
    ref_id: "order-8",
  });
});

test("streamed answers of both APIs are recorded once each, with the upstream's counts", async () => {
  const before = (await bench.usageRows()).length;
  const stream = anthropic.messages.stream(ask);
  const message = await stream.finalMessage();
  expect(message.content).toMatchObject([{ type: "text", text: "hi there" }]);
  expect(message.usage).toMatchObject({ input_tokens: 9, output_tokens: 4 });
  const response = await openai.responses.stream({ model: "m", input: "hi there" }).finalResponse();
  expect(response.output_text).toBe("hi there");
  expect(response.usage).toMatchObject({ input_tokens: 9, output_tokens: 4, total_tokens: 13 });
  const whole = await openai.responses.create({ model: "m", input: "hi there" });
  expect(whole.output_text).toBe("hi there");
  const rows = await bench.usageRows();
  expect(rows.length - before).toBe(3);
  expect(rows.slice(0, 3).every((row) => row.prompt_tokens === 9 && row.completion_tokens === 4)).toBe(true);
});

test("parts of a tool call that are of another type than they should be do not reach the client so", async () => {
  const call = { index: 0, id: 7, type: "function", function: { name: "f", arguments: { city: "Oslo" } } };
  const nameless = { index: 1, id: "c2", type: "function", function: { name: { a: 1 }, arguments: null } };
  for (const stream of [true, false]) {
    bench.upstream.answer((_, reply) => {
      const tool_calls = [call, nameless];
      if (stream)
        return reply.stream([
          chunk({ delta: { role: "assistant", tool_calls } }),
          chunk({ finish_reason: "tool_calls" }),
          usageChunk(),
          DONE,
        ]);
      const message = { role: "assistant", content: null, tool_calls };
      return reply.json(completion("", { choices: [{ index: 0, message, finish_reason: "tool_calls" }] }));
    });
    const message = stream
      ? await anthropic.messages.stream(ask).finalMessage()
      : await anthropic.messages.create(ask);
    expect(message.content).toMatchObject([
      { type: "tool_use", id: expect.stringMatching(/^call_/), name: "f", input: { city: "Oslo" } },
      { type: "tool_use", id: "c2", name: "", input: {} },
    ]);
    const asked = { model: "m", input: "hi" };
    const response = stream
      ? await openai.responses.stream(asked).finalResponse()
      : await openai.responses.create(asked);
    expect(response.output).toMatchObject([
      { call_id: expect.stringMatching(/^call_/), name: "f", arguments: '{"city":"Oslo"}' },
      { call_id: "c2", name: "", arguments: "{}" },
    ]);
    const lines = await (await bench.post("/api/chat", { ...ask, stream })).text();
    expect(lines).toContain('"arguments":{"city":"Oslo"}');
  }
  bench.upstream.answer(politeHandler);
});

test("a part of the tokens is not told as more than all of them", async () => {
  const usage = {
    prompt_tokens: 9,
    completion_tokens: 4,
    total_tokens: 13,
    prompt_tokens_details: { cached_tokens: 1e308, cache_write_tokens: -7 },
    completion_tokens_details: { reasoning_tokens: 5 },
  };
  bench.upstream.answer((_, reply) => reply.json(completion("ok", { usage })));
  const response = await openai.responses.create({ model: "m", input: "hi" });
  expect(response.usage).toMatchObject({
    input_tokens: 9,
    input_tokens_details: { cached_tokens: 9, cache_write_tokens: 0 },
    output_tokens_details: { reasoning_tokens: 4 },
  });
  bench.upstream.answer(politeHandler);
});

test("what was left out is named, but not thousands of names", async () => {
  const input = Array.from({ length: 2_000 }, (_, i) => ({ type: `odd_${i}` }));
  const answer = await bench.post("/v1/responses", {
    model: "m",
    input: [{ role: "user", content: "hi" }, ...input],
  });
  expect(answer.status).toBe(200);
  const named = answer.headers.get("x-service-dropped")!;
  expect(named).toStartWith("odd_0, odd_1, ");
  expect(named).toEndWith("odd_31, 1968 more");
});

test("an answer that is nested without end is the upstream's failure", async () => {
  const deep = "[".repeat(400_000) + "]".repeat(400_000);
  const head = '"id":"c","created":1,"model":"m"';
  const part = `{"content":"x","more":${deep}}`;
  for (const stream of [true, false]) {
    for (const path of ["/v1/chat/completions", "/v1/messages", "/api/chat"]) {
      bench.upstream.answer(async (_, reply) => {
        if (stream)
          return reply.stream([
            `data: {${head},"object":"chat.completion.chunk","choices":[{"index":0,"delta":${part},"finish_reason":null}]}\n\n`,
            DONE,
          ]);
        reply.head(200, { "content-type": "application/json" });
        await reply.write(`{${head},"choices":[{"index":0,"message":${part},"finish_reason":"stop"}]}`);
        await reply.end();
      });
      const answer = await bench.post(path, { ...ask, stream });
      expect([path, stream, answer.status, await answer.text()]).toEqual([
        path,
        stream,
        502,
        expect.stringContaining("nested too deeply"),
      ]);
      // A backend that fails three times in a row is left alone.
      bench.upstream.answer(politeHandler);
      expect((await bench.post(path, { ...ask, stream: false })).status).toBe(200);
    }
  }
});

test("tools go there and back on both APIs", async () => {
  const message = await anthropic.messages
    .stream({ ...ask, tools: [{ name: "look_up", input_schema: lookUp }] })
    .finalMessage();
  expect(message.stop_reason).toBe("tool_use");
  expect(message.content).toMatchObject([{ type: "tool_use", name: "look_up", input: { city: "Oslo" } }]);
  const response = await openai.responses
    .stream({
      model: "m",
      input: "hi",
      tools: [{ type: "function", name: "look_up", parameters: lookUp, strict: false }],
    })
    .finalResponse();
  expect(response.output).toMatchObject([
    { type: "function_call", call_id: "call_1", name: "look_up", arguments: '{"city":"Oslo"}' },
  ]);
});

test("recorded streams survive the whole way", async () => {
  for (const [name, text] of [
    ["openai-text", "Grüß Gott, 世界 👋!"],
    ["llamacpp-length", "Hi"],
    ["vllm-reasoning", "42"],
  ] as const) {
    bench.upstream.answer((_, reply) => reply.stream([fixture(`${name}.sse`)]));
    expect(await anthropic.messages.stream(ask).finalText()).toBe(text);
    const response = await openai.responses.stream({ model: "m", input: "hi" }).finalResponse();
    expect(response.output_text).toBe(text);
  }
  bench.upstream.answer(politeHandler);
});

test("an answer without usage is told with the counts that are charged", async () => {
  bench.upstream.answer((_, reply) => reply.stream([fixture("shared-index-tools.sse")]));
  const charged = async () => {
    const [{ prompt_tokens, completion_tokens }] = await bench.usageRows();
    return [prompt_tokens, completion_tokens];
  };
  const message = await anthropic.messages.stream(ask).finalMessage();
  const { input_tokens, output_tokens } = message.usage;
  expect([input_tokens, output_tokens]).toEqual(await charged());
  expect(input_tokens).toBeGreaterThan(5);
  expect(output_tokens).toBeGreaterThan(1);
  const { usage } = await openai.responses.stream({ model: "m", input: "hi there" }).finalResponse();
  expect([usage!.input_tokens, usage!.output_tokens]).toEqual(await charged());
  expect(usage!.output_tokens).toBe(output_tokens);

  const whole = { role: "assistant", content: "some words without figures" };
  bench.upstream.answer((_, reply) =>
    reply.json({ choices: [{ index: 0, message: whole, finish_reason: "stop" }] }),
  );
  const answered = await anthropic.messages.create(ask);
  expect(answered.model).toBe("m");
  expect(answered.usage.output_tokens).toBeGreaterThan(1);
  expect([answered.usage.input_tokens, answered.usage.output_tokens]).toEqual(await charged());
  bench.upstream.answer(politeHandler);
});

test("each piece arrives when it is sent, not at the end", async () => {
  let release = () => {};
  const seen = new Promise<void>((resolve) => {
    release = resolve;
  });
  bench.upstream.answer(async (_, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(chunk({ delta: { role: "assistant", content: "one" } }));
    await seen;
    await reply.write(chunk({ delta: { content: " two" }, finish_reason: "stop" }) + usageChunk() + DONE);
    await reply.end();
  });
  const stream = anthropic.messages.stream(ask);
  stream.once("text", () => release());
  expect(await stream.finalText()).toBe("one two");
  bench.upstream.answer(politeHandler);
});

test("a client that leaves stops the upstream, and what it got is recorded as estimated", async () => {
  bench.upstream.answer(async (request, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    while (request.closedAtMs === null) {
      await reply.write(chunk({ delta: { content: "word " } }));
      await Bun.sleep(2);
    }
  });
  const before = (await bench.usageRows()).length;
  const byHeader = new Anthropic({ baseURL: bench.url, apiKey: bench.key, authToken: null, maxRetries: 0 });
  const stream = byHeader.messages.stream(ask);
  stream.once("text", () => stream.abort());
  expect(await failing(stream.finalMessage())).toBeInstanceOf(Anthropic.APIUserAbortError);
  const [left] = bench.upstream.requests.slice(-1);
  await until("the upstream was stopped", () => left!.closedAtMs !== null);
  await until("the usage was recorded", async () => (await bench.usageRows()).length > before);
  const [row] = await bench.usageRows();
  expect(row.completion_tokens).toBeGreaterThan(0);
  bench.upstream.answer(politeHandler);
});

test("a slow reader slows the upstream down instead of filling memory", async () => {
  let sent = 0;
  const piece = chunk({ delta: { content: "x".repeat(16 * 1024) } });
  bench.upstream.answer(async (request, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    while (request.closedAtMs === null) {
      await reply.write(piece);
      sent += piece.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
  });
  const leaving = new AbortController();
  const response = await bench.post(
    "/v1/responses",
    { model: "m", input: "hi", stream: true },
    { signal: leaving.signal },
  );
  await response.body!.getReader().read();
  let before = -1;
  while (before !== sent) {
    before = sent;
    await Bun.sleep(300);
  }
  expect(sent).toBeLessThan(64 * 1024 * 1024);
  leaving.abort();
  await until("the upstream was stopped", () => bench.upstream.requests.at(-1)!.closedAtMs !== null);
  bench.upstream.answer(politeHandler);
});

test("refusals of the chat path come in each API's form", async () => {
  const unknown = await failing(anthropic.messages.create({ ...ask, model: "nobody-serves-this" }));
  expect(unknown).toBeInstanceOf(Anthropic.NotFoundError);
  expect(unknown.apiMessage).toContain("No backend available for model: nobody-serves-this");
  const missing = await failing(openai.responses.create({ model: "nobody-serves-this", input: "hi" }));
  expect(missing).toMatchObject({ status: 404, code: "model_not_found" });

  bench.upstream.answer((_, reply) => reply.json({ error: { message: "too long" } }, 400));
  const refused = await failing(anthropic.messages.create(ask));
  expect(refused).toMatchObject({ status: 400, type: "invalid_request_error" });
  expect(refused.apiMessage).toContain("too long");
  bench.upstream.answer(politeHandler);

  const stranger = new Anthropic({
    baseURL: bench.url,
    apiKey: "service-00000000-0000-4000-8000-000000000000",
    authToken: null,
    maxRetries: 0,
  });
  expect(await failing(stranger.messages.create(ask))).toBeInstanceOf(Anthropic.AuthenticationError);
  expect(await failing(stranger.messages.countTokens(ask))).toBeInstanceOf(Anthropic.AuthenticationError);
});

const refusal = async (path: string, body: object) => {
  const response = await fetch(`${bench.url}/v1/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${bench.key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "m", ...body }),
  });
  const { error } = (await response.json()) as { error: { message: string } };
  return { status: response.status, message: error.message };
};

test("an input that is no text and no list is refused with what it may be", async () => {
  for (const input of [undefined, 5, {}, []]) {
    const { status, message } = await refusal("responses", { input });
    expect([status, message]).toEqual([400, "`input`: is required: a text, or a list of items"]);
  }
});

test("a wrong limit of tokens is refused by the name that the API gives it", async () => {
  const refusedField = async (path: string, body: object) => {
    const { status, message } = await refusal(path, body);
    return [status, /`(\w+)`/.exec(message)?.[1]];
  };
  const { messages } = ask;
  for (const wrong of ["many", -1, 1.5, true]) {
    expect(await refusedField("responses", { input: "hi", max_output_tokens: wrong })).toEqual([
      400,
      "max_output_tokens",
    ]);
    expect(await refusedField("messages", { messages, max_tokens: wrong })).toEqual([400, "max_tokens"]);
  }
  const whole = await openai.responses.create({ model: "m", input: "hi", max_output_tokens: 16 });
  expect(whole.max_output_tokens).toBe(16);
});

test("the base URL may or may not end in /v1, and count_tokens counts", async () => {
  const doubled = new Anthropic({
    baseURL: `${bench.url}/v1`,
    apiKey: bench.key,
    authToken: null,
    maxRetries: 0,
  });
  expect((await doubled.messages.create(ask)).content).toMatchObject([{ text: "hi there" }]);
  const { input_tokens } = await anthropic.messages.countTokens(ask);
  expect(input_tokens).toBeGreaterThan(3);
  expect(input_tokens).toBeLessThan(30);
});

test("a key's limit holds on these paths too", async () => {
  const small = await bootInference({ config: { apiRateLimitRpm: 2 } });
  try {
    const client = new Anthropic({ baseURL: small.url, apiKey: small.key, authToken: null, maxRetries: 0 });
    await client.messages.create(ask);
    await client.messages.countTokens(ask);
    expect(await failing(client.messages.create(ask))).toBeInstanceOf(Anthropic.RateLimitError);
    expect(await failing(client.messages.countTokens(ask))).toBeInstanceOf(Anthropic.RateLimitError);
  } finally {
    await small.stop();
  }
});

// Last, because a backend that fails this often is left alone for a while.
test("an upstream that dies in the middle becomes an error event that does not name it", async () => {
  let dies = () => {};
  bench.upstream.answer(async (_, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    dies = () => reply.reset();
    await reply.write(chunk({ delta: { content: "one" } }));
  });
  for (const [path, body] of [
    ["/v1/messages", ask],
    ["/v1/responses", { model: "m", input: "hi" }],
  ] as const) {
    const response = await bench.post(path, { ...body, stream: true });
    dies();
    const text = await response.text();
    expect(text).toContain('"one"');
    const names = [...text.matchAll(/^event: (.*)$/gm)].map(([, name]) => name);
    expect(names.at(-1)).toBe("error");
    expect(text).not.toContain("message_stop");
    expect(text).not.toContain("response.completed");
    expect(text).not.toContain(String(bench.upstream.port));
  }
  bench.upstream.answer(politeHandler);
});

test("a tool call that goes on after its end breaks the answer off, and the upstream is stopped", async () => {
  const piece = (index: number, fn: object, id?: string) =>
    chunk({ delta: { tool_calls: [{ index, ...(id && { id }), function: fn }] } });
  bench.upstream.answer(async (request, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(
      piece(0, { name: "f", arguments: "{}" }, "a") + piece(1, { name: "g", arguments: "" }, "b"),
    );
    await reply.write(piece(0, { arguments: '{"more":1}' }));
    while (request.closedAtMs === null) {
      await reply.write(chunk({ delta: { content: "word " } }));
      await Bun.sleep(2);
    }
  });
  const text = await (await bench.post("/v1/messages", { ...ask, stream: true })).text();
  expect(text).toContain("the upstream continued a tool call that it had already finished");
  expect(text).not.toContain("message_stop");
  await until("the upstream was stopped", () => bench.upstream.requests.at(-1)!.closedAtMs !== null);
  bench.upstream.answer(politeHandler);
});
