import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { startRpcSocketServer } from "@model-gateway/testing/rpc-socket-server.ts";
import { DONE, startUpstream } from "@model-gateway/testing/upstream.ts";
import OpenAI from "openai";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let client: OpenAI;
beforeAll(async () => {
  bench = await bootInference();
  client = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: bench.key, maxRetries: 0 });
  await bench.addBackend({ name: "up", url: bench.upstream.url, type: "external" });
});
afterAll(() => bench.stop());
afterEach(() => {
  bench.upstream.requests.length = 0;
});

const HEAD = { id: "cmpl-1", object: "text_completion", created: 1_763_000_000, model: "m" };
const USAGE = { prompt_tokens: 11, completion_tokens: 5, total_tokens: 16 };
const chunk = (fields: object) => `data: ${JSON.stringify({ ...HEAD, ...fields })}\n\n`;
const piece = (text: string, finish_reason: string | null = null) =>
  chunk({ choices: [{ index: 0, text, logprobs: null, finish_reason }] });

const lastRow = async () => {
  const [row] = await bench.usageRows();
  return row;
};

test("a text that goes on from a prompt, with what comes after it", async () => {
  bench.upstream.answer((_, reply) =>
    reply.json({
      ...HEAD,
      choices: [{ index: 0, text: "return a + b", logprobs: null, finish_reason: "stop" }],
      usage: USAGE,
    }),
  );
  const body = { model: "m", prompt: "def add(a, b):\n  ", suffix: "\n", max_tokens: 50 };
  const answer = await client.completions.create(body);
  expect(answer.choices[0]!.text).toBe("return a + b");
  expect(answer.usage).toEqual(USAGE);
  const [sent] = bench.upstream.requests;
  expect(sent!.path).toEndWith("/v1/completions");
  expect(sent!.json).toEqual(body);
  expect(await lastRow()).toMatchObject({ model: "m", prompt_tokens: 11, completion_tokens: 5 });
});

test("streamed: the pieces as the upstream wrote them, without a chat's fields; usage only for who asked", async () => {
  const pieces = [
    piece("one"),
    piece(" two"),
    piece("", "length"),
    chunk({ choices: [], usage: USAGE }),
    DONE,
  ];
  bench.upstream.answer((_, reply) => reply.stream(pieces));
  const stream = await client.completions.create({ model: "m", prompt: "count", stream: true });
  let text = "";
  const seen: string[] = [];
  for await (const part of stream) {
    text += part.choices[0]!.text;
    seen.push(...Object.keys(part.choices[0]!));
    expect(part.object).toBe("text_completion");
  }
  expect(text).toBe("one two");
  expect(seen).not.toContain("delta");
  expect(bench.upstream.requests[0]!.json.stream_options).toEqual({ include_usage: true });
  expect(await lastRow()).toMatchObject({ prompt_tokens: 11, completion_tokens: 5 });

  const asked = await bench.post("/v1/completions", {
    model: "m",
    prompt: "count",
    stream: true,
    stream_options: { include_usage: true },
  });
  expect(await asked.text()).toBe(pieces.join(""));
});

test("an upstream that reports nothing, forgets the head and the end: counted, and completed", async () => {
  bench.upstream.answer((_, reply) =>
    reply.stream([
      `data: {"choices":[{"text":"abcdefgh"}]}\n\n`,
      `data: {"choices":[{"text":"ijkl","finish_reason":"stop"}]}\n\n`,
    ]),
  );
  const reply = await bench.post("/v1/completions", { model: "m", prompt: [1, 2, 3, 4, 5, 6], stream: true });
  const events = (await reply.text()).trim().split("\n\n");
  expect(events.at(-1)).toBe("data: [DONE]");
  expect(JSON.parse(events[0]!.slice(6))).toMatchObject({ object: "text_completion", model: "m" });
  expect(await lastRow()).toMatchObject({ prompt_tokens: 6, completion_tokens: 3 });
});

test("what cannot be bounded is refused by the name of its field", async () => {
  const refused = async (body: object, field: string) => {
    const reply = await bench.post("/v1/completions", { model: "m", ...body });
    expect(reply.status).toBe(400);
    expect((await reply.json()).error.message).toContain(`\`${field}\``);
  };
  await refused({}, "prompt");
  await refused({ prompt: [] }, "prompt");
  await refused({ prompt: 7 }, "prompt");
  await refused({ prompt: [{ prompt_string: "x" }] }, "prompt");
  await refused({ prompt: "a", Prompt: ["a", "b"] }, "Prompt");
  await refused({ prompt: "a", max_tokens: -1 }, "max_tokens");
  await refused({ prompt: "a", n: 0 }, "n");
  await refused({ prompt: "a", extra: { PROMPT: "b" } }, "extra.PROMPT");
  expect(bench.upstream.requests).toHaveLength(0);
});

