import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { everywhere } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, completion, DONE, type UpstreamHandler } from "@model-gateway/testing/upstream.ts";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { startFakeOllama } from "../support/ollama.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
// Registered anew, its circuit is closed: tests do not depend on each other.
afterEach(() => bench.addBackend({ name: "first", type: "external", url: bench.upstream.url }));

const hasFailed = (times: number) =>
  until(`${times} failures are counted`, () =>
    everywhere(
      async () => (await bench.backends()).backends.health[0].circuit.consecutive_failures === times,
    ),
  );

/** A body that only the end of the connection ends, so that nothing tells when it was cut short. */
const untilClosed =
  (contentType: string, body: string): UpstreamHandler =>
  async (_, reply) => {
    await reply.raw(`HTTP/1.1 200 OK\r\ncontent-type: ${contentType}\r\nconnection: close\r\n\r\n${body}`);
    reply.close();
  };

const whole = JSON.stringify(completion("hello there"));
const { usage: _, ...unmetered } = completion("hello there");

/** Under status 200, and yet no answer. */
const BROKEN: Record<string, UpstreamHandler> = {
  "cut in its usage": untilClosed("application/json", whole.slice(0, -20)),
  "cut in its text": untilClosed("application/json", whole.slice(0, whole.indexOf("there"))),
  "an error beside null choices": (_, reply) =>
    reply.json({ choices: null, error: { message: "overloaded" } }),
  "an error beside no choices": (_, reply) => reply.json({ choices: [], error: "overloaded" }),
  "an error beside no choices, with usage": (_, reply) =>
    reply.json({ ...completion(""), choices: [], error: { message: "overloaded" } }),
  "choices of another type": (_, reply) => reply.json({ ...unmetered, choices: { index: 0 } }),
  "plain text": untilClosed("text/plain", "Service busy"),
  nothing: untilClosed("text/event-stream", ""),
};

for (const [what, handler] of Object.entries(BROKEN)) {
  for (const stream of [false, true]) {
    test(`${what} is a 502 ${stream ? "also when a stream was asked for" : ""} and counts`, async () => {
      bench.upstream.answer(handler);
      const rowsBefore = (await bench.usageRows()).length;
      const response = await bench.chat({ stream });
      expect(await response.json()).toMatchObject({ error: { type: "server_error", code: "bad_gateway" } });
      expect(response.status).toBe(502);
      await hasFailed(1);
      // What it says was used is charged.
      expect((await bench.usageRows()).length).toBe(rowsBefore + (what.includes("with usage") ? 1 : 0));
    });
  }
}

test("a stream to someone who asked for none is a 502, not JSON that is none", async () => {
  bench.upstream.answer((_, reply) => reply.stream([chunk({ delta: { content: "hi" } }), DONE]));
  const response = await bench.chat({ stream: false });
  expect(response.status).toBe(502);
  expect((await response.json()).error.message).toContain("a stream where none was asked for");
});

test("types of answers are read in any case", async () => {
  bench.upstream.answer(untilClosed("Application/JSON", whole));
  const events = eventsOf(await (await bench.chat({ stream: true })).text());
  expect(events.at(-1)).toBe("[DONE]");
  bench.upstream.answer(untilClosed("Text/Event-Stream", chunk({ delta: { content: "hi" } })));
  const { error } = await (await bench.chat({})).json();
  expect(error.message).toContain("a stream where none was asked for");
});

test("an answer that cannot be unpacked is a 502 that does not say where the upstream is", async () => {
  await bench.addBackend({
    ...{ name: "first", type: "external", url: bench.upstream.url, dialects: ["messages"], models: ["m"] },
  });
  bench.upstream.answer((_, reply) => reply.json({}, 200, { "content-encoding": "br" }));
  const answer = await bench.chat({});
  expect(answer.status).toBe(502);
  expect(await answer.text()).not.toContain("127.0.0.1");
});

test("a stream of two answers that ends after the first is a cut", async () => {
  const piece = (index: number, finish_reason: string | null) =>
    `data: ${JSON.stringify({ id: "c", choices: [{ index, delta: { content: "hi" }, finish_reason }] })}\n\n`;
  const said = async (pieces: string[]) => {
    bench.upstream.answer((_, reply) => reply.stream(pieces));
    return eventsOf(await (await bench.chat({ stream: true, n: 2 })).text());
  };
  const opening = [piece(0, null), piece(1, null), piece(0, "stop")];
  expect((await said(opening)).at(-1).error.code).toBe("bad_gateway");
  expect((await said([...opening, piece(1, "length")])).at(-1)).toBe("[DONE]");
});

