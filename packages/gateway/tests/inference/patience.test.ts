import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, politeHandler } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const LATE_MS = 5_000;
const READ_BYTES = 1_024;
const READ_EVERY_MS = 1_000;
const READS = 5;
const PIECE = chunk({ delta: { content: "x".repeat(16 * 1024) } });
const PIECES = 4_000;

/** With the deadlines that the service really has: everything here takes the seconds that it says. */
let bench: InferenceBench;
let piecesWritten = 0;
beforeAll(async () => {
  bench = await bootInference({});
  bench.upstream.answer(async (request, reply) => {
    if (request.text.includes("be late")) await Bun.sleep(LATE_MS);
    if (!request.text.includes("be long")) return politeHandler(request, reply);
    reply.head(200, { "content-type": "text/event-stream" });
    for (; piecesWritten < PIECES && request.closedAtMs === null; piecesWritten++) await reply.write(PIECE);
  });
});
afterAll(() => bench.stop());

const say = (content: string) => ({ messages: [{ role: "user", content }] });

test.concurrent("an upstream whose first byte comes after five seconds is waited for", async () => {
  const startedMs = Date.now();
  const late = [bench.chat(say("be late")), bench.chat({ ...say("be late"), stream: true })];
  // Nobody else waits with them.
  expect((await bench.chat({})).status).toBe(200);
  expect(Date.now() - startedMs).toBeLessThan(LATE_MS);
  const [whole, stream] = await Promise.all(late);
  expect(await whole!.text()).toContain("be late");
  expect(await stream!.text()).toContain("[DONE]");
  expect(Date.now() - startedMs).toBeGreaterThanOrEqual(LATE_MS);
}, 30_000);

test.concurrent("a client that reads a kilobyte a second is kept, holds the upstream back, and pays for what it got", async () => {
  const body = JSON.stringify({ model: "m", stream: true, ...say("be long") });
  const socket = connect(bench.app.port, "127.0.0.1").on("error", () => {});
  socket.pause();
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bench.key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  await until("it began", () => piecesWritten > 0);
  let received = "";
  for (let i = 0; i < READS; i++) {
    await Bun.sleep(READ_EVERY_MS);
    received += socket.read(READ_BYTES) ?? "";
  }
  expect(received).toStartWith("HTTP/1.1 200");
  // What the system's buffers take is several megabytes; the rest of the 64 has to wait.
  expect(piecesWritten).toBeLessThan(PIECES / 2);
  const request = bench.upstream.requests.find(({ text }) => text.includes("be long"))!;
  expect(request.closedAtMs).toBeNull();
  expect((await bench.chat({})).status).toBe(200);

  socket.destroy();
  await until("the upstream is let go", () => request.closedAtMs !== null);
  await until("it is paid for", async () => (await bench.usageRows()).some(({ estimated }) => estimated));
}, 30_000);
