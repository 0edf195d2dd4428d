import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { BackendError } from "../../src/backends/contract.ts";
import { localServer } from "../../src/backends/local-server/index.ts";
import { keepSecret } from "../../src/kernel/secrets.ts";
import {
  backendConfig,
  chatCall,
  eventsOf,
  modelCall,
  type RespondingBackend,
  realDeps,
  responding,
} from "../support/backends.ts";
import { chatLine, doneLine, type FakeOllama, ndjson, startFakeOllama } from "../support/ollama.ts";

let ollama: FakeOllama;
const create = (...args: Parameters<typeof localServer.create>) => responding(localServer.create(...args));
let backend: RespondingBackend;
beforeAll(() => {
  // As the factory of all backends does.
  keepSecret("sk-upstream");
  ollama = startFakeOllama();
  backend = create(backendConfig("local-server", `${ollama.url}/`, { apiKey: "sk-upstream" }), realDeps);
});
afterAll(() => ollama.stop());

const user = (content: string) => [{ role: "user", content }];
const body = (stream: boolean, content = "one two three") => ({
  model: "llama3.2:latest",
  messages: user(content),
  stream,
});
async function failure(work: Promise<unknown>): Promise<BackendError> {
  const error = await work.then(
    () => new Error("it succeeded"),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(BackendError);
  return error as BackendError;
}
/** A server of its own for tests that change what it answers. */
async function onOwnServer(
  work: (own: FakeOllama, backend: RespondingBackend) => Promise<void>,
): Promise<void> {
  const own = startFakeOllama();
  try {
    await work(own, create(backendConfig("local-server", own.url, { apiKey: "sk-upstream" }), realDeps));
  } finally {
    await own.stop();
  }
}

test("a stream arrives as chat-completions events", async () => {
  const response = await backend.chat!(chatCall(body(true)));
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const events = eventsOf(await response.text());
  expect(events.map((event) => event.choices?.[0]?.delta.content ?? "").join("")).toBe("one two three");
  expect(events[0].choices[0].delta.role).toBe("assistant");
  expect(events.at(-2).usage.total_tokens).toBe(11);
  expect(events.at(-1)).toBe("[DONE]");
  const sent = ollama.requests.at(-1)!;
  expect(sent.path).toBe("/api/chat");
  expect(sent.headers.get("authorization")).toBe("Bearer sk-upstream");
  expect(sent.body).toEqual({ model: "llama3.2:latest", messages: user("one two three"), stream: true });
});

test("a whole answer arrives as a chat completion", async () => {
  const answer = (await (await backend.chat!(chatCall(body(false)))).json()) as Record<string, unknown>;
  expect(answer).toMatchObject({
    object: "chat.completion",
    model: "llama3.2:latest",
    choices: [{ message: { role: "assistant", content: "one two three" }, finish_reason: "stop" }],
    usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 },
  });
});

test("embeddings", async () => {
  const input = ["abc", "de"];
  const floats = await (await backend.embed!(modelCall({ model: "e", input }))).json();
  expect(floats).toMatchObject({
    object: "list",
    model: "e",
    data: [{ embedding: [3, 0.5, -1] }, { embedding: [2, 0.5, -1], index: 1 }],
    usage: { prompt_tokens: 4, total_tokens: 4 },
  });
});

test("a server without /api/embed is asked the older way", async () => {
  await onOwnServer(async (own, older) => {
    own.on("/api/embed", () => new Response("404 page not found", { status: 404 }));
    own.on("/api/embeddings", ({ body: sent }) => Response.json({ embedding: [sent.prompt.length] }));
    const answer = await older.embed!(modelCall({ model: "e", input: ["a", "bb"] }));
    expect(await answer.json()).toMatchObject({ data: [{ embedding: [1] }, { embedding: [2] }] });
    await older.embed!(modelCall({ model: "e", input: "ccc" }));
    expect(own.requests.filter(({ path }) => path === "/api/embed")).toHaveLength(1);
  });
});