test("an upstream's long complaint is told up to 4 KB, and no character is cut in two", async () => {
  const complaint = "错".repeat(5_000);
  const told = async (handler: UpstreamHandler) => {
    bench.upstream.answer(handler);
    const { error } = await (await bench.chat({})).json();
    return error.message.replace(/^upstream \d+: /, "");
  };
  const expected = complaint.slice(0, Math.floor(4_096 / 3));
  expect(await told((_, reply) => reply.json({ error: { message: complaint } }, 400))).toBe(expected);
  expect(await told((_, reply) => reply.json({ error: complaint }))).toBe(expected);
});

test("an error whose body does not come to its end is told soon, as far as it came", async () => {
  bench.upstream.answer(async (request, reply) => {
    await reply.raw(`HTTP/1.1 500 Oops\r\ncontent-length: 1000\r\n\r\n${request.json.user}`);
    await until("the gateway gives up", () => request.closedAtMs !== null);
  });
  const told = ["", "out of mem"].map(async (user) => {
    const response = await bench.chat({ user });
    return [response.status, (await response.json()).error.message];
  });
  expect(await Promise.all(told)).toEqual([
    [502, "upstream 500: Oops"],
    [502, "upstream 500: out of mem"],
  ]);
  await hasFailed(2);
}, 30_000);

test("vectors that cannot be read are a 502", async () => {
  const rowsBefore = (await bench.usageRows()).length;
  bench.upstream.answer((_, reply) => reply.json({ data: [{ embedding: "not base64!" }] }));
  const response = await bench.post("/v1/embeddings", { model: "m", input: "hi", encoding_format: "float" });
  expect([response.status, (await response.json()).error.code]).toEqual([502, "bad_gateway"]);
  await hasFailed(1);
  expect((await bench.usageRows()).length).toBe(rowsBefore);
});

test("vectors that were cut short are a 502", async () => {
  const body = JSON.stringify({
    object: "list",
    data: [{ object: "embedding", index: 0, embedding: [1, 2, 3] }],
  });
  bench.upstream.answer(untilClosed("application/json", body.slice(0, -8)));
  const response = await bench.post("/v1/embeddings", { model: "m", input: "hi" });
  expect(response.status).toBe(502);
});

test("an answer without usage costs what it says: thoughts count, nothing costs nothing", async () => {
  const say = (message: object) =>
    bench.upstream.answer((_, reply) => reply.json({ ...unmetered, choices: [{ index: 0, message }] }));
  const before = (await bench.usageRows()).length;
  say({ role: "assistant", content: "" });
  expect((await bench.chat({})).status).toBe(200);
  expect(await bench.usageRows()).toHaveLength(before);
  say({ role: "assistant", content: "yes!", reasoning_content: "let me think" });
  expect((await (await bench.chat({})).json()).usage.completion_tokens).toBe(4);
  const rows = await bench.usageRows();
  expect(rows).toHaveLength(before + 1);
  expect(rows[0].completion_tokens).toBe(4);
});

test("a local server's answer without a message is a 502", async () => {
  const ollama = startFakeOllama();
  await bench.addBackend({ name: "native", type: "ollama", url: ollama.url });
  for (const body of [[1], {}, { done: true, message: "hi" }]) {
    ollama.on("/api/chat", () => Response.json(body));
    const response = await bench.chat({ model: "llama3.2" });
    expect([response.status, (await response.json()).error.message]).toEqual([
      502,
      "the upstream answered without a message",
    ]);
  }
  await ollama.stop();
});

describe("usage that was asked for", () => {
  const events = async () => {
    const response = await bench.chat({ stream: true, stream_options: { include_usage: true } });
    return eventsOf(await response.text());
  };

  test("comes after the finish, as it is recorded, where the upstream reports none", async () => {
    bench.upstream.answer((_, reply) =>
      reply.stream([chunk({ delta: { role: "assistant", content: "four score" } }), DONE]),
    );
    const [finish, last, done] = (await events()).slice(-3);
    expect(finish.choices[0].finish_reason).toBe("stop");
    const [row] = await bench.usageRows();
    const { prompt_tokens, completion_tokens, total_tokens } = row;
    expect(last).toMatchObject({ choices: [], usage: { prompt_tokens, completion_tokens, total_tokens } });
    expect(last.id).toBe(finish.id);
    expect(done).toBe("[DONE]");
  });

  test("is not repeated where the upstream put it elsewhere", async () => {
    const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
    bench.upstream.answer((_, reply) =>
      reply.stream([chunk({ delta: { content: "hi" }, finish_reason: "stop", usage }), DONE]),
    );
    expect((await events()).filter((event) => event.usage)).toHaveLength(1);
  });
});
