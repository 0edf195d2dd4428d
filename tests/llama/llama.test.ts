/** A real llama.cpp behind the gateway. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { FAILURES_TO_OPEN } from "../../packages/gateway/src/rooms/routing/circuit.ts";
import { bootInference, type InferenceBench } from "../../packages/gateway/tests/support/inference.ts";
import { TRAINED_CONTEXT } from "./gguf.ts";
import { CONTEXT, hasLlama, LlamaServer, SLOTS, startTap } from "./server.ts";

const CLIENTS = 20;
/** Longer than it takes to send all of them; shorter than a freeze. */
const FIRST_BYTE_MS = 4_000;

describe.if(hasLlama)("llama.cpp, where npm run llama -- build has built it", () => {
  let bench: InferenceBench;
  let tap: ReturnType<typeof startTap>;
  const server = new LlamaServer("tiny");
  const embedder = new LlamaServer("vectors", ["--embeddings", "--pooling", "mean"]);

  beforeAll(async () => {
    await Promise.all([server.start(), embedder.start()]);
    tap = startTap(() => server.url);
    bench = await bootInference({ overrides: { deadlines: { firstByteMs: FIRST_BYTE_MS } } });
    await bench.addBackend({ name: "llama", type: "llama_cpp", url: tap.url, concurrency: SLOTS });
    await bench.addBackend({ name: "vectors", type: "llama_cpp", url: embedder.url });
  });
  afterAll(async () => {
    await bench.stop();
    tap.stop();
    await Promise.all([server.stop(), embedder.stop()]);
  });
  afterEach(() => {
    tap.chats.length = 0;
  });

  const request = (prompt: string, more: object = {}) => ({
    model: "tiny",
    messages: [{ role: "user", content: prompt }],
    max_tokens: 24,
    temperature: 0,
    seed: 1,
    ...more,
  });
  const direct = (path: string, body?: object) =>
    fetch(`${server.url}${path}`, {
      method: body ? "POST" : "GET",
      headers: { "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
  const served = async (prompt: string): Promise<boolean> => (await bench.chat(request(prompt))).ok;
  const stateOf = async (name: string) =>
    (await bench.backends()).backends.health.find((entry: { name: string }) => entry.name === name);

  test("a whole answer says what llama.cpp says when it is asked directly", async () => {
    const through = await (await bench.chat(request("Hello"))).json();
    const own = await (await direct("/v1/chat/completions", request("Hello"))).json();
    expect(through.choices).toEqual(own.choices);
    expect(through.choices[0].message.content.length).toBeGreaterThan(24);
    expect(through.usage.completion_tokens).toBe(24);
    expect(through.usage.prompt_tokens).toBe(own.usage.prompt_tokens);
    expect(through.timings.predicted_n).toBe(24);
  });

  test("a stream is llama.cpp's own, byte by byte, with its timings", async () => {
    const streamed = request("Hello", { stream: true, stream_options: { include_usage: true } });
    const text = await (await bench.chat(streamed)).text();
    expect(text).toBe(await tap.chats[0]!.answer);
    // What differs from call to call: ids, times, and how long it took.
    const steady = (stream: string) =>
      stream
        .replace(/"(id|created)":("[^"]*"|\d+)/g, '"$1":0')
        .replace(/"timings":\{[^}]*\}/g, '"timings":{}');
    const own = await (await direct("/v1/chat/completions", streamed)).text();
    expect(steady(text)).toBe(steady(own));
    expect(text).toMatch(/"timings":\{[^}]*"predicted_n":24[,}]/);
    // Without the usage for those who did not ask, but with the timings.
    const plain = await (await bench.chat(request("Hello", { stream: true }))).text();
    expect(plain).not.toContain('"usage"');
    expect(plain).toMatch(/"timings":\{[^}]*"predicted_n":24[,}]/);
  });

  test("models come with what llama.cpp says about them", async () => {
    const { data } = await (await fetch(`${bench.url}/v1/models`)).json();
    const listed = data.find(({ id }: { id: string }) => id === "tiny");
    const own = (await (await direct("/v1/models")).json()).data[0];
    expect(own.meta.n_ctx_train).toBe(TRAINED_CONTEXT);
    expect(listed.meta).toEqual(own.meta);
  });

  test("an overflow is one on every surface, with llama.cpp's figures", async () => {
    const prompt = "ba ".repeat(CONTEXT);
    const own = (await (await direct("/v1/chat/completions", request(prompt))).json()).error;
    expect(own.n_ctx).toBe(CONTEXT);
    const chat = await bench.chat(request(prompt));
    expect(chat.status).toBe(502);
    expect(chat.headers.get("x-should-retry")).toBe("false");
    expect((await chat.json()).error.upstream).toMatchObject({
      status: 400,
      code: "context_length_exceeded",
      prompt_tokens: own.n_prompt_tokens,
      context_tokens: CONTEXT,
    });
    const messages = await bench.post("/v1/messages", request(prompt));
    expect(messages.status).toBe(400);
    expect((await messages.json()).error.message).toBe(
      `prompt is too long: ${own.n_prompt_tokens} tokens > ${CONTEXT} maximum`,
    );
    const responses = await bench.post("/v1/responses", { model: "tiny", input: prompt });
    expect(responses.status).toBe(400);
    expect((await responses.json()).error.code).toBe("context_length_exceeded");
  });

  test("vectors are those of llama.cpp", async () => {
    const input = ["ba be", "bi"];
    const answer = await bench.post("/v1/embeddings", { model: "vectors", input });
    const own = await fetch(`${embedder.url}/v1/embeddings`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "vectors", input }),
    });
    const [through, directly] = [await answer.json(), await own.json()];
    expect(answer.status).toBe(200);
    expect(through.data).toEqual(directly.data);
    expect(through.data[0].embedding.length).toBe(32);
  });

  test(`${CLIENTS} clients on ${SLOTS} slots are all served, in the order in which they came`, async () => {
    const { routing } = bench.app.rooms;
    const prompts = Array.from({ length: CLIENTS }, (_, i) => `client ${i}`);
    const answers: Promise<number>[] = [];
    // Nothing is answered while it is stopped, so that all of them have to wait.
    server.signal("SIGSTOP");
    for (const [i, prompt] of prompts.entries()) {
      answers.push(bench.chat(request(prompt)).then(({ status }) => status));
      await until(`${prompt} is waiting`, () => tap.chats.length + routing.router.waitingCount === i + 1);
    }
    expect(tap.chats.length).toBe(SLOTS);
    server.signal("SIGCONT");
    expect(await Promise.all(answers)).toEqual(prompts.map(() => 200));
    expect(tap.chats.map(({ prompt }) => prompt)).toEqual(prompts);
  });

  test("the rest goes to it directly", () =>
    bench.addBackend({ name: "llama", type: "llama_cpp", url: server.url, concurrency: SLOTS }));

  test("a restart: it serves again as soon as it is back", async () => {
    await server.kill();
    for (let i = 0; (await stateOf("llama")).circuit.state === "closed"; i++) await served(`while away ${i}`);
    await server.start();
    const backMs = performance.now();
    await until("it serves", () => served("after the restart"));
    console.log(`after a restart: ${Math.round(performance.now() - backMs)} ms`);
  });

  test("a freeze: it serves again as soon as it goes on", async () => {
    server.signal("SIGSTOP");
    const unserved = Array.from({ length: FAILURES_TO_OPEN }, (_, i) => served(`while frozen ${i}`));
    expect(await Promise.all(unserved)).not.toContain(true);
    await until("a probe has missed it", async () => (await stateOf("llama")).state === "Unhealthy");
    server.signal("SIGCONT");
    const backMs = performance.now();
    await until("it serves", () => served("after the freeze"));
    console.log(`after a freeze: ${Math.round(performance.now() - backMs)} ms`);
  });
});
