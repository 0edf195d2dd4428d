import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { SocketReply } from "../../src/server/index.ts";
import { Opcode } from "../../src/websocket/frames.ts";
import type { SocketHandlers } from "../../src/websocket/server-socket.ts";
import { type RawClient, TestServer } from "../server/support.ts";
import { clientFrame, closePayload, type ServerFrame, serverFrames } from "../websocket/support.ts";
import { MESSAGE_BYTES_MAX, NOT_UTF8, type Sent, SOCKET_CASES, type SocketCase } from "./websocket-cases.ts";

const echo: SocketHandlers<null> = {
  message(socket, message) {
    if (typeof message === "string") socket.sendText(message);
    else socket.sendBinary(message);
  },
  close() {},
};

let server: TestServer;
beforeAll(() => {
  server = new TestServer(() => new SocketReply("r", null, echo), {
    messageBytesMax: MESSAGE_BYTES_MAX,
    bufferBytesMax: 2 * MESSAGE_BYTES_MAX,
  });
});
afterAll(() => server.stop());

const HANDSHAKE =
  "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n\r\n";

async function open(): Promise<RawClient> {
  const client = await server.connect();
  client.send(HANDSHAKE);
  expect((await client.answer()).status).toBe(101);
  return client;
}

function piecesOf(bytes: Buffer, pieceBytes = bytes.length): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) pieces.push(bytes.subarray(at, at + pieceBytes));
  return pieces;
}

const NAMES: Readonly<Record<number, "text" | "binary" | "pong">> = {
  [Opcode.text]: "text",
  [Opcode.binary]: "binary",
  [Opcode.pong]: "pong",
};

function readable({ opcode, payload }: ServerFrame): Sent {
  if (opcode === Opcode.close) return ["close", payload.length === 0 ? null : payload.readUInt16BE(0)];
  const name = NAMES[opcode];
  if (!name) throw new Error(`the server sent opcode ${opcode}`);
  return [name, payload];
}

const written = ([kind, content]: Sent): Sent =>
  kind === "close" ? [kind, content] : [kind, Buffer.from(content as string)];

async function run({ frames, answer, pieceBytes }: SocketCase): Promise<void> {
  const client = await open();
  const isClosed = answer.at(-1)?.[0] === "close";
  const farewell = isClosed ? [] : [clientFrame({ opcode: Opcode.close, payload: closePayload(1000) })];
  const bytes = Buffer.concat([...frames.map(clientFrame), ...farewell]);
  await client.sendPieces(piecesOf(bytes, pieceBytes));
  const sent = serverFrames(await client.everything()).map(readable);
  const expected: Sent[] = isClosed ? [...answer] : [...answer, ["close", 1000]];
  // Compared one by one: a difference in megabytes of text would be printed whole.
  expect(sent.map(([kind]) => kind)).toEqual(expected.map(([kind]) => kind));
  const isSame = sent.map((each, at) => Bun.deepEquals(each, written(expected[at]!)));
  expect(isSame.indexOf(false)).toBe(-1);
  client.leave();
}

for (const [group, cases] of Object.entries(SOCKET_CASES)) {
  describe(group, () => {
    test.each(cases.map((each) => [each.what, each] as const))("%s", (_what, each) => run(each), 60_000);
  });
}

describe("a text that is not UTF-8 is refused at the first byte that shows it [6.4]", () => {
  /** Where no continuation can make a text of the bytes any more. */
  function badFrom(bytes: Buffer): number | null {
    for (let length = 1; length <= bytes.length; length++) {
      const decoder = new TextDecoder("utf-8", { fatal: true });
      try {
        decoder.decode(bytes.subarray(0, length), { stream: true });
      } catch {
        return length;
      }
    }
    return null;
  }
  const CASES = NOT_UTF8.map(([what, ...bad]) => [what, Buffer.from([0x63, 0xc3, 0xb8, ...bad])] as const);

  test.each(CASES)("%s, in frames", async (_what, payload) => {
    const length = badFrom(payload);
    // What only lacks its end becomes wrong with the next character.
    const bytes = length === null ? Buffer.concat([payload, Buffer.from("x")]) : payload;
    const at = length ?? bytes.length;
    const client = await open();
    client.send(clientFrame({ opcode: Opcode.text, payload: bytes.subarray(0, at - 1), final: false }));
    client.send(clientFrame({ opcode: Opcode.ping, payload: "still there?" }));
    await client.containing("still there?");
    client.send(
      clientFrame({ opcode: Opcode.continuation, payload: bytes.subarray(at - 1, at), final: false }),
    );
    const sent = serverFrames(await client.everything()).map(readable);
    expect(sent.map(([kind]) => kind)).toEqual(["pong", "close"]);
    expect(sent[1]).toEqual(["close", 1007]);
    client.leave();
  });

  test.each(CASES)("%s, in pieces of one frame", async (_what, payload) => {
    const length = badFrom(payload);
    const bytes = length === null ? Buffer.concat([payload, Buffer.from("x")]) : payload;
    const at = length ?? bytes.length;
    const client = await open();
    // The rest of the frame never comes.
    const frame = clientFrame({
      opcode: Opcode.text,
      payload: Buffer.concat([bytes, Buffer.alloc(50, 0x61)]),
    });
    const headBytes = frame.length - bytes.length - 50;
    await client.sendPieces([
      frame.subarray(0, headBytes + at - 1),
      frame.subarray(headBytes + at - 1, headBytes + at),
    ]);
    expect(serverFrames(await client.everything()).map(readable)).toEqual([["close", 1007]]);
    client.leave();
  });
});
