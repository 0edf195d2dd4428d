import { afterAll, afterEach, beforeEach, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import type { Socket, TCPSocketListener } from "bun";
import { systemClock } from "../../src/clock.ts";
import { webSocketHandshake } from "../../src/websocket/handshake.ts";
import { type BytePipe, ServerSocket, type SocketHandlers } from "../../src/websocket/server-socket.ts";

const MESSAGE_BYTES = 8 * 1024 * 1024;
const BUFFER_BYTES_MAX = 4 * 1024 * 1024;

/** One connection of the test's server: the head first, frames from then on. */
class Connection implements BytePipe {
  #waiting: Uint8Array[] = [];
  #ending = false;
  #head = Buffer.alloc(0);
  bufferedBytes = 0;
  webSocket: ServerSocket<null> | null = null;

  constructor(
    readonly socket: Socket<Connection>,
    readonly handlers: SocketHandlers<null>,
    readonly errors: unknown[],
  ) {}

  received(bytes: Buffer): void {
    if (this.webSocket) {
      this.webSocket.received(bytes);
      return;
    }
    this.#head = Buffer.concat([this.#head, bytes]);
    const end = this.#head.indexOf("\r\n\r\n");
    if (end < 0) return;
    const [start = "", ...lines] = this.#head.toString("latin1", 0, end).split("\r\n");
    const headers = new Headers(lines.map((line) => line.split(/:\s*/, 2) as [string, string]));
    const outcome = webSocketHandshake({
      method: start.split(" ")[0]!,
      header: (name) => headers.get(name),
    });
    if (!outcome?.accepted) throw new Error(`no upgrade: ${start}`);
    this.write(Buffer.from(outcome.head, "latin1"));
    this.webSocket = new ServerSocket({
      pipe: this,
      data: null,
      handlers: this.handlers,
      clock: systemClock,
      messageBytesMax: MESSAGE_BYTES,
      bufferBytesMax: BUFFER_BYTES_MAX,
      onError: (error) => this.errors.push(error),
    });
    this.webSocket.opened();
    this.webSocket.received(this.#head.subarray(end + 4));
  }

  write(bytes: Uint8Array): void {
    const sentBytes = this.bufferedBytes > 0 ? 0 : Math.max(0, this.socket.write(bytes));
    if (sentBytes === bytes.length) return;
    this.#waiting.push(bytes.subarray(sentBytes));
    this.bufferedBytes += bytes.length - sentBytes;
  }

  drain(): void {
    while (this.#waiting.length > 0) {
      const first = this.#waiting[0]!;
      const sentBytes = Math.max(0, this.socket.write(first));
      this.bufferedBytes -= sentBytes;
      if (sentBytes < first.length) {
        this.#waiting[0] = first.subarray(sentBytes);
        return;
      }
      this.#waiting.shift();
    }
    if (this.#ending) this.socket.shutdown();
    this.webSocket?.drained();
  }

  /** Not `socket.end()`: that resets a peer which is still sending, and our last frame may be lost. */
  end(): void {
    this.#ending = true;
    if (this.bufferedBytes === 0) this.socket.shutdown();
  }

  terminate(): void {
    this.socket.terminate();
  }
}

interface Heard {
  /** The newest connection. */
  server: ServerSocket<null> | null;
  opens: number;
  closes: [number, string][];
  errors: unknown[];
  drains: number;
}

const heard: Heard = { server: null, opens: 0, closes: [], errors: [], drains: 0 };
let onMessage: (socket: ServerSocket<null>, message: string | Buffer) => void;

const handlers: SocketHandlers<null> = {
  open: (socket) => {
    heard.server = socket;
    heard.opens++;
  },
  message: (socket, message) => onMessage(socket, message),
  drain: () => {
    heard.drains++;
  },
  close: (_, code, reason) => {
    heard.closes.push([code, reason]);
  },
};

const listener: TCPSocketListener<Connection> = Bun.listen<Connection>({
  hostname: "127.0.0.1",
  port: 0,
  socket: {
    open: (socket) => {
      socket.data = new Connection(socket, handlers, heard.errors);
    },
    data: ({ data }, bytes) => data.received(bytes),
    drain: ({ data }) => data.drain(),
    close: ({ data }) => data.webSocket?.disconnected(),
    error: (_, error) => {
      heard.errors.push(error);
    },
  },
});
afterAll(() => listener.stop(true));

/** What the runtime's client has beyond a browser's. */
interface Client extends Omit<WebSocket, "binaryType"> {
  binaryType: string;
  ping(data: string): void;
  terminate(): void;
}

const clients: Client[] = [];

beforeEach(() => {
  Object.assign(heard, { server: null, opens: 0, closes: [], drains: 0 });
  heard.errors.length = 0;
  onMessage = (socket, message) => {
    if (typeof message === "string") socket.sendText(message);
    else socket.sendBinary(message);
  };
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.terminate();
  await until("every socket is closed", () => heard.closes.length === heard.opens);
  expect(heard.errors).toEqual([]);
});

/** Waits for a condition that some event makes true, looking again after each turn of the loop. */
async function connect() {
  const client = new WebSocket(`ws://127.0.0.1:${listener.port}/`) as unknown as Client;
  client.binaryType = "nodebuffer";
  clients.push(client);
  const messages: (string | Buffer)[] = [];
  const closes: [number, string][] = [];
  client.addEventListener("message", ({ data }) => messages.push(data));
  client.addEventListener("close", ({ code, reason }) => closes.push([code, reason]));
  const before = heard.opens;
  await until("both ends are open", () => client.readyState === WebSocket.OPEN && heard.opens > before);
  return { client, messages, closes, server: heard.server! };
}

describe("with the runtime's own client", () => {
  test("text and binary, empty and not", async () => {
    const { client, messages } = await connect();
    const sent = ["grüße €", "", Buffer.from([0, 255, 128]), Buffer.alloc(0), "x".repeat(70_000)];
    for (const message of sent) client.send(message);
    await until("every message came back", () => messages.length === sent.length);
    expect(messages).toEqual(sent);
  });

  test("8 MiB both ways, as text and as bytes", async () => {
    const { client, messages } = await connect();
    const bytes = Buffer.alloc(MESSAGE_BYTES, "0123456789abcdefg");
    client.send(bytes);
    await until("the bytes came back", () => messages.length === 1);
    expect(bytes.equals(messages[0] as Buffer)).toBe(true);
    const text = bytes.toString("latin1");
    client.send(text);
    await until("the text came back", () => messages.length === 2);
    expect(messages[1] === text).toBe(true);
  });

  test("more than the limit is refused with 1009", async () => {
    const { client, closes } = await connect();
    client.send(Buffer.alloc(MESSAGE_BYTES + 1));
    await until("both ends are closed", () => closes.length === 1 && heard.closes.length === 1);
    expect(heard.closes[0]?.[0]).toBe(1009);
    expect(closes[0]?.[0]).toBe(1009);
  });

  test("1,000 messages in order", async () => {
    const { client, messages } = await connect();
    const sent = Array.from({ length: 1_000 }, (_, index) => `${index}:${"x".repeat(index)}`);
    for (const message of sent) client.send(message);
    await until("every message came back", () => messages.length === sent.length);
    expect(messages).toEqual(sent);
  });

  test("a ping is answered", async () => {
    const { client, messages } = await connect();
    const pongs: string[] = [];
    client.addEventListener("pong", (event) => pongs.push(String((event as MessageEvent).data)));
    client.ping("hello");
    await until("the pong", () => pongs.includes("hello"));
    client.send("still here");
    await until("the message came back", () => messages.length === 1);
    expect(messages).toEqual(["still here"]);
  });

  test("the client closes", async () => {
    const { client, closes } = await connect();
    client.close(4002, "done für heute");
    await until("both ends are closed", () => closes.length === 1 && heard.closes.length === 1);
    expect(heard.closes).toEqual([[4002, "done für heute"]]);
    expect(closes[0]?.[0]).toBe(4002);
  });

  test("the server closes, after all that it sent before", async () => {
    const { messages, closes, server } = await connect();
    const last = "x".repeat(3 * 1024 * 1024);
    server.sendText(last);
    server.close(1013, "später");
    await until("both ends are closed", () => closes.length === 1 && heard.closes.length === 1);
    expect(closes).toEqual([[1013, "später"]]);
    expect(heard.closes[0]?.[0]).toBe(1013);
    expect(messages[0] === last).toBe(true);
  });

  test("either side vanishes", async () => {
    const first = await connect();
    first.client.terminate();
    await until("the server notices", () => heard.closes.length === 1);
    const second = await connect();
    second.server.terminate();
    await until("the client notices", () => second.closes.length === 1);
    expect(second.closes[0]?.[0]).toBe(1006);
    expect(heard.closes.map(([code]) => code)).toEqual([1006, 1006]);
  });
});

describe("with a client that does not read", () => {
  test("what waits is bounded, nothing that was taken is lost, and sending goes on afterwards", async () => {
    const key = btoa("0123456789abcdef");
    let receivedBytes = 0;
    const peer = await Bun.connect({
      hostname: "127.0.0.1",
      port: listener.port,
      socket: {
        data: (_, bytes) => {
          receivedBytes += bytes.length;
        },
      },
    });
    peer.write(
      `GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
    );
    await until("the socket is open", () => heard.opens === 1 && receivedBytes > 0);
    const headBytes = receivedBytes;
    peer.pause();
    const server = heard.server!;
    const chunk = Buffer.alloc(256 * 1024, 1);
    let takenBytes = 0;
    let dropped = false;
    for (let count = 0; count < 1_000 && !dropped; count++) {
      const bytes = server.sendBinary(chunk);
      takenBytes += bytes;
      dropped = bytes === 0;
    }
    expect(dropped).toBe(true);
    expect(server.getBufferedAmount()).toBeGreaterThan(BUFFER_BYTES_MAX - 2 * chunk.length);
    expect(server.getBufferedAmount()).toBeLessThanOrEqual(BUFFER_BYTES_MAX + 10);
    peer.resume();
    await until(
      "the client has read everything",
      () => heard.drains > 0 && receivedBytes === headBytes + takenBytes,
    );
    expect(server.sendText("again")).toBe(7);
    await until("the last message", () => receivedBytes === headBytes + takenBytes + 7);
    peer.terminate();
    await until("the server notices", () => heard.closes.length === 1);
    expect(heard.closes).toEqual([[1006, ""]]);
  });
});
