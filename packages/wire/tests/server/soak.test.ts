import { expect, test } from "bun:test";
import net from "node:net";
import { StreamedReply } from "../../src/http/reply.ts";
import type { AnyReply } from "../../src/server/connection.ts";
import type { IncomingRequest } from "../../src/server/incoming-request.ts";
import { echo, TestServer, TestSource } from "./support.ts";

const sources: TestSource[] = [];
function answer(request: IncomingRequest): AnyReply | Promise<AnyReply> {
  if (request.path === "/never") return new Promise(() => {});
  if (request.path !== "/stream") return echo(request);
  const source = new TestSource((writer) => {
    writer.write("one ");
    setImmediate(() => writer.end(Buffer.from("two")));
  });
  sources.push(source);
  return new StreamedReply({ status: 200, contentType: "text/plain", requestId: "r" }, source);
}

test("5,000 connections that are opened, used and abandoned leave nothing behind", async () => {
  const server = new TestServer(answer);
  const head = "POST /soak HTTP/1.1\r\nHost: a\r\n";
  const STAGES = [
    "",
    "POST /so",
    `${head}Content-Le`,
    `${head}Content-Length: 100\r\n\r\nhalf`,
    `${head}Transfer-Encoding: chunked\r\n\r\n5\r\nhel`,
    `${head}Content-Length: 2\r\n\r\nhi`,
    `${head}Content-Length: 2\r\n\r\nhi${head}`,
    "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /never HTTP/1.1\r\nHost: a\r\n\r\n",
    "nonsense\r\n\r\n",
  ];
  const WAYS = ["end", "destroy", "resetAndDestroy"] as const;
  const abandon = (i: number) =>
    new Promise<void>((resolve) => {
      const socket = net.connect({ host: "127.0.0.1", port: server.port });
      const leave = () => socket[WAYS[i % WAYS.length]!]();
      socket.on("error", () => {});
      socket.on("close", () => resolve());
      socket.on("connect", () => {
        socket.write(STAGES[i % STAGES.length]! || "\r\n");
        if (i % 7 === 0) leave();
        else setImmediate(leave);
      });
      socket.resume();
    });
  for (let i = 0; i < 5_000; i += 100)
    await Promise.all(Array.from({ length: 100 }, (_, k) => abandon(i + k)));
  await server.untilEmpty();
  const never = server.requests.filter((request) => request.path === "/never");
  expect(never.length).toBeGreaterThan(0);
  expect(never.every((request) => request.signal.aborted)).toBe(true);
  expect(sources.every(({ calls }) => calls.length < 3 && calls[0] !== "drained")).toBe(true);
  await server.stop();
}, 30_000);
