import { expect, test } from "bun:test";
import { ConnectionError, createClient, RestError } from "../src/index.ts";
import { sseData } from "../src/sse.ts";

const encoder = new TextEncoder();
const stream = (parts: Uint8Array[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });

test("server-sent events survive any cut, also inside a character and inside CRLF", async () => {
  const bytes = encoder.encode(': hello\r\n\r\ndata: {"text":"zażółć 🎈"}\r\n\r\ndata:a\ndata: b\n\n');
  for (let cut = 1; cut < bytes.length; cut++) {
    const seen: string[] = [];
    for await (const data of sseData(stream([bytes.slice(0, cut), bytes.slice(cut)]))) seen.push(data);
    expect(seen).toEqual(['{"text":"zażółć 🎈"}', "a\nb"]);
  }
});

/** A stand-in for the service whose event streams break after each event. */
function brittleService() {
  let connections = 0;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      if (new URL(request.url).searchParams.get("session") === "other")
        return Response.json(
          { error: { message: "No such session", type: "t", code: "not_found" } },
          { status: 404 },
        );
      const progress = ++connections * 10;
      const params = { job_id: "j", status: "running", progress };
      return new Response(
        stream([
          encoder.encode(`data: ${JSON.stringify({ jsonrpc: "2.0", method: "video.progress", params })}\n\n`),
        ]),
        { headers: { "content-type": "text/event-stream" } },
      );
    },
  });
  return { url: server.url.href, stop: () => server.stop(true), connections: () => connections };
}

test("events reconnect, tell that they did, and end with the loop", async () => {
  const service = brittleService();
  const client = createClient({ baseUrl: service.url });
  let reconnects = 0;
  const seen: number[] = [];
  for await (const { method, params } of client.events("s", { onReconnect: () => reconnects++ })) {
    if (method === "video.progress") seen.push(params.progress);
    if (seen.length === 3) break;
  }
  expect(seen).toEqual([10, 20, 30]);
  expect(reconnects).toBe(2);
  expect(service.connections()).toBe(3);
  service.stop();
});

test("a broken stream is taken up after the last event that was seen", async () => {
  const asked: (string | null)[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      asked.push(request.headers.get("last-event-id"));
      const at = asked.length;
      const params = { job_id: "j", status: "running", progress: at };
      const event = `data: ${JSON.stringify({ jsonrpc: "2.0", method: "video.progress", params })}`;
      // The first connection breaks before anything was notified.
      const text = at === 1 ? ": subscribed\nid: 0\n\n" : `: subscribed\n\nid: n-${at}\n${event}\n\n`;
      return new Response(text, { headers: { "content-type": "text/event-stream" } });
    },
  });
  const client = createClient({ baseUrl: server.url.href });
  const seen: number[] = [];
  for await (const { method, params } of client.events("s")) {
    if (method === "video.progress") seen.push(params.progress);
    if (seen.length === 2) break;
  }
  expect(seen).toEqual([2, 3]);
  expect(asked).toEqual([null, "0", "n-2"]);
  server.stop(true);
});

test("a session of someone else is refused once and for all; an abort ends quietly", async () => {
  const service = brittleService();
  const client = createClient({ baseUrl: service.url });
  expect(client.events("other").next()).rejects.toMatchObject({ status: 404, code: "not_found" });
  const aborter = new AbortController();
  const events = client.events("s", { signal: aborter.signal });
  await events.next();
  aborter.abort();
  expect((await events.next()).done).toBe(true);
  service.stop();
});

/** A stand-in for `/v1/chat/completions`. */
function chatService(answer: () => Response) {
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: answer });
  return {
    client: createClient({ baseUrl: server.url.href, apiKey: "service-k" }),
    stop: () => server.stop(true),
  };
}
const chunk = (content: string) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
const sse = (text: string) =>
  new Response(text, { headers: { "content-type": "text/event-stream", "x-request-id": "r1" } });
const request = { model: "m", messages: [{ role: "user" as const, content: "hi" }] };

async function read(client: ReturnType<typeof createClient>) {
  let text = "";
  for await (const part of client.rest.chatStream(request)) text += part.choices[0]?.delta.content ?? "";
  return text;
}

test("chat streams end at [DONE]; errors inside them and streams cut short throw", async () => {
  const whole = chatService(() => sse(`${chunk("a")}${chunk("b")}data: [DONE]\n\n`));
  expect(await read(whole.client)).toBe("ab");
  whole.stop();
  const cut = chatService(() => sse(chunk("a")));
  expect(read(cut.client)).rejects.toBeInstanceOf(ConnectionError);
  const failing = chatService(() =>
    sse(
      `${chunk("a")}data: {"error":{"message":"upstream went away","type":"server_error","code":"bad_gateway"}}\n\n`,
    ),
  );
  const failure = (await read(failing.client).catch((error: unknown) => error)) as RestError;
  expect(failure).toBeInstanceOf(RestError);
  expect([failure.code, failure.message, failure.requestId]).toEqual([
    "bad_gateway",
    "upstream went away",
    "r1",
  ]);
  cut.stop();
  failing.stop();
});

test("refusals are typed, whether JSON or plain text", async () => {
  const plain = chatService(() => new Response("Rate limit exceeded. Try again later.", { status: 429 }));
  const failure = (await read(plain.client).catch((error: unknown) => error)) as RestError;
  expect([failure.status, failure.message]).toEqual([429, "Rate limit exceeded. Try again later."]);
  plain.stop();
  const json = chatService(() =>
    Response.json(
      { error: { message: "monthly quota", type: "quota_error", code: "quota_exceeded" } },
      { status: 429, headers: { "retry-after": "60" } },
    ),
  );
  const quota = (await json.client.rest.chat(request).catch((error: unknown) => error)) as RestError;
  expect([quota.code, quota.retryAfterSeconds]).toEqual(["quota_exceeded", 60]);
  json.stop();
});
