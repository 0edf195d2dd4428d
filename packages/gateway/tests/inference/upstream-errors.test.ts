import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const MESSAGES = [{ role: "user", content: "hi" }];
const LLAMA_OVERFLOW = {
  error: {
    code: 400,
    message: "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    type: "exceed_context_size_error",
    n_prompt_tokens: 9000,
    n_ctx: 4096,
  },
};
const GOOGLE_WORDS = "The input token count (9000) exceeds the maximum number of tokens allowed (4096).";
const OPENAI_WORDS =
  "This model's maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens.";

let bench: InferenceBench;
const refuse = (status: number, body: unknown) =>
  bench.upstream.answer((_, reply) => reply.json(body, status));
const messages = (stream = false) =>
  bench.post("/v1/messages", { model: "m", max_tokens: 10, messages: MESSAGES, stream });
const responses = (stream = false) => bench.post("/v1/responses", { model: "m", input: "hi", stream });

describe("by default", () => {
  beforeAll(async () => {
    bench = await bootInference();
  });
  afterAll(() => bench.stop());
  beforeEach(() => refuse(400, LLAMA_OVERFLOW));

  test.each([false, true])(
    "the contract's routes answer 502 with `upstream` and no retry (stream: %p)",
    async (stream) => {
      const answer = await bench.chat({ stream });
      expect(answer.status).toBe(502);
      expect(answer.headers.get("x-should-retry")).toBe("false");
      const { error } = await answer.json();
      expect(error).toEqual({
        message: `upstream 400: ${LLAMA_OVERFLOW.error.message}`,
        type: "server_error",
        code: "bad_gateway",
        upstream: {
          status: 400,
          type: "exceed_context_size_error",
          code: "context_length_exceeded",
          param: null,
          prompt_tokens: 9000,
          context_tokens: 4096,
        },
      });
      const embeddings = await bench.post("/v1/embeddings", { model: "m", input: "hi" });
      expect(embeddings.status).toBe(502);
      expect((await embeddings.json()).error.upstream.code).toBe("context_length_exceeded");
    },
  );

  test.each([false, true])(
    "Messages, Responses and Gemini say it in their own forms (stream: %p)",
    async (stream) => {
      const call = stream ? "streamGenerateContent?alt=sse" : "generateContent";
      const google = await bench.post(`/v1beta/models/m:${call}`, {
        contents: [{ role: "user", parts: [{ text: "hi" }] }],
      });
      expect([google.status, (await google.json()).error]).toEqual([
        400,
        { code: 400, message: GOOGLE_WORDS, status: "INVALID_ARGUMENT", details: [] },
      ]);
      const anthropic = await messages(stream);
      expect(anthropic.status).toBe(400);
      expect((await anthropic.json()).error).toMatchObject({
        type: "invalid_request_error",
        message: "prompt is too long: 9000 tokens > 4096 maximum",
      });
      const openai = await responses(stream);
      expect(openai.status).toBe(400);
      expect((await openai.json()).error).toMatchObject({
        type: "invalid_request_error",
        code: "context_length_exceeded",
        message: OPENAI_WORDS,
      });
    },
  );

  test.each([false, true])(
    "text completions say it as OpenAI does, Ollama's paths as Ollama does (stream: %p)",
    async (stream) => {
      const completions = await bench.post("/v1/completions", { model: "m", prompt: "hi", stream });
      expect(completions.status).toBe(400);
      expect((await completions.json()).error).toMatchObject({
        type: "invalid_request_error",
        code: "context_length_exceeded",
        message: OPENAI_WORDS,
      });
      for (const [path, body] of [
        ["/api/chat", { messages: MESSAGES }],
        ["/api/generate", { prompt: "hi" }],
        ["/api/generate", { prompt: "hi", raw: true }],
        ["/api/embed", { input: "hi" }],
      ] as const) {
        const ollama = await bench.post(path, { model: "m", stream, ...body });
        expect(ollama.status).toBe(400);
        expect(ollama.headers.get("x-should-retry")).toBe("false");
        expect(await ollama.json()).toEqual({ error: OPENAI_WORDS });
      }
    },
  );

  test("they pass the refusals of a request and nothing else", async () => {
    for (const status of [400, 404, 413, 415, 422]) {
      refuse(status, { error: { message: "not like this", type: "some_error", code: "some_code" } });
      expect((await messages()).status).toBe(status);
      const answer = await responses();
      expect(answer.status).toBe(status);
      expect(answer.headers.get("x-should-retry")).toBe("false");
      expect((await answer.json()).error).toMatchObject({
        message: "not like this",
        type: "some_error",
        code: "some_code",
      });
    }
    for (const status of [401, 403, 429]) {
      refuse(status, { error: { message: "not you" } });
      expect((await responses()).status).toBe(502);
      bench.upstream.answer((_, reply) => reply.json({ choices: [{ message: { content: "" } }] }));
      await bench.chat({});
    }
  });

  test("a wrong key is not tried again", async () => {
    for (const path of [
      "/v1/chat/completions",
      "/v1/messages",
      "/v1/responses",
      "/v1/completions",
      "/api/chat",
      "/api/generate",
      "/api/embed",
    ]) {
      const answer = await bench.post(
        path,
        { model: "m", messages: MESSAGES },
        { headers: { authorization: "Bearer no" } },
      );
      expect(answer.status).toBe(401);
      expect(answer.headers.get("x-should-retry")).toBe("false");
      expect(answer.headers.get("www-authenticate")).toBe("Bearer");
    }
  });
});

describe("with SERVICE_UPSTREAM_ERRORS=pass", () => {
  beforeAll(async () => {
    bench = await bootInference({ config: { upstreamErrors: "pass" } });
  });
  afterAll(() => bench.stop());

  const OVERFLOWS = [
    LLAMA_OVERFLOW,
    { error: { message: OPENAI_WORDS, type: "invalid_request_error", code: "context_length_exceeded" } },
    {
      object: "error",
      message:
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens (8900 in the messages, 100 in the completion).",
      type: "BadRequestError",
    },
    { error: { code: 400, message: GOOGLE_WORDS, status: "INVALID_ARGUMENT" } },
    {
      error: { message: "The input (9000 tokens) is longer than the model's context length (4096 tokens)." },
    },
  ];
  test.each(OVERFLOWS)("an overflow is one, however the server says it: %j", async (body) => {
    refuse(400, body);
    const answer = await bench.chat({});
    expect(answer.status).toBe(400);
    expect((await answer.json()).error).toMatchObject({
      message: OPENAI_WORDS,
      type: "invalid_request_error",
      param: "messages",
      code: "context_length_exceeded",
      upstream: { status: 400, prompt_tokens: 9000, context_tokens: 4096 },
    });
  });

  test("other refusals keep their status, words, type, code and param", async () => {
    const error = { message: "`temperature` is too high", type: "odd", code: "bad_t", param: "temperature" };
    refuse(422, { error });
    const answer = await bench.chat({});
    expect(answer.status).toBe(422);
    expect((await answer.json()).error).toMatchObject(error);
    refuse(500, { error: { message: "broken" } });
    expect((await bench.chat({})).status).toBe(502);
  });
});
