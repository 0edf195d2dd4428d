import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { completion, politeHandler } from "@model-gateway/testing/upstream.ts";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference({ upstream: { models: ["m", "tagged:latest", "tagged:7b"] } });
});
afterAll(() => bench.stop());
afterEach(() => bench.upstream.answer(politeHandler));

const errorOf = async (response: Response) => ({ status: response.status, ...(await response.json()).error });
const sent = () => bench.upstream.requests.at(-1)!.json;

describe("what a chat request may be", () => {
  const refused: [string, unknown, string][] = [
    ["no model", { messages: [{ role: "user", content: "x" }] }, "`model`"],
    ["a model that is no text", { model: 7, messages: [] }, "`model`"],
    ["no messages", { model: "m" }, "`messages`"],
    ["messages that are no list", { model: "m", messages: "hi" }, "`messages`"],
    ["no message", { model: "m", messages: [] }, "`messages`"],
    ["no message, but blanks", `{"model":"m","messages":[${" ".repeat(100)}]}`, "`messages`"],
    ["a stream that is no flag", { model: "m", messages: [1], stream: "yes" }, "`stream`"],
    ["a temperature that is no number", { model: "m", messages: [1], temperature: "hot" }, "`temperature`"],
    ["max_tokens that is no count", { model: "m", messages: [1], max_tokens: 1.5 }, "`max_tokens`"],
    ["tools that are no list", { model: "m", messages: [1], tools: {} }, "`tools`"],
    ["a provider that is no text", { model: "m", messages: [1], provider: 1 }, "`provider`"],
    [
      "a conversation that is no text",
      { model: "m", messages: [1], conversation_id: {} },
      "`conversation_id`",
    ],
    ["memory that is no flag", { model: "m", messages: [1], memory: "no" }, "`memory`"],
  ];
  for (const [what, body, field] of refused) {
    test(`${what} is a 400 that names the field`, async () => {
      const error = await errorOf(await bench.post("/v1/chat/completions", body));
      expect(error).toMatchObject({ status: 400, type: "invalid_request", code: "missing_fields" });
      expect(error.message).toContain(field);
    });
  }

  test("what is no JSON object is a 400", async () => {
    for (const body of ["", "[]", '{"model":', "hello"])
      expect(await errorOf(await bench.post("/v1/chat/completions", body))).toMatchObject({
        status: 400,
        type: "invalid_request",
      });
  });

  test("a body over 32 MiB is a 413", async () => {
    const body = `{"model":"m","messages":["${"x".repeat(33 * 1024 * 1024)}"]}`;
    expect((await errorOf(await bench.post("/v1/chat/completions", body))).status).toBe(413);
  });

  test("null stands for absent", async () => {
    const response = await bench.chat({
      stream: null,
      temperature: null,
      tools: null,
      conversation_id: null,
    });
    expect(response.status).toBe(200);
  });

  test("a reference of more than 64 characters is a 400", async () => {
    const headers = { "x-service-ref": "r".repeat(65) };
    expect((await errorOf(await bench.chat({}, { headers }))).status).toBe(400);
  });

  test("a reference is kept as it was written, in the bytes of a program or of a browser", async () => {
    const ref = "Büro 7 ".repeat(9).trim();
    const programs = Buffer.from(ref).toString("latin1");
    for (const header of [programs, ref]) {
      expect((await bench.chat({}, { headers: { "x-service-ref": header } })).status).toBe(200);
      expect((await bench.usageRows())[0].ref_id).toBe(ref);
    }
  });

  test("/v1/v1 is forgiven", async () => {
    const body = { model: "m", messages: [{ role: "user", content: "twice" }] };
    expect((await bench.post("/v1/v1/chat/completions", body)).status).toBe(200);
  });
});