test("the probe lists the tags and spends nothing", async () => {
  await onOwnServer(async (own, probed) => {
    expect(await probed.probe(AbortSignal.timeout(5_000))).toEqual({
      state: "Healthy",
      models: [
        { id: "llama3.2:latest", capabilities: ["chat"] },
        { id: "nomic-embed-text:v1.5", capabilities: ["embeddings"] },
      ],
    });
    expect(own.requests.map(({ path }) => path)).toEqual(["/api/tags"]);
    own.on("/api/tags", () => Response.json({ error: "busy" }, { status: 503 }));
    expect(await probed.probe(AbortSignal.timeout(5_000))).toMatchObject({ state: "Degraded" });
    own.on("/api/tags", () => new Response("<html>", { headers: { "content-type": "text/html" } }));
    expect(await probed.probe(AbortSignal.timeout(5_000))).toMatchObject({ state: "Unhealthy" });
  });
});

describe("failures", () => {
  test("nobody listens: nothing was sent, so another backend may be tried", async () => {
    const gone = startFakeOllama();
    await gone.stop();
    const dead = create(backendConfig("local-server", gone.url), realDeps);
    expect((await failure(dead.chat!(chatCall(body(true))))).kind).toBe("connect");
    expect(await dead.probe(AbortSignal.timeout(5_000))).toMatchObject({ state: "Unhealthy" });
  });

  test("an error status carries the server's reason and its wish to wait", async () => {
    await onOwnServer(async (own, failing) => {
      own.on("/api/chat", () =>
        Response.json(
          { error: "model 'x' not found, key sk-upstream" },
          { status: 404, headers: { "retry-after": "7" } },
        ),
      );
      const error = await failure(failing.chat!(chatCall(body(true))));
      expect(error).toMatchObject({ kind: "upstream", status: 404, retryAfterSeconds: 7 });
      expect(error.message).toBe("upstream 404: model 'x' not found, key [redacted]");
    });
  });

  test("an endless error body is read only so far", async () => {
    await onOwnServer(async (own, failing) => {
      let sentBytes = 0;
      own.on("/api/chat", () => {
        const piece = new Uint8Array(64 * 1024).fill(120);
        const endless = new ReadableStream({
          pull(controller) {
            sentBytes += piece.length;
            controller.enqueue(piece);
          },
        });
        return new Response(endless, { status: 500 });
      });
      const error = await failure(failing.chat!(chatCall(body(false))));
      expect(error.status).toBe(500);
      expect(error.detail).toHaveLength(4_096);
      expect(sentBytes).toBeLessThan(64 * 1024 * 1024);
    });
  });

  test("an error in the first line of a 200 is an error of the call", async () => {
    await onOwnServer(async (own, failing) => {
      own.on("/api/chat", () => ndjson(['{"error":"out of memory"}\n']));
      expect((await failure(failing.chat!(chatCall(body(true))))).message).toBe(
        "upstream 500: out of memory",
      );
      expect((await failure(failing.chat!(chatCall(body(false))))).message).toBe(
        "upstream 500: out of memory",
      );
    });
  });

  test("an error later in the stream is an error event; what came before it stays", async () => {
    await onOwnServer(async (own, failing) => {
      own.on("/api/chat", () => ndjson([chatLine({ content: "a" }), '{"error":"runner died"}\n']));
      const events = eventsOf(await (await failing.chat!(chatCall(body(true)))).text());
      expect(events.at(0).choices[0].delta.content).toBe("a");
      expect(events.at(-1).error.message).toBe("runner died");
    });
  });

  test("a stream that is cut or ends too early breaks visibly", async () => {
    await onOwnServer(async (own, failing) => {
      for (const cut of [true, false]) {
        own.on("/api/chat", () => ndjson([chatLine({ content: "a" }), chatLine({ content: "b" })], { cut }));
        // Where the cut comes very early it is the call that fails, else the stream.
        const reading = failing.chat!(chatCall(body(true))).then((response) => response.text());
        expect((await failure(reading)).kind).toBe("transport");
      }
      own.on("/api/chat", () => ndjson([]));
      expect((await failure(failing.chat!(chatCall(body(true))))).kind).toBe("transport");
    });
  });

  test("garbage is a broken upstream", async () => {
    await onOwnServer(async (own, failing) => {
      own.on("/api/chat", () => ndjson(["<html>\n"]));
      expect((await failure(failing.chat!(chatCall(body(true))))).kind).toBe("transport");
      own.on("/api/chat", () => new Response("<html>"));
      expect((await failure(failing.chat!(chatCall(body(false))))).kind).toBe("transport");
      own.on("/api/embed", () => Response.json({ embeddings: [[1]] }));
      const short = failing.embed!(modelCall({ model: "e", input: ["a", "b"] }));
      expect((await failure(short)).message).toContain("1 embeddings for 2 inputs");
    });
  });

  test("a redirect is not followed", async () => {
    await onOwnServer(async (own, failing) => {
      own.on("/api/chat", () => Response.redirect(`${own.url}/elsewhere`, 307));
      expect((await failure(failing.chat!(chatCall(body(false))))).status).toBe(307);
      expect(own.requests.some(({ path }) => path === "/elsewhere")).toBe(false);
    });
  });
});

