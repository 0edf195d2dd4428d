import { afterEach, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import type { Reply } from "../../src/http/reply.ts";
import { IDLE_AFTER_MS } from "../../src/server/limits.ts";
import { echo, type Handle, Pending, type RawClient, TestServer, text } from "./support.ts";

const CONNECTIONS_MAX = 4;
const GET = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const FULL = ["too many connections: new ones are turned away: undefined"];

let server: TestServer;
let expectedErrors: string[] = [];
const serve = (handle: Handle) => {
  server = new TestServer(handle, { connectionsMax: CONNECTIONS_MAX });
};
afterEach(async () => {
  await server.stop(expectedErrors);
  expectedErrors = [];
});

async function fill(): Promise<RawClient[]> {
  const clients = await Promise.all(Array.from({ length: CONNECTIONS_MAX }, () => server.connect()));
  await until("all are connected", () => server.listener.connectionCount === CONNECTIONS_MAX);
  return clients;
}

test("a client beyond the limit is told so, and the others are not affected", async () => {
  serve(echo);
  expectedErrors = FULL;
  const clients = await fill();
  for (let i = 1; i <= 3; i++) {
    const late = await server.connect();
    const answer = await late.answer();
    expect([answer.status, answer.headers.get("retry-after"), answer.headers.get("connection")]).toEqual([
      503,
      "1",
      "close",
    ]);
    expect(answer.body.toString()).toBe("Too many connections; try again in a moment.\n");
    await late.ended();
    expect(server.refused).toBe(i);
  }
  expect(server.listener.connectionCount).toBe(CONNECTIONS_MAX);
  for (const client of clients) {
    client.send(GET);
    expect((await client.answer()).status).toBe(200);
  }
});

test("a client that leaves makes space for another", async () => {
  serve(echo);
  const [first] = await fill();
  first!.socket.destroy();
  await until("one is gone", () => server.listener.connectionCount === CONNECTIONS_MAX - 1);
  const next = await server.connect();
  next.send(GET);
  expect((await next.answer()).status).toBe(200);
  expect(server.refused).toBe(0);
});

test("connections that nobody uses are given up for new ones; those with a request or part of one are not", async () => {
  const pending = new Pending<Reply>();
  serve((request) => (request.path === "/slow" ? pending.promise : echo(request)));
  const [silent, kept, slow, half] = await fill();
  half!.send("GET /half HTTP/1.1\r\n");
  kept!.send(GET);
  await kept!.answer();
  slow!.send(GET.replace("/x", "/slow"));
  await until("both are asked", () => server.requests.length === 2);
  server.clock.advance(IDLE_AFTER_MS);

  const next = await server.connect();
  next.send(GET);
  expect((await next.answer()).status).toBe(200);
  await Promise.all([silent!.ended(), kept!.ended()]);
  expect(server.listener.connectionCount).toBe(3);
  half!.send("Host: a\r\n\r\n");
  expect((await half!.answer()).body.toString()).toContain("/half");
  pending.resolve(text("slow"));
  expect((await slow!.answer()).body.toString()).toBe("slow");
  expect(server.refused).toBe(0);
});
