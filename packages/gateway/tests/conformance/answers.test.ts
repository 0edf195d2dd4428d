/** What REST answers look like, also when the upstream's are not what they should be. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { politeHandler } from "@model-gateway/testing/upstream.ts";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { startFakeOllama } from "../support/ollama.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
beforeEach(() => bench.upstream.answer(politeHandler));

describe("answers of an upstream that leaves things out", () => {
  test("a whole answer gets its fields, and the usage that is recorded for it", async () => {
    bench.upstream.answer((_, reply) =>
      reply.json({ choices: [{ message: { role: "assistant", content: "yo" } }] }),
    );
    const answer = await (await bench.chat({})).json();
    expect(answer).toEqual({
      id: expect.stringMatching(/^chatcmpl-/),
      object: "chat.completion",
      created: expect.any(Number),
      model: "m",
      choices: [{ index: 0, message: { role: "assistant", content: "yo" }, finish_reason: "stop" }],
      usage: {
        prompt_tokens: expect.any(Number),
        completion_tokens: expect.any(Number),
        total_tokens: expect.any(Number),
      },
    });
    const [row] = await bench.usageRows();
    const { prompt_tokens, completion_tokens, total_tokens } = row;
    expect(answer.usage).toEqual({ prompt_tokens, completion_tokens, total_tokens });
  });

  test("what is left out inside is added too: role, index, finish reason, the sum of the usage", async () => {
    const head = { id: "c1", object: "chat.completion", created: 1, model: "m" };
    const call = { id: "a", type: "function", function: { name: "f", arguments: "{}" } };
    bench.upstream.answer((_, reply) =>
      reply.json({
        ...head,
        choices: [{ message: { content: "yo" } }, { message: { tool_calls: [call] } }],
        usage: { prompt_tokens: 3, completion_tokens: 4, cost: 0.5 },
      }),
    );
    expect(await (await bench.chat({})).json()).toEqual({
      ...head,
      choices: [
        { index: 0, finish_reason: "stop", message: { role: "assistant", content: "yo" } },
        {
          index: 1,
          finish_reason: "tool_calls",
          message: { role: "assistant", content: null, tool_calls: [call] },
        },
      ],
      usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7, cost: 0.5 },
    });
  });

  test("one that is right passes as the upstream's own bytes", async () => {
    const body =
      '{ "id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2} }';
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "application/json" });
      await reply.write(body);
      await reply.end();
    });
    expect(await (await bench.chat({})).text()).toBe(body);
  });

  test("embeddings whose entries or usage lack something", async () => {
    bench.upstream.answer((_, reply) =>
      reply.json({
        object: "list",
        model: "m",
        data: [{ embedding: [1], index: 0 }, { embedding: [2] }],
        usage: { total_tokens: 5 },
      }),
    );
    const answer = await (await bench.post("/v1/embeddings", { model: "m", input: ["a", "b"] })).json();
    expect(answer).toEqual({
      object: "list",
      model: "m",
      data: [
        { object: "embedding", index: 0, embedding: [1] },
        { object: "embedding", index: 1, embedding: [2] },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 0, total_tokens: 5 },
    });
  });

  test("every chunk of a stream gets them, under one id, with no finish before the last", async () => {
    bench.upstream.answer((_, reply) =>
      reply.stream([
        `data: {"choices":[{"delta":{"content":"a"}}]}\n\n`,
        `data: {"choices":[{"delta":{"content":"b"}}]}\n\n`,
        `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n`,
        "data: [DONE]\n\n",
      ]),
    );
    const events = eventsOf(await (await bench.chat({ stream: true })).text());
    expect(events.pop()).toBe("[DONE]");
    expect(new Set(events.map(({ id }) => id)).size).toBe(1);
    for (const { object, created, model } of events) {
      expect({ object, created: typeof created, model }).toEqual({
        object: "chat.completion.chunk",
        created: "number",
        model: "m",
      });
    }
    expect(events.map(({ choices }) => choices[0].finish_reason)).toEqual([null, null, "stop"]);
  });

  test("embeddings count their completion as nothing, and carry object, index and model", async () => {
    const polite = await (await bench.post("/v1/embeddings", { model: "m", input: ["a", "bc"] })).json();
    expect(polite.usage).toEqual({ prompt_tokens: 2, completion_tokens: 0, total_tokens: 2 });
    bench.upstream.answer((_, reply) => reply.json({ data: [{ embedding: [1, 2] }, { embedding: [3, 4] }] }));
    const bare = await (await bench.post("/v1/embeddings", { model: "m", input: ["a", "b"] })).json();
    expect(bare).toEqual({
      object: "list",
      data: [
        { object: "embedding", index: 0, embedding: [1, 2] },
        { object: "embedding", index: 1, embedding: [3, 4] },
      ],
      model: "m",
      usage: { prompt_tokens: expect.any(Number), completion_tokens: 0, total_tokens: expect.any(Number) },
    });
  });
});

test("a field that only the chosen backend cannot take is a 400 that names it, and no fault of the backend", async () => {
  const ollama = startFakeOllama();
  await bench.addBackend({ name: "native", type: "ollama", url: ollama.url });
  const chat = (messages: unknown[]) => bench.chat({ model: "llama3.2", messages });
  const cases: [unknown, string][] = [
    [null, "messages.0"],
    [{ role: "user", content: [{ type: "hologram" }] }, "messages.0.content.0.type"],
    [{ role: "user", content: [{ type: "text", text: 5 }] }, "messages.0.content.0.text"],
    [{ role: "user", content: 5 }, "messages.0.content"],
    [{ content: "x" }, "messages.0.role"],
    [{ role: "user", content: "x", images: [5] }, "messages.0.images.0"],
    [{ role: "assistant", content: null, tool_calls: [{}] }, "messages.0.tool_calls.0.function"],
  ];
  for (const [message, field] of cases) {
    const answer = await chat([message]);
    expect({ field, status: answer.status }).toEqual({ field, status: 400 });
    const { error } = (await answer.json()) as { error: Record<string, string> };
    expect(error).toMatchObject({ type: "invalid_request", code: "missing_fields" });
    expect(error.message).toContain(`\`${field}\``);
  }
  expect((await chat([{ role: "user", content: "still here" }])).status).toBe(200);
  const embedded = await bench.post("/v1/embeddings", { model: "nomic-embed-text:v1.5", input: [1, 2] });
  expect(embedded.status).toBe(400);
  // What it cannot do at all is the contract's 500.
  const unable = await bench.post("/v1/embeddings", { model: "llama3.2", input: "x" });
  expect(unable.status).toBe(500);
  expect(await unable.json()).toMatchObject({ error: { type: "server_error", code: "backend_error" } });
  await ollama.stop();
});

test("an upstream that breaks off is told in words for the caller, not for the caller of fetch", async () => {
  bench.upstream.answer((_, reply) => reply.reset());
  const answer = await bench.chat({});
  expect(answer.status).toBe(502);
  const { error } = (await answer.json()) as { error: { message: string } };
  expect(error.message).not.toBe("");
  expect(error.message).not.toContain("verbose");
});

test("every answer carries a request id, whatever was asked", async () => {
  const paths = [
    "GET /api/rpc",
    "PUT /api/rpc",
    "POST /api/rpc",
    "GET /api/rpc/events",
    "GET /ws/agent",
    "GET /v1/models",
    "POST /v1/chat/completions",
    "GET /v1/no-such-path",
    "GET /metrics",
    "GET /api/openrpc.json",
    "GET /",
    "GET /assets/no-such-file.js",
    "OPTIONS /v1/models",
    "GET /api/admin/backends",
  ];
  for (const line of paths) {
    const [method, path] = line.split(" ") as [string, string];
    const { headers } = await fetch(`${bench.url}${path}`, { method });
    expect({ line, id: headers.get("x-request-id") }).toEqual({
      line,
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
  }
});

test("HEAD is answered like GET, without the body: load balancers probe with it", async () => {
  for (const path of ["/v1/health", "/healthz", "/readyz", "/v1/models", "/"]) {
    const head = await fetch(`${bench.url}${path}`, { method: "HEAD" });
    expect({ path, status: head.status, text: await head.text() }).toEqual({ path, status: 200, text: "" });
  }
  const admin = await fetch(`${bench.url}/api/admin/backends`, { method: "HEAD" });
  expect(admin.status).toBe(401);
  expect((await fetch(`${bench.url}/v1/embeddings`, { method: "HEAD" })).status).toBe(405);
});
