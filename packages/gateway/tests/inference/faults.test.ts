import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { everywhere } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import {
  chunk,
  completion,
  DONE,
  politeHandler,
  type ReceivedRequest,
  type UpstreamHandler,
  usageChunk,
  wholeStream,
} from "@model-gateway/testing/upstream.ts";
import { estimateTokens } from "../../src/rooms/metering/index.ts";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference({
    overrides: {
      deadlines: {
        firstByteMs: 1_500,
        idleMs: 1_500,
        totalMs: 30_000,
        clientStallMs: 20_000,
        keepAliveMs: 300,
      },
    },
  });
});
afterAll(() => bench.stop());
afterEach(async () => {
  bench.upstream.answer(politeHandler);
  // A success closes the circuit again, so that tests do not depend on each other.
  await reset();
});

async function reset(): Promise<void> {
  await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
}

const circuit = async () => (await bench.backends()).backends.health[0].circuit;
const hasFailed = (times: number) =>
  until(`${times} failures are counted`, () =>
    everywhere(async () => (await circuit()).consecutive_failures === times),
  );
const lastRequest = (): ReceivedRequest => bench.upstream.requests.at(-1)!;
const answer = (handler: UpstreamHandler) => bench.upstream.answer(handler);

/** Text of a streamed answer, the error in it, and whether it was closed properly. `hear` gets what came so far. */
async function streamed(body: Record<string, unknown> = {}, hear = (_: string) => {}) {
  const response = await bench.chat({ stream: true, ...body });
  let text = "";
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    text += piece;
    hear(text);
  }
  const events = response.status === 200 ? eventsOf(text.replaceAll(/^: .*\n\n/gm, "")) : [];
  return {
    status: response.status,
    raw: text,
    text: events.map((event) => event.choices?.[0]?.delta?.content ?? "").join(""),
    error: events.find((event) => event.error)?.error,
    done: events.at(-1) === "[DONE]",
    headers: response.headers,
  };
}

