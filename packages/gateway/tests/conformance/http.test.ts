/** HTTP details of the contract, through the door of the whole service. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { completion, politeHandler } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
beforeEach(() => bench.upstream.answer(politeHandler));

/** The status of a request that is written byte by byte. */
async function statusOf(request: string): Promise<number> {
  const socket = connect(bench.app.port, "127.0.0.1");
  socket.end(request);
  let text = "";
  for await (const bytes of socket) text += bytes;
  return Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]);
}

test.each([
  ["a host with a blank", "GET /healthz HTTP/1.1\r\nhost: a b\r\n\r\n"],
  ["a host with a slash", "GET /healthz HTTP/1.1\r\nhost: a/b\r\n\r\n"],
  ["hosts in a list", "GET /healthz HTTP/1.1\r\nhost: a,b\r\n\r\n"],
  ["a fragment", "GET /healthz#a HTTP/1.1\r\nhost: a\r\n\r\n"],
  [
    "a trailer that is no field line",
    "POST /api/rpc HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nnonsense\r\n\r\n",
  ],
])("%s is a bad request", async (_what, request) => {
  expect(await statusOf(request)).toBe(400);
});

describe("401", () => {
  const refusals: [what: string, method: string, path: string, headers: Record<string, string>][] = [
    ["no key", "POST", "/v1/chat/completions", {}],
    [
      "a key that nobody has",
      "POST",
      "/v1/embeddings",
      { authorization: `Bearer service-${crypto.randomUUID()}` },
    ],
    ["no key for a video", "POST", "/v1/video/generations", {}],
    ["no key of the Responses API", "POST", "/v1/responses", {}],
    ["no key of the Messages API", "POST", "/v1/messages", {}],
    ["no admin token", "GET", "/api/admin/backends", {}],
    ["a wrong admin token", "GET", "/api/admin/aliases", { authorization: "Bearer wrong" }],
    ["no token of a node", "GET", "/ws/agent", {}],
  ];
  test.each(refusals)(
    "%s: says how to sign in, and not to try again",
    async (_what, method, path, headers) => {
      const answer = await fetch(bench.url + path, {
        method,
        headers,
        ...(method === "POST" && { body: "{}" }),
      });
      expect(answer.status).toBe(401);
      expect(answer.headers.get("www-authenticate")).toStartWith("Bearer");
      expect(answer.headers.get("x-should-retry")).toBe("false");
      expect(answer.headers.get("x-request-id")).not.toBeNull();
    },
  );

  test("no other answer carries them", async () => {
    for (const answer of [await bench.chat({}), await bench.chat({ model: "nobody's" })]) {
      expect(answer.headers.get("www-authenticate")).toBeNull();
    }
  });
});

test.each([
  ["/v1/chat/completions", { model: "m", messages: [{ role: "user", content: "hi" }] }],
  ["/v1/embeddings", { model: "m", input: "hi" }],
  ["/v1/video/generations", { model: "m", prompt: "hi" }],
  ["/v1/responses", { model: "m", input: "hi" }],
  ["/v1/messages", { model: "m", max_tokens: 9, messages: [{ role: "user", content: "hi" }] }],
])("%s: a body that begins with a byte order mark is refused", async (path, body) => {
  const answer = await bench.post(path, `\ufeff${JSON.stringify(body)}`);
  expect(answer.status).toBe(400);
  expect(await answer.text()).toContain("invalid_request");
});

test.each([
  ["a blank before the colon of its length", "Content-Length : "],
  ["a folded length", "Content-Length:\r\n "],
])("an upstream's answer with %s comes through", async (_what, field) => {
  const body = JSON.stringify(completion("here"));
  bench.upstream.answer((_, reply) =>
    reply.raw(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n${field}${body.length}\r\n\r\n${body}`),
  );
  const answer = await bench.chat({}, { signal: AbortSignal.timeout(10_000) });
  expect((await answer.json()).choices[0].message.content).toBe("here");
});