test("every prompt and every answer to it counts in what is held", async () => {
  const token = await bench.signIn("poor");
  const { key } = await bench.rpc("keys.create", { name: "poor" }, token);
  const ask = (body: object) =>
    bench.post("/v1/completions", { model: "m", ...body }, { headers: { authorization: `Bearer ${key}` } });
  bench.upstream.answer((_, reply) =>
    reply.json({ ...HEAD, choices: [{ index: 0, text: "x", finish_reason: "stop" }], usage: USAGE }),
  );
  const { tokens: left } = (await bench.rpc("billing.plan", {}, token)).remaining;
  expect(left).toBeGreaterThan(0);
  const lowered = await ask({ prompt: ["a", "b", "c", "d"], n: 8, max_tokens: left });
  expect(lowered.status).toBe(200);
  // 32 answers share what is left, and 1,024 tokens beyond it.
  const told = bench.upstream.requests[0]!.json.max_tokens;
  expect(told * 32).toBeLessThanOrEqual(left + 1_024);
  expect(lowered.headers.get("x-service-max-tokens")).toBe(String(told));
});

test("what stands beside token numbers is a part of the prompt", async () => {
  bench.upstream.answer((_, reply) => reply.json({ ...HEAD, choices: [{ index: 0, text: "x" }] }));
  await bench.post("/v1/completions", { model: "m", prompt: [1, 2, 3], suffix: "word ".repeat(2_000) });
  expect((await lastRow()).prompt_tokens).toBeGreaterThan(1_500);
  await bench.post("/v1/completions", {
    model: "m",
    prompt: [1, 2, 3],
    extra: { prompt: "word ".repeat(2_000) },
  });
  expect(bench.upstream.requests.at(-1)!.json.prompt).toEqual([1, 2, 3]);
  expect((await lastRow()).prompt_tokens).toBe(3);
});

test("the limit goes into `max_tokens`, also for models whose chats know another name", async () => {
  const upstream = startUpstream({ models: ["gpt-5-text"] });
  try {
    await bench.addBackend({ name: "newer", url: upstream.url, type: "external" });
    upstream.answer((_, reply) =>
      reply.json({ ...HEAD, choices: [{ index: 0, text: "x", finish_reason: "stop" }], usage: USAGE }),
    );
    const token = await bench.signIn("modest");
    const { key } = await bench.rpc("keys.create", { name: "modest" }, token);
    const headers = { authorization: `Bearer ${key}` };
    const body = { model: "gpt-5-text", prompt: "a", max_tokens: 10_000_000 };
    const answer = await bench.post("/v1/completions", body, { headers });
    expect(answer.status).toBe(200);
    const { json } = upstream.requests.at(-1)!;
    expect(json.max_tokens).toBeLessThan(10_000_000);
    expect(json.max_completion_tokens).toBeUndefined();
    expect(answer.headers.get("x-service-max-tokens")).toBe(String(json.max_tokens));
  } finally {
    upstream.stop();
  }
});

test("a backend without text completions is left out; alone it is named as the reason", async () => {
  const engine = startRpcSocketServer(({ method }) =>
    method === "Engine.Handshake"
      ? { name: "e", version: "1", protocol: 1, capabilities: ["chat", "chat_stream"] }
      : { models: [{ id: "m" }, { id: "engine-only" }] },
  );
  try {
    await bench.addBackend({ name: "engine", url: engine.url, type: "engine" });
    bench.upstream.answer((_, reply) =>
      reply.json({ ...HEAD, choices: [{ index: 0, text: "x", finish_reason: "stop" }], usage: USAGE }),
    );
    for (let i = 0; i < 4; i++) {
      const answer = await bench.post("/v1/completions", { model: "m", prompt: "a" });
      expect(answer.headers.get("x-service-backend")).not.toBe("engine");
      expect(answer.status).toBe(200);
    }
    const alone = await bench.post("/v1/completions", { model: "engine-only", prompt: "a" });
    expect((await alone.json()).error.message).toContain("does not support text completions");
  } finally {
    await engine.stop();
  }
});

test("a wrong key and an unknown model fail at once", async () => {
  const stranger = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: "service-nope", maxRetries: 0 });
  const failure = (one: OpenAI, model: string) =>
    one.completions.create({ model, prompt: "a" }).then(
      () => null,
      ({ status, message }) => ({ status, message }),
    );
  expect(await failure(stranger, "m")).toMatchObject({ status: 401 });
  expect(await failure(client, "none")).toMatchObject({
    status: 404,
    message: expect.stringContaining("No backend"),
  });
  expect(bench.upstream.requests).toHaveLength(0);
});