describe("an upstream that fails before its answer", () => {
  test("refusing connections is a 502 with the reason, and counts against the circuit", async () => {
    await bench.addBackend({ name: "gone", type: "external", url: bench.upstream.url, models: ["ghost"] });
    const dead = bench.app.rooms.routing.entries.find(({ config }) => config.name === "gone")!;
    const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const { port } = listener;
    listener.stop(true);
    dead.backend = bench.app.rooms.routing.options.factory.create({
      ...dead.config,
      url: `http://127.0.0.1:${port}`,
    });
    const response = await bench.chat({ model: "ghost" });
    expect(response.status).toBe(502);
    expect((await response.json()).error).toMatchObject({ type: "server_error", code: "bad_gateway" });
    expect(dead.circuits.report(Date.now()).consecutive_failures).toBe(1);
    await bench.removeBackend("gone");
  });

  test("resetting the connection is a 502", async () => {
    answer((_, reply) => reply.reset());
    const response = await bench.chat({});
    expect(response.status).toBe(502);
    await hasFailed(1);
  });

  test("its own error is a 502 that quotes it, without the upstream's key", async () => {
    answer((_, reply) =>
      reply.json({ error: { message: "no such template", type: "BadRequestError" } }, 400),
    );
    const response = await bench.chat({});
    expect(response.status).toBe(502);
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect((await response.json()).error.message).toBe("upstream 400: no such template");
    // The request was at fault, not the backend.
    await hasFailed(0);
  });

  test("flat and plain error bodies are quoted too", async () => {
    answer((_, reply) => reply.json({ object: "error", message: "flat words", code: 400 }, 400));
    expect((await (await bench.chat({})).json()).error.message).toBe("upstream 400: flat words");
    answer((_, reply) => reply.json({ error: "bare words" }, 503));
    expect((await (await bench.chat({})).json()).error.message).toBe("upstream 503: bare words");
  });

  test("429 with Retry-After hands the delay on", async () => {
    answer((_, reply) => reply.json({ error: { message: "slow down" } }, 429, { "retry-after": "17" }));
    const response = await bench.chat({});
    expect(response.status).toBe(502);
    expect(response.headers.get("retry-after")).toBe("17");
    expect(response.headers.get("x-should-retry")).toBeNull();
  });

  test("a 100 MB error body is read in part and quoted up to 4 KB", async () => {
    let sentBytes = 0;
    answer(async (request, reply) => {
      reply.head(500, { "content-type": "text/plain" });
      const piece = "x".repeat(1024 * 1024);
      for (let i = 0; i < 100 && request.closedAtMs === null; i++) {
        await reply.write(piece);
        sentBytes += piece.length;
      }
    });
    const response = await bench.chat({});
    expect(response.status).toBe(502);
    const { message } = (await response.json()).error;
    expect(message).toStartWith("upstream 500: xxx");
    expect(message.length).toBeLessThan(4_200);
    await until("the rest was not taken", () => lastRequest().closedAtMs !== null);
    expect(sentBytes).toBeLessThan(50 * 1024 * 1024);
  });

  test("a first byte that never comes ends at the deadline", async () => {
    answer(() => new Promise(() => {}));
    const response = await bench.chat({});
    expect(response.status).toBe(502);
    expect((await response.json()).error.message).toContain("sent nothing for 1500 ms");
    await until("the upstream was let go", () => lastRequest().closedAtMs !== null);
  });

  test("an error as the first event of a 200 stream still becomes a status", async () => {
    answer((_, reply) => reply.stream([`data: {"error":{"message":"out of memory","code":500}}\n\n`, DONE]));
    const { status, raw } = await streamed();
    expect(status).toBe(502);
    expect(raw).toContain("out of memory");
    await hasFailed(1);
  });

  test("garbage instead of JSON, and an error inside a 200, are failures", async () => {
    answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/html", "content-length": "14" });
      await reply.write("<html>no</html");
    });
    expect((await bench.chat({})).status).toBe(502);
    expect((await streamed()).status).toBe(502);
    await reset();
    answer((_, reply) => reply.json({ error: { message: "quietly broken" } }));
    expect((await (await bench.chat({})).json()).error.message).toContain("quietly broken");
    answer((_, reply) => reply.json({ ok: true }));
    expect((await bench.chat({})).status).toBe(502);
  });

  test("a whole answer that breaks off is a 502 and costs nothing", async () => {
    const rowsBefore = (await bench.usageRows()).length;
    answer(async (_, reply) => {
      reply.head(200, { "content-type": "application/json", "content-length": "5000" });
      await reply.write(JSON.stringify(completion("cut")).slice(0, 100));
      reply.reset();
    });
    expect((await bench.chat({})).status).toBe(502);
    expect((await bench.usageRows()).length).toBe(rowsBefore);
  });
});