test("a split character, CRLF and a long line pass", async () => {
  await onOwnServer(async (own, split) => {
    const long = "x".repeat(3_000_000);
    const bytes = new TextEncoder().encode(
      chatLine({ content: "né👋" }).replace("\n", "\r\n") +
        chatLine({ content: long }) +
        doneLine().trimEnd(),
    );
    const at = bytes.indexOf(0xf0) + 2;
    own.on("/api/chat", () => ndjson([bytes.subarray(0, at), bytes.subarray(at)]));
    const events = eventsOf(await (await split.chat!(chatCall(body(true)))).text());
    expect(events.map((event) => event.choices?.[0]?.delta.content ?? "").join("")).toBe(`né👋${long}`);
    expect(events.at(-1)).toBe("[DONE]");
  });
});

test("a client that leaves takes the upstream call with it, before and during the stream", async () => {
  await onOwnServer(async (own, left) => {
    const seen: AbortSignal[] = [];
    const endless = () =>
      new ReadableStream({
        async pull(controller) {
          controller.enqueue(new TextEncoder().encode(chatLine({ content: "more " })));
          await Bun.sleep(5);
        },
      });
    own.on("/api/chat", ({ signal }) => {
      seen.push(signal);
      return new Response(endless());
    });
    const leaving = new AbortController();
    const response = await left.chat!(chatCall(body(true), { signal: leaving.signal }));
    const reader = response.body!.getReader();
    await reader.read();
    leaving.abort();
    await until("the upstream saw the abort", () => seen[0]!.aborted);

    const cancelled = await left.chat!(chatCall(body(true)));
    await cancelled.body!.cancel();
    await until("the upstream saw the cancelled stream", () => seen[1]!.aborted);

    own.on("/api/chat", ({ signal }) => {
      seen.push(signal);
      return new Promise<Response>(() => {});
    });
    const early = new AbortController();
    const waiting = left.chat!(chatCall(body(true), { signal: early.signal }));
    await until("the call arrived", () => seen.length === 3);
    early.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("left");
    await until("the upstream saw the early abort", () => seen[2]!.aborted);
  });
});

test("a reader that stops reading stops the upstream", async () => {
  await onOwnServer(async (own, slow) => {
    let sent = 0;
    const line = new TextEncoder().encode(chatLine({ content: "x".repeat(64_000) }));
    own.on("/api/chat", () => {
      return new Response(
        new ReadableStream(
          {
            pull(controller) {
              sent++;
              controller.enqueue(line);
            },
          },
          { highWaterMark: 0 },
        ),
      );
    });
    const response = await slow.chat!(chatCall(body(true)));
    const reader = response.body!.getReader();
    await reader.read();
    let before = -1;
    await until("the upstream came to rest", async () => {
      const still = sent === before;
      before = sent;
      await Bun.sleep(50);
      return still && sent === before;
    });
    expect(sent * line.length).toBeLessThan(64 * 1024 * 1024);
    await reader.cancel();
  });
});
