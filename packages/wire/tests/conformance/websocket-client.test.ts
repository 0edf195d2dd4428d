/**
 * The client's end: the situations of websocket-cases.ts turned round. A server that is written byte by byte answers
 * one call, and either the call has its answer, or the connection is given up and the call fails.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { createServer, type Socket } from "node:net";
import { until } from "@model-gateway/testing/until.ts";
import { systemClock } from "../../src/clock.ts";
import { RpcClient } from "../../src/json-rpc/index.ts";
import { Opcode } from "../../src/websocket/frames.ts";
import { type ClientFrame, clientFrame, closePayload } from "../websocket/support.ts";
import { NOT_UTF8 } from "./websocket-cases.ts";

const { text, binary, ping, pong, continuation, close } = Opcode;
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0)) await undo();
});

const MESSAGE_CHARS_MAX = 8 * 1024 * 1024;

/** Frames as a client sent them: opcodes and payloads without their masks. */
function received(bytes: Buffer): { opcode: number; payload: string; isMasked: boolean }[] {
  const frames = [];
  for (let at = 0; at + 6 <= bytes.length; ) {
    const opcode = bytes[at]! & 15;
    const isMasked = bytes[at + 1]! >= 128;
    let length = bytes[at + 1]! & 127;
    at += 2;
    if (length === 126) {
      length = bytes.readUInt16BE(at);
      at += 2;
    }
    const mask = bytes.subarray(at, at + 4);
    at += 4;
    const payload = Buffer.from(bytes.subarray(at, at + length).map((byte, i) => byte ^ mask[i & 3]!));
    at += length;
    frames.push({ opcode, payload: payload.toString(), isMasked });
  }
  return frames;
}