describe("what the upstream is sent", () => {
  test("unknown fields, content parts and tools pass untouched", async () => {
    const body = {
      model: "m",
      messages: [
        { role: "user", content: [{ type: "text", text: "x" }], images: ["aGk="], custom: { a: 1 } },
      ],
      tools: [{ type: "function", function: { name: "f", parameters: { $ref: "#/x" } } }],
      chat_template_kwargs: { thinking: true },
      temperature: 0.1,
    };
    await bench.post("/v1/chat/completions", body);
    expect(sent()).toEqual(body);
    expect(bench.upstream.requests.at(-1)!.text).toBe(JSON.stringify(body));
  });

  test("the gateway's own fields do not, and extra is merged by its rules", async () => {
    await bench.chat({
      memory: false,
      provider: "FIRST",
      temperature: 0.3,
      extra: { top_k: 5, temperature: 1, model: "other", messages: [], options: { a: 1 } },
    });
    expect(sent()).toEqual({
      model: "m",
      messages: [{ role: "user", content: "hi there" }],
      temperature: 0.3,
      top_k: 5,
    });
  });

  test("a limit that is null is none, as some clients write it", async () => {
    expect((await bench.chat({ max_tokens: null, n: null })).status).toBe(200);
    expect(sent()).toMatchObject({ max_tokens: null, n: null });
  });

  test("a limit that is not a positive whole number is a 400 that names the field", async () => {
    const before = bench.upstream.requests.length;
    const bad: [Record<string, unknown>, string][] = [
      [{ max_tokens: -1 }, "max_tokens"],
      [{ max_tokens: 0 }, "max_tokens"],
      [{ max_tokens: 1.5 }, "max_tokens"],
      [{ max_tokens: "100" }, "max_tokens"],
      [{ max_tokens: 1e308 }, "max_tokens"],
      [{ max_completion_tokens: 10_000_001 }, "max_completion_tokens"],
      [{ n: -3 }, "n"],
      [{ n: true }, "n"],
      [{ extra: { n: 0 } }, "extra.n"],
      [{ extra: { max_tokens: -1 } }, "extra.max_tokens"],
      [{ extra: { max_new_tokens: [1] } }, "extra.max_new_tokens"],
      [{ options: { num_predict: -2 } }, "options.num_predict"],
    ];
    for (const [fields, name] of bad) {
      const answer = await bench.chat(fields);
      expect({ fields, status: answer.status }).toEqual({ fields, status: 400 });
      const { error } = (await answer.json()) as { error: { message: string; code: string } };
      expect(error.message).toContain(`\`${name}\` must be a whole number from 1 to 10000000`);
      expect(error.code).toBe("missing_fields");
    }
    expect(bench.upstream.requests.length).toBe(before);
  });

  test("a bare name is sent as the tagged listing it matches, an exact tag as itself", async () => {
    await bench.chat({ model: "tagged" });
    expect(sent().model).toBe("tagged:latest");
    expect((await bench.usageRows())[0].model).toBe("tagged:latest");
    await bench.chat({ model: "tagged:7b" });
    expect(sent().model).toBe("tagged:7b");
    expect((await bench.chat({ model: "tagged:13b" })).status).toBe(404);
    expect((await bench.chat({ model: "m:latest" })).status).toBe(404);
  });
});