describe("an upstream that fails inside its stream", () => {
  test("a reset after any number of chunks is an error event without [DONE], charged for what was delivered", async () => {
    const words = Array.from({ length: 20 }, (_, i) => `word${i} `);
    for (let k = 1; k <= 20; k++) {
      const arrived = Promise.withResolvers<void>();
      answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { role: "assistant", content: "" } }));
        for (const content of words.slice(0, k)) {
          await reply.write(chunk({ delta: { content } }));
          await new Promise((resolve) => setImmediate(resolve));
        }
        // The kernel drops what the gateway has not read when the connection dies.
        await arrived.promise;
        reply.reset();
      });
      const beganAt = performance.now();
      const result = await streamed({}, (text) => text.includes(`word${k - 1} `) && arrived.resolve());
      expect(result.text).toBe(words.slice(0, k).join(""));
      expect(result.error).toMatchObject({ type: "server_error", code: "bad_gateway" });
      expect(result.done).toBe(false);
      await hasFailed(1);
      const [row] = await bench.usageRows();
      const delivered = Math.max(k, estimateTokens(words.slice(0, k).join("")));
      expect(row.completion_tokens).toBeGreaterThanOrEqual(delivered);
      // A model can have written 100 tokens a second that nobody saw.
      const written = Math.ceil((performance.now() - beganAt) / 10);
      expect(row.completion_tokens).toBeLessThanOrEqual(Math.max(delivered, written));
      await reset();
    }
  });

  test("a stall ends at the idle deadline, with comments on the way", async () => {
    answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "so far" } }));
      await new Promise(() => {});
    });
    const { text, error, done, raw } = await streamed();
    expect(text).toBe("so far");
    expect(error.message).toContain("sent nothing for 1500 ms");
    expect(done).toBe(false);
    expect(raw).toContain(": keep-alive\n\n");
    await until("the upstream was let go", () => lastRequest().closedAtMs !== null);
  });

  test("an error event in the middle ends the stream and counts", async () => {
    answer((_, reply) =>
      reply.stream([
        chunk({ delta: { role: "assistant", content: "a" } }),
        chunk({ delta: { content: "b" } }),
        `data: {"error":{"message":"engine died","type":"InternalServerError","code":500}}\n\n`,
        DONE,
      ]),
    );
    const { text, error, done } = await streamed();
    expect(text).toBe("ab");
    expect(error.message).toContain("engine died");
    expect(done).toBe(false);
    await hasFailed(1);
  });

  test("an event that is not JSON is an error, not something to pass on", async () => {
    answer((_, reply) =>
      reply.stream([chunk({ delta: { role: "assistant", content: "a" } }), "data: {oops\n\n", DONE]),
    );
    const { text, error, done, raw } = await streamed();
    expect(text).toBe("a");
    expect(error.message).toContain("not JSON");
    expect(done).toBe(false);
    expect(raw).not.toContain("oops");
  });

  test("an end without finish and without [DONE] is a cut", async () => {
    answer((_, reply) => reply.stream([chunk({ delta: { role: "assistant", content: "half" } })]));
    const { error, done } = await streamed();
    expect(error.message).toContain("before the answer was complete");
    expect(done).toBe(false);
  });

  test("an end without [DONE] after the finish is whole", async () => {
    answer((_, reply) => reply.stream(wholeStream(["all ", "of it"]).slice(0, -1)));
    const { text, error, done } = await streamed();
    expect([text, error, done]).toEqual(["all of it", undefined, true]);
    expect((await bench.usageRows())[0]).toMatchObject({ prompt_tokens: 9, completion_tokens: 4 });
  });

  test("CRLF, comments, split characters and any chunking give the same text", async () => {
    const words = ["Grüße, ", "世界 ", "👩‍👩‍👧 ", "ok"];
    const all = Buffer.from(`: hello\r\n\r\n${wholeStream(words).join("").replaceAll("\n", "\r\n")}`);
    for (const size of [1, 2, 3, 7, 64, 1000]) {
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < all.length; at += size) pieces.push(all.subarray(at, at + size));
      answer((_, reply) => reply.stream(pieces));
      const response = await bench.chat({ stream: true });
      const raw = await response.text();
      const texts = raw
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data: {"))
        .map((line) => JSON.parse(line.slice(6)).choices[0].delta.content ?? "");
      expect(texts.join("")).toBe(words.join(""));
      expect(raw).toEndWith("data: [DONE]\n\n");
    }
  });

  test("a line of 10 MB passes whole", async () => {
    const content = "long ".repeat(2 * 1024 * 1024);
    answer((_, reply) => reply.stream(wholeStream([content, "end"])));
    const { text, done } = await streamed();
    expect(text.length).toBe(content.length + 3);
    expect(text === `${content}end`).toBe(true);
    expect(done).toBe(true);
  });

  test("an upstream without streaming is replayed as a stream", async () => {
    answer((_, reply) => reply.json(completion("all at once")));
    const { text, done } = await streamed();
    expect(text).toBe("all at once");
    expect(done).toBe(true);
  });

  test("an upstream without usage is estimated", async () => {
    const words = ["four score ", "and seven years ago"];
    answer((_, reply) =>
      reply.stream([
        chunk({ delta: { role: "assistant", content: "" } }),
        ...words.map((content) => chunk({ delta: { content } })),
        chunk({ finish_reason: "stop" }),
        DONE,
      ]),
    );
    expect((await streamed()).done).toBe(true);
    const [row] = await bench.usageRows();
    expect(row.completion_tokens).toBe(estimateTokens(words.join("")));
    expect(row.prompt_tokens).toBeGreaterThan(0);
  });

  test("a stream with neither text nor usage is not recorded", async () => {
    const rowsBefore = (await bench.usageRows()).length;
    answer((_, reply) => reply.stream([chunk({ finish_reason: "stop" }), DONE]));
    expect((await streamed()).done).toBe(true);
    expect((await bench.usageRows()).length).toBe(rowsBefore);
  });
});