/** Answers the first call with the bytes, in pieces of this size. */
async function callOf(answer: Buffer, pieceBytes = answer.length) {
  let heard = Buffer.alloc(0);
  let upgraded = false;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => {
      heard = Buffer.concat([heard, bytes]);
      const key = /sec-websocket-key: (\S+)\r\n/i.exec(heard.toString("latin1"))?.[1];
      if (!upgraded && key && heard.includes("\r\n\r\n")) {
        upgraded = true;
        const accept = createHash("sha1")
          .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
          .digest("base64");
        heard = Buffer.alloc(0);
        socket.write(
          `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
        );
      } else if (upgraded && heard.includes(0x81) && sockets.has(socket)) {
        sockets.delete(socket);
        void send(socket);
      }
    });
  });
  const send = async (socket: Socket) => {
    for (let at = 0; at < answer.length; at += pieceBytes) {
      await new Promise<void>((resolve) =>
        socket.write(answer.subarray(at, at + pieceBytes), () => resolve()),
      );
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanup.push(() => server.close());
  const { port } = server.address() as { port: number };
  const client = new RpcClient({
    url: `ws://127.0.0.1:${port}`,
    clock: systemClock,
    connectTimeoutMs: 10_000,
    messageCharsMax: MESSAGE_CHARS_MAX,
  });
  cleanup.unshift(() => client.close());
  const connection = await client.connection();
  const outcome = await connection.call("anything", {}, { timeoutMs: 20_000 }).then(
    (result) => ({ result }),
    (error: { reason: string }) => ({ lost: error.reason }),
  );
  return { outcome, connection, frames: () => received(heard) };
}

/** As a server sends it: not masked. */
const serverFrame = (frame: ClientFrame): Buffer => clientFrame({ mask: null, ...frame });
const frames = (...list: ClientFrame[]): Buffer => Buffer.concat(list.map(serverFrame));
const message = (result: string): string => JSON.stringify({ jsonrpc: "2.0", id: 1, result });
const GOOD = message("ok");

function fragmented(payload: Buffer, frameBytes: number): ClientFrame[] {
  const list: ClientFrame[] = [];
  for (let at = 0; at < payload.length; at += frameBytes)
    list.push({
      opcode: at === 0 ? text : continuation,
      payload: payload.subarray(at, at + frameBytes),
      final: at + frameBytes >= payload.length,
    });
  return list;
}

const ANSWERED: [what: string, bytes: Buffer, result: string][] = [
  ["one frame", frames({ opcode: text, payload: GOOD }), "ok"],
  ...[60, 125, 126, 127, 128, 65_535, 65_536, 1024 * 1024].map((size): [string, Buffer, string] => {
    const result = "x".repeat(size - message("").length);
    return [`a message of ${size} bytes`, frames({ opcode: text, payload: message(result) }), result];
  }),
  ["characters of several bytes", frames({ opcode: text, payload: message("ünï漢😀") }), "ünï漢😀"],
  ["a frame for each byte", frames(...fragmented(Buffer.from(message("ü漢😀")), 1)), "ü漢😀"],
  [
    "frames of 1,300 bytes",
    frames(...fragmented(Buffer.from(message("y".repeat(65_536))), 1_300)),
    "y".repeat(65_536),
  ],
  [
    "empty frames around it",
    frames(
      { opcode: text, final: false },
      { opcode: continuation, payload: GOOD, final: false },
      { opcode: continuation },
    ),
    "ok",
  ],
  [
    "a ping and a pong between its frames",
    frames(
      { opcode: text, payload: GOOD.slice(0, 10), final: false },
      { opcode: ping, payload: "are you there" },
      { opcode: pong, payload: "unasked" },
      { opcode: continuation, payload: GOOD.slice(10) },
    ),
    "ok",
  ],
  [
    "ten pings before it",
    frames(...Array.from({ length: 10 }, () => ({ opcode: ping, payload: "p" })), {
      opcode: text,
      payload: GOOD,
    }),
    "ok",
  ],
];

const plain = { opcode: text, payload: GOOD };
const LOST: [what: string, bytes: Buffer][] = [
  ...[0x10, 0x20, 0x40].map((reserved): [string, Buffer] => [
    `reserved bits ${reserved.toString(2)}`,
    frames({ ...plain, reserved }),
  ]),
  ...[3, 7, 11, 15].map((opcode): [string, Buffer] => [`opcode ${opcode}`, frames({ opcode, payload: "x" })]),
  [
    "a ping in two frames",
    frames({ opcode: ping, payload: "a", final: false }, { opcode: continuation, payload: "b" }),
  ],
  ["a ping that is too long", frames({ opcode: ping, payload: "x".repeat(126) })],
  ["a frame that is masked", clientFrame({ opcode: text, payload: GOOD })],
  ["a frame that continues nothing", frames({ opcode: continuation, payload: GOOD })],
  [
    "a message that begins within another",
    frames({ opcode: text, payload: GOOD.slice(0, 5), final: false }, { opcode: text, payload: GOOD }),
  ],
  ["a binary message", frames({ opcode: binary, payload: GOOD })],
  ["a text that is not JSON", frames({ opcode: text, payload: "{" })],
  ["a message that is too large", frames({ opcode: text, payload: message("z".repeat(MESSAGE_CHARS_MAX)) })],
  ["a close without a code", frames({ opcode: close })],
  ["a close of one byte", frames({ opcode: close, payload: "x" })],
  ["a normal close", frames({ opcode: close, payload: closePayload(1000, "bye") })],
  ["a close with a reserved code", frames({ opcode: close, payload: closePayload(1005) })],
  [
    "a close whose reason is not UTF-8",
    frames({ opcode: close, payload: closePayload(1000, Buffer.from([0xff])) }),
  ],
  ...NOT_UTF8.map(([what, ...bad]): [string, Buffer] => [
    `a text with ${what}`,
    frames({
      opcode: text,
      payload: Buffer.concat([Buffer.from(GOOD.slice(0, -2)), Buffer.from(bad), Buffer.from('"}')]),
    }),
  ]),
];

describe("the call has its answer", () => {
  test.each(ANSWERED)("%s", async (_what, bytes, result) => {
    const { outcome } = await callOf(bytes);
    expect(Bun.deepEquals(outcome, { result })).toBe(true);
  });

  test.each(ANSWERED.filter(([, bytes]) => bytes.length < 1_000))(
    "%s, byte by byte",
    async (_what, bytes, result) => {
      expect((await callOf(bytes, 1)).outcome).toEqual({ result });
    },
  );

  test("pings are answered, before the message around them has ended, and everything is masked", async () => {
    const { outcome, frames: heard } = await callOf(ANSWERED.at(-2)![1]);
    expect(outcome).toEqual({ result: "ok" });
    await until("the pong", () => heard().some(({ opcode }) => opcode === pong));
    expect(heard().find(({ opcode }) => opcode === pong)?.payload).toBe("are you there");
    expect(heard().every(({ isMasked }) => isMasked)).toBe(true);
  });
});

describe("the connection is given up, and the call fails", () => {
  test.each(LOST)("%s", async (_what, bytes) => {
    const { outcome, connection } = await callOf(bytes);
    expect(outcome).toEqual({ lost: "lost" });
    expect(connection.usable).toBe(false);
  });
});
