import {
  decodeFrames,
  encodeCredit,
  encodeHead,
  encodeOpen,
  encodeReset,
  FrameBatch,
  FrameError,
  FrameType,
  parseCredit,
  parseHead,
  parseOpen,
  parseReset,
} from "@model-gateway/protocol/tunnel/frames.ts";
import { Found, FrameDecoder } from "../../../packages/wire/src/websocket/frames.ts";
import { inPieces } from "../mutations.ts";
import { type FuzzedParser, holds, orRefused, REFUSED, same } from "../parser.ts";

const MESSAGE_BYTES_MAX = 1_000;
const MASK = [1, 2, 3, 4];

/** A client's frame. */
function frame(opcode: number, payload: string, { isFinal = true, mask = MASK } = {}): Buffer {
  const body = Buffer.from(payload).map((byte, at) => byte ^ mask[at % 4]!);
  const size = body.length < 126 ? [body.length | 0x80] : [126 | 0x80, body.length >> 8, body.length & 255];
  return Buffer.concat([Uint8Array.of((isFinal ? 0x80 : 0) | opcode, ...size, ...mask), body]);
}

/** Everything that is found, in order. */
function foundIn(pieces: readonly Buffer[]): unknown[] {
  const decoder = new FrameDecoder(MESSAGE_BYTES_MAX);
  const found: unknown[] = [];
  for (const piece of pieces) {
    // It unmasks what it is fed in place.
    decoder.feed(Buffer.from(piece));
    for (;;) {
      const next = decoder.next();
      if (next === Found.nothing) break;
      if (next === Found.violation) return [...found, decoder.violation?.code];
      const { data } = decoder;
      found.push([next, typeof data === "string" ? data : data.toString("latin1")]);
      holds("a message is no longer than allowed", data.length <= MESSAGE_BYTES_MAX);
    }
  }
  return found;
}

export const webSocket: FuzzedParser = {
  name: "websocket",
  seeds: [
    frame(1, '{"jsonrpc":"2.0"}'),
    Buffer.concat([frame(1, "grü", { isFinal: false }), frame(9, "ping"), frame(0, "ße")]),
    Buffer.concat([frame(2, "x".repeat(300)), frame(8, "\u0003\u00e8bye")]),
    frame(1, "x".repeat(MESSAGE_BYTES_MAX)),
    frame(2, "unmasked", { mask: [0, 0, 0, 0] }),
  ],
  words: [
    Buffer.from([0x81, 0x80]),
    Buffer.from([0x88, 0x82]),
    Buffer.from([0x80]),
    Buffer.from([0x01, 0xfe]),
    Buffer.from([0xff]),
    Buffer.from([0x7f, 0xff, 0xff, 0xff]),
  ],
  check(bytes, chance) {
    same("the same bytes in pieces", foundIn(inPieces(bytes, chance)), foundIn([bytes]));
  },
};

/** One message of these frames. */
function messageOf(frames: readonly { type: FrameType; streamId: number; payload: Uint8Array }[]): Buffer {
  let message = Buffer.alloc(0);
  const batch = new FrameBatch((bytes) => {
    message = Buffer.concat([message, bytes]);
  });
  for (const { type, streamId, payload } of frames) batch.add(type, streamId, payload);
  batch.flush();
  return message;
}

const NO_BYTES = new Uint8Array(0);
const open = { model_id: "m", method: "POST", path: "/v1/x?y", headers: [["a", "b"]], has_body: true };
const payloads: [FrameType, Uint8Array][] = [
  [FrameType.open, encodeOpen(open as Parameters<typeof encodeOpen>[0])],
  [FrameType.head, encodeHead({ status: 200, headers: [["content-type", "text/plain"]] })],
  [FrameType.data, Buffer.from("data")],
  [FrameType.end, NO_BYTES],
  [FrameType.reset, encodeReset({ code: "engine_failed", message: "why" })],
  [FrameType.credit, encodeCredit(1_000)],
];
const frames = payloads.map(([type, payload], at) => ({ type, streamId: at + 1, payload }));
const parsers: Partial<Record<FrameType, (payload: Uint8Array) => unknown>> = {
  [FrameType.open]: parseOpen,
  [FrameType.head]: parseHead,
  [FrameType.reset]: parseReset,
  [FrameType.credit]: parseCredit,
};

export const tunnel: FuzzedParser = {
  name: "tunnel",
  seeds: [...frames.map((frame) => messageOf([frame])), messageOf(frames)],
  words: [
    Buffer.from([1, 0, 0, 0, 1, 0, 0, 0, 1]),
    Buffer.from([5]),
    '"headers":[]',
    '{"status":1e3',
    "__proto__",
    Buffer.from([0xff, 0xff, 0xff, 0xff]),
  ],
  check(bytes) {
    const read = orRefused([FrameError], () => decodeFrames(bytes));
    if (read === REFUSED) return;
    same("read and written", messageOf(read).toString("latin1"), Buffer.from(bytes).toString("latin1"));
    for (const { type, payload } of read) orRefused([FrameError], () => parsers[type]?.(payload));
  },
};