describe("a client that leaves", () => {
  const closedWithin = async (leftAtMs: number) => {
    await until("the upstream saw the client leave", () => lastRequest().closedAtMs !== null);
    return lastRequest().closedAtMs! - leftAtMs;
  };

  for (const stream of [true, false]) {
    test(`before the first byte, ${stream ? "streaming" : "not streaming"}: the upstream is let go at once`, async () => {
      const count = bench.upstream.requests.length;
      answer(() => new Promise(() => {}));
      const leaving = new AbortController();
      const pending = bench.chat({ stream }, { signal: leaving.signal }).catch(() => null);
      await until("the request arrived", () => bench.upstream.requests.length > count);
      const leftAtMs = Date.now();
      leaving.abort();
      await pending;
      // A tenth of a second by design; the bound leaves room for a busy machine.
      expect(await closedWithin(leftAtMs)).toBeLessThan(1_000);
      await hasFailed(0);
    });
  }

  test("in the middle: the upstream is let go and what was delivered is charged", async () => {
    answer(async (request, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "" } }));
      while (request.closedAtMs === null) {
        await reply.write(chunk({ delta: { content: "12345678" } }));
        await Bun.sleep(10);
      }
    });
    const leaving = new AbortController();
    const response = await bench.chat({ stream: true }, { signal: leaving.signal });
    const reader = response.body!.getReader();
    let seen = "";
    while (seen.split("12345678").length < 5) seen += new TextDecoder().decode((await reader.read()).value);
    const rowsBefore = (await bench.usageRows()).length;
    const leftAtMs = Date.now();
    leaving.abort();
    expect(await closedWithin(leftAtMs)).toBeLessThan(1_000);
    await until("the usage is recorded", async () => (await bench.usageRows()).length > rowsBefore);
    const [row] = await bench.usageRows();
    expect(row.completion_tokens).toBeGreaterThanOrEqual(8);
    await hasFailed(0);
  });

  test("after the last byte: nothing is charged twice, nothing stays open", async () => {
    const rowsBefore = (await bench.usageRows()).length;
    const leaving = new AbortController();
    const response = await bench.chat({ stream: true }, { signal: leaving.signal });
    await response.text();
    leaving.abort();
    await until("no call is left", () => bench.app.rooms.inference.callsInFlight === 0);
    expect((await bench.usageRows()).length).toBe(rowsBefore + 1);
  });
});

describe("a client that reads slowly", () => {
  test("holds the upstream back instead of filling the memory", async () => {
    const piece = chunk({ delta: { content: "x".repeat(16 * 1024) } });
    const pieces = 4_000;
    let written = 0;
    answer(async (request, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "" } }));
      for (; written < pieces && request.closedAtMs === null; written++) await reply.write(piece);
      await reply.write(chunk({ finish_reason: "stop" }) + usageChunk() + DONE);
      await reply.end();
    });
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "go" }], stream: true });
    let received = 0;
    let tail = "";
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port: bench.app.port,
      socket: {
        data(_, bytes) {
          received += bytes.length;
          tail = (tail + bytes.toString("latin1")).slice(-200);
        },
      },
    });
    socket.pause();
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bench.key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    // The upstream stops when every buffer on the way is full: then it writes nothing more for a while.
    let before = -1;
    await until("the upstream is held back", async () => {
      const stopped = written > 0 && written === before;
      before = written;
      await Bun.sleep(300);
      return stopped && written === before;
    });
    expect(written).toBeLessThan(pieces / 2);
    expect(received).toBe(0);
    socket.resume();
    await until("the whole stream arrived", () => tail.includes("[DONE]"));
    expect(received).toBeGreaterThan(pieces * 16 * 1024);
    socket.terminate();
  });
});