describe("who may ask", () => {
  test("no key, a wrong key and a JWT are a plain-text 401", async () => {
    for (const authorization of [
      "",
      "Bearer nonsense",
      `Bearer service-${crypto.randomUUID()}`,
      `Bearer ${bench.token}`,
    ]) {
      const response = await bench.chat({}, { headers: { authorization } });
      expect(response.status).toBe(401);
      expect(response.headers.get("content-type")).toStartWith("text/plain");
      expect(await response.text()).not.toContain("{");
    }
  });

  test("a revoked key stops at once", async () => {
    const { id, key } = await bench.rpc("keys.create", { name: "short-lived" }, bench.token);
    const headers = { authorization: `bearer ${key}` };
    expect((await bench.chat({}, { headers })).status).toBe(200);
    await bench.rpc("keys.revoke", { key_id: id }, bench.token);
    expect((await bench.chat({}, { headers })).status).toBe(401);
  });

  test("the per-key limiter answers 429 in plain text without Retry-After", async () => {
    const limited = await bootInference({ config: { apiRateLimitRpm: 2 } });
    try {
      expect((await limited.chat({})).status).toBe(200);
      expect((await limited.post("/v1/embeddings", { model: "m", input: "x" })).status).toBe(200);
      const response = await limited.chat({});
      expect(response.status).toBe(429);
      expect(await response.text()).toBe("Rate limit exceeded. Try again later.");
      expect(response.headers.get("retry-after")).toBeNull();
    } finally {
      await limited.stop();
    }
  });

  test("the tier's limit answers 429 as JSON with Retry-After 60", async () => {
    const token = await bench.signIn("bob");
    const { key } = await bench.rpc("keys.create", { name: "free" }, token);
    const headers = { authorization: `Bearer ${key}` };
    for (let i = 0; i < 10; i++) expect((await bench.chat({}, { headers })).status).toBe(200);
    const response = await bench.chat({}, { headers });
    expect(response.headers.get("retry-after")).toBe("60");
    expect(await errorOf(response)).toMatchObject({
      status: 429,
      type: "rate_limit_error",
      code: "rate_limit_exceeded",
    });
  });

  test("a used-up quota answers 429 with the seconds until next month", async () => {
    const token = await bench.signIn("carol");
    const { key } = await bench.rpc("keys.create", { name: "free" }, token);
    const headers = { authorization: `Bearer ${key}` };
    const usage = { prompt_tokens: 100_000, completion_tokens: 1, total_tokens: 100_001 };
    bench.upstream.answer((_, reply) => reply.json(completion("much", { usage })));
    expect((await bench.chat({}, { headers })).status).toBe(200);
    const response = await bench.chat({}, { headers });
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await errorOf(response)).toMatchObject({
      status: 429,
      type: "quota_error",
      code: "quota_exceeded",
    });
    const call = await bench.call(
      "chat.send",
      { model: "m", messages: [{ role: "user", content: "x" }] },
      token,
    );
    expect(call.error.code).toBe(-32006);
  });

  test("a group's key may use only what the group allows, after aliases", async () => {
    const group = await bench.rpc("group.create", { name: "team" }, bench.token);
    await bench.rpc("group.credits.topup", { group_id: group.id, points: 1000 }, bench.token);
    await bench.rpc("group.models.deny", { group_id: group.id, model_ids: ["tagged"] }, bench.token);
    const { key } = await bench.rpc("keys.create", { name: "team", group_id: group.id }, bench.token);
    const headers = { authorization: `Bearer ${key}` };
    expect((await bench.chat({}, { headers })).status).toBe(200);
    await bench.admin("POST", "/aliases", { alias: "sly", target: "tagged" });
    for (const model of ["tagged", "tagged:latest", "sly"])
      expect(await errorOf(await bench.chat({ model }, { headers }))).toMatchObject({
        status: 403,
        type: "auth_error",
        code: "model_not_allowed",
      });
  });
});

describe("conversations", () => {
  const conversation = async () => (await bench.rpc("conversations.create", {}, bench.token)).id as string;
  const stored = async (id: string) =>
    (await bench.rpc("conversations.get", { conversation_id: id }, bench.token)).messages.map(
      ({ role, content }: { role: string; content: string }) => [role, content],
    );

  test("keep the user's turn and the answer, streamed or not", async () => {
    const id = await conversation();
    await bench.chat({ conversation_id: id, messages: [{ role: "user", content: "first" }] });
    const response = await bench.chat({
      conversation_id: id,
      stream: true,
      messages: [
        { role: "user", content: "first" },
        { role: "assistant", content: "first" },
        { role: "user", content: [{ type: "text", text: "second" }] },
      ],
    });
    await response.text();
    expect(await stored(id)).toEqual([
      ["user", "first"],
      ["assistant", "first"],
      ["user", "second"],
      ["assistant", expect.any(String)],
    ]);
    expect(sent().conversation_id).toBeUndefined();
  });

  test("keep the user's turn even when the answer fails", async () => {
    const id = await conversation();
    bench.upstream.answer((_, reply) => reply.json({ error: "no" }, 500));
    expect((await bench.chat({ conversation_id: id })).status).toBe(502);
    expect(await stored(id)).toEqual([["user", "hi there"]]);
  });

  test("of others are a 403, unknown ones a 404", async () => {
    const stranger = await bench.signIn("dora");
    const { id } = await bench.rpc("conversations.create", {}, stranger);
    expect(await errorOf(await bench.chat({ conversation_id: id }))).toMatchObject({
      status: 403,
      type: "auth_error",
      code: "conversation_forbidden",
    });
    for (const unknown of [crypto.randomUUID(), "x"])
      expect(await errorOf(await bench.chat({ conversation_id: unknown }))).toMatchObject({
        status: 404,
        type: "invalid_request",
        code: "conversation_not_found",
      });
  });
});

