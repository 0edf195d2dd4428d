import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { chunk, DONE, USAGE, usageChunk } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference({ overrides: { deadlines: { keepAliveMs: 40 } } });
  await bench.addBackend({ name: "up", url: bench.upstream.url, type: "external" });
});
afterAll(() => bench.stop());
afterEach(() => {
  bench.upstream.requests.length = 0;
});

const timings = { prompt_n: 9, predicted_n: 4, predicted_per_second: 81.5 };
const withUsage = (usage: unknown, more: object = {}) =>
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "m", choices: [], usage, ...more })}\n\n`;
const text = [chunk({ delta: { role: "assistant", content: "Hi" } }), chunk({ finish_reason: "stop" })];
const events = async (response: Response) =>
  (await response.text())
    .split("\n\n")
    .filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice(6)));

test("timings that stand beside the usage reach a client that asked for neither", async () => {
  bench.upstream.answer((_, reply) => reply.stream([...text, withUsage(USAGE, { timings }), DONE]));
  const last = (await events(await bench.chat({ stream: true }))).at(-1);
  expect(last).toMatchObject({ timings, choices: [{ index: 0, delta: {} }] });
  expect(last.usage).toBeUndefined();
  const asked = await bench.chat({ stream: true, stream_options: { include_usage: true } });
  expect((await events(asked)).at(-1)).toMatchObject({ timings, choices: [], usage: USAGE });
});

test("one usage chunk, the last that the upstream sent; the gateway's own instead of an impossible one", async () => {
  const ask = async (pieces: string[]) => {
    bench.upstream.answer((_, reply) => reply.stream(pieces));
    const all = await events(await bench.chat({ stream: true, stream_options: { include_usage: true } }));
    return all.filter(({ usage }) => usage);
  };
  const early = { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 };
  expect(await ask([...text, usageChunk(early), usageChunk(), DONE])).toMatchObject([{ usage: USAGE }]);
  const absurd = { prompt_tokens: -1, completion_tokens: 1e9, total_tokens: 1 };
  const [own, ...more] = await ask([...text, usageChunk(absurd), DONE]);
  expect(more).toEqual([]);
  expect(own.usage.prompt_tokens).toBeGreaterThan(0);
  expect(own.usage.completion_tokens).toBe(1);
});

test("a comment is sent while the upstream has not begun; then the answer, or the failure, follows", async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  bench.upstream.answer(async (_, reply) => {
    await released;
    await reply.stream([...text, usageChunk(), DONE]);
  });
  const response = await bench.chat({ stream: true });
  expect(response.status).toBe(200);
  const reader = response.body!.getReader();
  expect(Buffer.from((await reader.read()).value!).toString()).toStartWith(": keep-alive\n\n");
  release();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read())
    rest += Buffer.from(part.value);
  expect(rest).toEndWith("data: [DONE]\n\n");
  expect(rest).toContain('"content":"Hi"');

  const { promise: failing, resolve: failNow } = Promise.withResolvers<void>();
  bench.upstream.answer(async (_, reply) => {
    await failing;
    await reply.json({ error: { message: "too long" } }, 400);
  });
  const broken = await bench.chat({ stream: true });
  expect(broken.status).toBe(200);
  failNow();
  const told = await broken.text();
  expect(told).toContain("upstream 400: too long");
  expect(told).not.toContain("[DONE]");

  const { promise: late, resolve: lateNow } = Promise.withResolvers<void>();
  bench.upstream.answer(async (_, reply) => {
    await late;
    await reply.stream([...text, usageChunk(), DONE]);
  });
  const lines = await bench.post("/api/chat", { model: "m", messages: [{ role: "user", content: "hi" }] });
  lateNow();
  const parsed = (await lines.text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(parsed[0]).toMatchObject({ message: { content: "" }, done: false });
  expect(parsed.at(-1)).toMatchObject({ done: true });
  // Another backend might have been asked yet.
  expect(lines.headers.get("x-service-backend")).toBeNull();

  const { promise: refusing, resolve: refuseNow } = Promise.withResolvers<void>();
  bench.upstream.answer(async (_, reply) => {
    await refusing;
    await reply.json({ error: { message: "no such temperature" } }, 400);
  });
  const refused = await bench.post("/api/chat", { model: "m", messages: [{ role: "user", content: "hi" }] });
  refuseNow();
  expect(JSON.parse((await refused.text()).trim().split("\n").at(-1)!)).toEqual({
    error: "no such temperature",
  });
});

test("usage that more text followed was a running total: the usage chunk says what is charged", async () => {
  const early = { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 };
  const more = chunk({ delta: { content: " there, this is some more text" } });
  bench.upstream.answer((_, reply) => reply.stream([text[0]!, usageChunk(early), more, text[1]!, DONE]));
  const all = await events(await bench.chat({ stream: true, stream_options: { include_usage: true } }));
  const told = all.filter(({ usage }) => usage);
  expect(told).toHaveLength(1);
  const [row] = await bench.usageRows();
  expect(row.completion_tokens).toBeGreaterThan(3);
  expect(told[0].usage.completion_tokens).toBe(row.completion_tokens);
});

test("of several usage reports the largest is charged and told, not the latest", async () => {
  const [large, small] = [40, 2].map((count) => ({
    prompt_tokens: 9,
    completion_tokens: count,
    total_tokens: 9 + count,
  }));
  bench.upstream.answer((_, reply) => reply.stream([...text, usageChunk(large), usageChunk(small), DONE]));
  const all = await events(await bench.chat({ stream: true, stream_options: { include_usage: true } }));
  expect(all.filter(({ usage }) => usage).map(({ usage }) => usage.completion_tokens)).toEqual([40]);
  const [row] = await bench.usageRows();
  expect(row.completion_tokens).toBe(40);
});

test("a client that leaves before the upstream has begun frees it", async () => {
  bench.upstream.answer(async (request, reply) => {
    while (request.closedAtMs === null) await new Promise((resolve) => setImmediate(resolve));
    reply.close();
  });
  const leaving = new AbortController();
  const response = await bench.chat({ stream: true }, { signal: leaving.signal });
  await response.body!.getReader().read();
  leaving.abort();
  while (bench.upstream.requests[0]?.closedAtMs == null)
    await new Promise((resolve) => setImmediate(resolve));
});

test("a gzip body is read, a bomb is 413, other encodings are 415", async () => {
  bench.upstream.answer((_, reply) => reply.stream([...text, usageChunk(), DONE]));
  const body = JSON.stringify({
    model: "m",
    stream: true,
    messages: [{ role: "user", content: "compressed" }],
  });
  const send = (bytes: Uint8Array<ArrayBuffer>, encoding: string) =>
    fetch(`${bench.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${bench.key}`, "content-encoding": encoding },
      body: bytes,
    });
  const read = await send(Bun.gzipSync(body), "gzip");
  expect(read.status).toBe(200);
  await read.text();
  expect(bench.upstream.requests[0]!.json.messages[0].content).toBe("compressed");
  expect((await send(Bun.gzipSync(Buffer.alloc(64 * 1024 * 1024, 32)), "gzip")).status).toBe(413);
  expect((await send(Bun.gzipSync(body).subarray(0, 20), "gzip")).status).toBe(400);
  expect((await send(Buffer.from(body), "gzip")).status).toBe(400);
  const other = await send(Bun.gzipSync(body), "br");
  expect(other.status).toBe(415);
  expect((await other.json()).error.message).toContain("gzip");
  expect(bench.upstream.requests).toHaveLength(1);
});

test("what a server says about its models is passed on, as far as it is plain", async () => {
  bench.upstream.listing((_, reply) =>
    reply.json({
      object: "list",
      data: [
        { id: "meta-model", meta: { n_ctx_train: 4096, n_params: 7, deep: { x: 1 }, long: "x".repeat(999) } },
        { id: "vllm-model", max_model_len: 8192 },
        { id: "only-advertised", available: false },
      ],
    }),
  );
  await bench.addBackend({ name: "meta", url: bench.upstream.url, type: "external" });
  const { data } = await (await fetch(`${bench.url}/v1/models`)).json();
  const metaOf = (id: string) => data.find((model: { id: string }) => model.id === id)?.meta;
  expect(metaOf("meta-model")).toEqual({ n_ctx_train: 4096, n_params: 7 });
  expect(metaOf("vllm-model")).toEqual({ max_model_len: 8192 });
  expect(data.map(({ id }: { id: string }) => id)).not.toContain("only-advertised");
  const shown = await (await bench.post("/api/show", { model: "meta-model" })).json();
  expect(shown.model_info["gateway.context_length"]).toBe(4096);
});
