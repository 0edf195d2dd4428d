import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { until } from "@model-gateway/testing/until.ts";
import { type ReplySource, type ReplyWriter, StreamedReply } from "../../src/http/reply.ts";
import type { Certificate } from "../../src/server/listener.ts";
import { SocketReply } from "../../src/server/upgrade.ts";
import { echo, type Handle, TestServer, text } from "./support.ts";

const openssl = Bun.which("openssl");
const dir = mkdtempSync(join(tmpdir(), "wire-tls-"));
let certificates: Certificate[];
let current: Certificate;
let server: TestServer;

async function certificateFor(name: string): Promise<Certificate> {
  const [key, cert] = [join(dir, `${name}.key`), join(dir, `${name}.crt`)];
  const made = Bun.spawn(
    [
      ...[openssl!, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ...["-keyout", key, "-out", cert, "-days", "2", "-subj", `/CN=${name}`],
      ...["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
    ],
    { stderr: "ignore" },
  );
  expect(await made.exited).toBe(0);
  return { cert: await Bun.file(cert).text(), key: await Bun.file(key).text() };
}

const start = (handle: Handle, options: ConstructorParameters<typeof TestServer>[1] = {}) => {
  server = new TestServer(handle, { certificate: () => current, ...options });
  return server;
};
const dial = () =>
  new Promise<tls.TLSSocket>((resolve, reject) => {
    const socket = tls.connect({
      port: server.port,
      host: "127.0.0.1",
      ca: certificates.map(({ cert }) => cert),
    });
    socket.once("secureConnect", () => resolve(socket));
    socket.once("error", reject);
  });
const get = (path = "/", init: RequestInit = {}) =>
  fetch(`https://127.0.0.1:${server.port}${path}`, {
    ...init,
    tls: { ca: certificates.map(({ cert }) => cert) },
  } as RequestInit);

describe.if(openssl !== null)("TLS", () => {
  beforeAll(async () => {
    certificates = [await certificateFor("first"), await certificateFor("second")];
    current = certificates[0]!;
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  afterEach(() => server.stop());

  test("requests and answers of every size arrive whole, also to a slow reader", async () => {
    const large = Buffer.alloc(20 * 1024 * 1024, Bun.hash("x").toString(36));
    start((request) => (request.path === "/large" ? text(large) : echo(request)));
    for (const size of [0, 1, 16_384, 16_385, 100_000, 5_000_000]) {
      const body = Buffer.alloc(size, "abcdefg");
      const answer = Buffer.from(await (await get("/echo", { method: "POST", body })).arrayBuffer());
      expect(answer.subarray(answer.indexOf("\n") + 1).equals(body)).toBe(true);
    }
    const answers = await Promise.all(
      Array.from({ length: 8 }, async () => Buffer.from(await (await get("/large")).arrayBuffer())),
    );
    for (const answer of answers) expect(answer.equals(large)).toBe(true);
    const socket = await dial();
    socket.pause();
    socket.write("GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let read = 0;
    socket.on("data", (bytes: Buffer) => {
      read += bytes.length;
      socket.pause();
      setImmediate(() => socket.resume());
    });
    const ended = new Promise((resolve) => socket.once("end", resolve));
    socket.resume();
    await ended;
    expect(read).toBeGreaterThan(large.length);
    socket.destroy();
    expect(server.requests[0]!.remoteAddress).toContain("127.0.0.1");
  });

  test("a renewed certificate is used from the next connection on, and those that are open go on", async () => {
    let writer: ReplyWriter | null = null;
    const source: ReplySource = {
      begin(to) {
        writer = to;
      },
      drained() {},
      left() {},
    };
    start((request) =>
      request.path === "/stream"
        ? new StreamedReply({ status: 200, contentType: "text/plain", requestId: "r" }, source)
        : text("ok"),
    );
    const kept = await dial();
    expect(kept.getPeerCertificate().subject.CN).toBe("first");
    const stream = await get("/stream");
    current = certificates[1]!;
    const fresh = await dial();
    expect(fresh.getPeerCertificate().subject.CN).toBe("second");
    const answered = new Promise<string>((resolve) =>
      kept.once("data", (bytes: Buffer) => resolve(String(bytes))),
    );
    kept.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(await answered).toContain("200 OK");
    writer!.write(Buffer.from("still here"));
    writer!.end();
    expect(await stream.text()).toBe("still here");
    for (const socket of [kept, fresh]) socket.destroy();
    // Hundreds of connections while it changes all the time: none is lost.
    const answers = await Promise.all(
      Array.from({ length: 300 }, async (_, i) => {
        current = certificates[i % 2]!;
        return (await get("/", { keepalive: false })).status;
      }),
    );
    expect(new Set(answers)).toEqual(new Set([200]));
    current = certificates[0]!;
  });

  test("WebSockets", async () => {
    const handlers = {
      open() {},
      message: (socket: { sendText(text: string): void }, message: string | Buffer) =>
        socket.sendText(`you: ${message}`),
      drain() {},
      close() {},
    };
    start(() => new SocketReply("r", {}, handlers as never, { hint: "" }));
    const socket = new WebSocket(`wss://127.0.0.1:${server.port}/`, {
      tls: { ca: certificates.map(({ cert }) => cert) },
    } as never);
    const said = new Promise<string>((resolve, reject) => {
      socket.onmessage = ({ data }) => resolve(String(data));
      socket.onerror = reject;
      socket.onopen = () => socket.send("hello");
    });
    expect(await said).toBe("you: hello");
    socket.close();
    await server.untilEmpty();
  });

  test("clients that do not speak TLS, stop in the middle or never begin are closed and counted", async () => {
    start(() => text("ok"), { connectionsMax: 3 });
    const plain = net.connect(server.port, "127.0.0.1");
    plain.on("error", () => {});
    const ended = new Promise((resolve) => plain.once("close", resolve));
    plain.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    await ended;
    await server.untilEmpty();
    // Garbage inside an established session.
    const broken = await dial();
    broken.on("error", () => {});
    const raw = net.connect(server.port, "127.0.0.1");
    raw.on("error", () => {});
    raw.write(Buffer.from([0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0xff]));
    broken.destroy();
    await server.untilEmpty();
    raw.destroy();
    // Three that never begin a handshake take all there is, until their time is up.
    const silent = Array.from({ length: 3 }, () => net.connect(server.port, "127.0.0.1"));
    for (const socket of silent) socket.on("error", () => {});
    await until("they are counted", () => server.listener.connectionCount === 3);
    const fourth = net.connect(server.port, "127.0.0.1");
    fourth.on("error", () => {});
    await new Promise((resolve) => fourth.once("close", resolve));
    expect(server.refused).toBe(1);
    server.errors.length = 0;
    server.clock.advance(60_000);
    await server.untilEmpty();
    expect(await (await get()).text()).toBe("ok");
    for (const socket of silent) socket.destroy();
  });
});
