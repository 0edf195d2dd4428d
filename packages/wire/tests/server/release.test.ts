import { afterEach, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { Reply } from "../../src/http/reply.ts";
import { TestServer } from "./support.ts";

const LARGE_BYTES = 8 * 1024 * 1024;

let server: TestServer;
let released = 0;
afterEach(() => server.stop());

/** Answers with parts whose memory is given back: what is sent after that would be nothing. */
function serve(): void {
  released = 0;
  server = new TestServer(() => {
    const large = new Uint8Array(LARGE_BYTES).fill(97);
    const parts = [large, Buffer.from("bc"), Buffer.from("d")];
    return new Reply({ status: 200, contentType: "text/plain", requestId: "r" }, parts, () => {
      released++;
      large.buffer.transfer(0);
    });
  });
}

const url = () => `http://127.0.0.1:${server.listener.port}/`;

async function askWithoutReading() {
  serve();
  const client = await server.connect();
  client.socket.pause();
  client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
  await until("it is asked", () => server.requests.length === 1);
  return client;
}

test("an answer in parts arrives whole, and its memory is given back once", async () => {
  serve();
  for (let i = 1; i <= 3; i++) {
    const response = await fetch(url());
    expect(response.headers.get("content-length")).toBe(String(LARGE_BYTES + 3));
    const body = await response.text();
    expect([body.length, body.slice(-4)]).toEqual([LARGE_BYTES + 3, "abcd"]);
    expect(body).toMatch(/^a+bcd$/);
    expect(released).toBe(i);
  }
});

test("not before the client has taken all of it", async () => {
  const client = await askWithoutReading();
  await Bun.sleep(50);
  expect(released).toBe(0);
  client.socket.resume();
  await client.containing("abcd");
  await until("it is given back", () => released === 1);
});

test("also when the client leaves in the middle", async () => {
  const client = await askWithoutReading();
  client.socket.destroy();
  await until("it is given back", () => released === 1);
});

test("a HEAD gives it back as well", async () => {
  serve();
  const response = await fetch(url(), { method: "HEAD" });
  expect(response.headers.get("content-length")).toBe(String(LARGE_BYTES + 3));
  expect(released).toBe(1);
});