describe("embeddings", () => {
  const vectors = [
    [1.5, -2],
    [0.25, 4],
  ];
  const base64 = vectors.map((vector) => Buffer.from(new Float32Array(vector).buffer).toString("base64"));
  const answerWith = (embeddings: unknown[]) =>
    bench.upstream.answer((_, reply) =>
      reply.json({
        object: "list",
        data: embeddings.map((embedding, index) => ({ object: "embedding", index, embedding })),
        model: "m",
        usage: { prompt_tokens: 2, total_tokens: 2 },
      }),
    );
  const embedded = async (encoding_format?: string) => {
    const response = await bench.post("/v1/embeddings", { model: "m", input: ["a", "b"], encoding_format });
    return (await response.json()).data.map(({ embedding }: { embedding: unknown }) => embedding);
  };

  test("come in the encoding that was asked for, whatever the upstream sends", async () => {
    answerWith(vectors);
    expect(await embedded()).toEqual(vectors);
    expect(await embedded("base64")).toEqual(base64);
    answerWith(base64);
    expect(await embedded("base64")).toEqual(base64);
    expect(await embedded("float")).toEqual(vectors);
  });

  test("are read where names have escapes in them", async () => {
    const data = vectors.map((embedding, index) => ({ object: "embedding", index, embedding }));
    const usage = { prompt_tokens: 2, total_tokens: 2 };
    const body = JSON.stringify({ object: "list", data, model: "m", usage })
      .replaceAll('"embedding":', '"embeddin\\u0067":')
      .replace("usage", "us\\u0061ge");
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "application/json" });
      await reply.write(body);
      reply.end();
    });
    expect(await embedded("base64")).toEqual(base64);
    const [newest] = await bench.usageRows();
    expect(newest).toMatchObject({ prompt_tokens: 2, estimated: false });
  });

  test("are metered and tagged", async () => {
    const headers = { "x-service-ref": "batch-1" };
    await bench.post("/v1/embeddings", { model: "tagged", input: "abc" }, { headers });
    const tagged = (await bench.usageRows()).filter(({ ref_id }) => ref_id === "batch-1");
    expect(tagged).toEqual([
      expect.objectContaining({ model: "tagged:latest", prompt_tokens: 1, completion_tokens: 0 }),
    ]);
  });

  test("need a model and an input", async () => {
    for (const [body, field] of [
      [{ input: "x" }, "`model`"],
      [{ model: "m" }, "`input`"],
      [{ model: "m", input: [] }, "`input`"],
      [{ model: "m", input: 5 }, "`input`"],
      [{ model: "m", input: "x", encoding_format: "hex" }, "`encoding_format`"],
    ] as const) {
      const error = await errorOf(await bench.post("/v1/embeddings", body));
      expect(error).toMatchObject({ status: 400, code: "missing_fields" });
      expect(error.message).toContain(field);
    }
  });

  test("an answer without data is a 502", async () => {
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "wrong model" } }));
    expect((await bench.post("/v1/embeddings", { model: "m", input: "x" })).status).toBe(502);
  });
});

describe("models and health", () => {
  test("list what is routable, then six models that are always advertised", async () => {
    const { object, data } = await (await fetch(`${bench.url}/v1/models`)).json();
    expect(object).toBe("list");
    expect(data.slice(0, 3)).toEqual(
      ["m", "tagged:latest", "tagged:7b"].map((id) => ({
        id,
        object: "model",
        created: 0,
        owned_by: "first",
        available: true,
      })),
    );
    expect(data.length).toBe(9);
    for (const model of data.slice(3)) expect(model).toMatchObject({ available: false, quick_start: true });
    expect((await (await fetch(`${bench.url}/v1/health`)).json()).models).toBe(3);
  });

  test("requests are counted", async () => {
    const before = (await bench.rpc("system.status")).requests_total;
    await bench.chat({});
    await until("it is", async () => (await bench.rpc("system.status")).requests_total > before);
  });
});

test("one answer in the stream is enough to see that tokens arrive as they come", async () => {
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  bench.upstream.answer(async (request, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(
      `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"now"}}]}\n\n`,
    );
    await held;
    await reply.write(`data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n`);
    await reply.end();
    expect(request.closedAtMs).toBeNull();
  });
  const response = await bench.chat({ stream: true });
  const reader = response.body!.getReader();
  const first = new TextDecoder().decode((await reader.read()).value);
  expect(eventsOf(first)[0].choices[0].delta.content).toBe("now");
  release();
  let rest = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    rest += new TextDecoder().decode(piece.value);
  expect(rest).toEndWith("data: [DONE]\n\n");
});
