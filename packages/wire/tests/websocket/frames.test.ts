import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type Closing,
  encodeBytes,
  encodeClose,
  encodeHead,
  encodeText,
  Found,
  FrameDecoder,
  Opcode,
  parseClose,
} from "../../src/websocket/frames.ts";
import { type ClientFrame, clientFrame, closePayload, serverFrames } from "./support.ts";

const LIMIT_BYTES = 1_000;
const { text, binary, continuation, close, ping, pong } = Opcode;

type Event = [kind: number, data: string] | Closing;

/** Everything found in bytes that come as the given reads; binary as hexadecimal digits. */
function decode(reads: Iterable<Buffer>, messageBytesMax = LIMIT_BYTES): Event[] {
  const decoder = new FrameDecoder(messageBytesMax);
  const events: Event[] = [];
  for (const read of reads) {
    decoder.feed(Buffer.from(read));
    for (;;) {
      const found = decoder.next();
      if (found === Found.nothing) break;
      if (found === Found.violation) return [...events, decoder.violation!];
      const { data } = decoder;
      events.push([found, typeof data === "string" ? data : data.toString("hex")]);
    }
  }
  return events;
}

const hex = (value: string | Uint8Array) => Buffer.from(value as string).toString("hex");
/** Bytes that do not repeat in step with the mask. */
const pattern = (length: number) => Buffer.from(Uint8Array.from({ length }, (_, at) => at % 251));
const conversation = (...frames: ClientFrame[]) => Buffer.concat(frames.map(clientFrame));

describe("protocol violations", () => {
  const length64 = (...bytes: number[]) => Buffer.from([0x82, 0xff, ...bytes]);
  const half = { opcode: text, final: false, payload: "half" };
  const table: [string, Buffer, number][] = [
    ["a frame that is not masked", clientFrame({ opcode: text, payload: "x", mask: null }), 1002],
    ["an unmasked frame, at its second byte", Buffer.from([0x81, 0x05]), 1002],
    ...[0x40, 0x20, 0x10].map((reserved): [string, Buffer, number] => [
      `reserved bit ${reserved}`,
      clientFrame({ opcode: text, reserved }),
      1002,
    ]),
    ...[3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map((opcode): [string, Buffer, number] => [
      `opcode ${opcode}, at its first byte`,
      Buffer.from([0x80 | opcode]),
      1002,
    ]),
    ["a fragmented ping", clientFrame({ opcode: ping, final: false }), 1002],
    ["a fragmented close", clientFrame({ opcode: close, final: false }), 1002],
    ["a ping of 126 bytes", clientFrame({ opcode: ping, payload: "x".repeat(126) }), 1002],
    ["a close of 126 bytes", clientFrame({ opcode: close, payload: "x".repeat(126) }), 1002],
    ["a pong of 70,000 bytes", clientFrame({ opcode: pong, payload: "x".repeat(70_000) }), 1002],
    ["a continuation of nothing", clientFrame({ opcode: continuation, payload: "x" }), 1002],
    [
      "a continuation after the last fragment",
      conversation(half, { opcode: continuation }, { opcode: continuation }),
      1002,
    ],
    ["a new text within a fragmented message", conversation(half, { opcode: text }), 1002],
    ["a new binary within a fragmented message", conversation(half, { opcode: binary }), 1002],
    ["a length with its highest bit set", length64(0x80, 0, 0, 0, 0, 0, 0, 1), 1002],
    ["a length of 2^63 - 1", length64(0x7f, 255, 255, 255, 255, 255, 255, 255), 1009],
    ["a length of 2^32, before any of it came", length64(0, 0, 0, 1, 0, 0, 0, 0), 1009],
    ["one byte over the limit, before any of it came", Buffer.from([0x82, 0xfe, 0x03, 0xe9]), 1009],
    [
      "fragments that are together over the limit",
      conversation(
        { opcode: binary, final: false, payload: "x".repeat(600) },
        { opcode: continuation, final: false, payload: "x".repeat(400) },
        { opcode: continuation, payload: "x" },
      ),
      1009,
    ],
    ["a text that is not UTF-8", clientFrame({ opcode: text, payload: Buffer.from([0xc3, 0x28]) }), 1007],
    ["a surrogate in UTF-8", clientFrame({ opcode: text, payload: Buffer.from([0xed, 0xa0, 0x80]) }), 1007],
    [
      "a text that ends within a character",
      clientFrame({ opcode: text, payload: Buffer.from([0xe2, 0x82]) }),
      1007,
    ],
    [
      "a fragmented text that is not UTF-8",
      conversation(half, { opcode: continuation, payload: Buffer.from([0xff]) }),
      1007,
    ],
  ];
  const whole = (bytes: Buffer) => [bytes];
  const single = (bytes: Buffer) => [...bytes].map((byte) => Buffer.from([byte]));

  test.each(table)("%s", (_, bytes, code) => {
    for (const split of [whole, single]) {
      expect(decode(split(bytes)).at(-1)).toEqual({ code, reason: expect.stringMatching(/\w/) });
      const before = conversation({ opcode: binary, payload: "ok" });
      expect(decode(split(Buffer.concat([before, bytes])))[0]).toEqual([Found.binary, hex("ok")]);
    }
  });

  test("nothing is found after a violation", () => {
    const decoder = new FrameDecoder(LIMIT_BYTES);
    decoder.feed(Buffer.concat([Buffer.from([0x83]), clientFrame({ opcode: text, payload: "x" })]));
    expect(decoder.next()).toBe(Found.violation);
    decoder.feed(clientFrame({ opcode: text, payload: "x" }));
    expect(decoder.next()).toBe(Found.violation);
  });
});

describe("close frames", () => {
  test.each([0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65_535])(
    "code %d is refused",
    (code) => {
      expect(parseClose(closePayload(code)).violation).toMatchObject({ code: 1002 });
      expect(() => encodeClose(code === 1005 ? 1006 : code, "")).toThrow(RangeError);
    },
  );

  test.each([1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999])(
    "code %d is read and written",
    (code) => {
      expect(parseClose(closePayload(code, "why"))).toEqual({ code, reason: "why", violation: null });
      expect(serverFrames(encodeClose(code, "why"))).toEqual([
        { opcode: close, payload: closePayload(code, "why") },
      ]);
    },
  );

  test("no code is 1005; half a code is refused; the reason has to be UTF-8", () => {
    expect(parseClose(Buffer.alloc(0))).toEqual({ code: 1005, reason: "", violation: null });
    expect(parseClose(Buffer.from([3])).violation).toMatchObject({ code: 1002 });
    expect(parseClose(closePayload(1000, Buffer.from([0xff]))).violation).toMatchObject({ code: 1007 });
    expect(serverFrames(encodeClose(1005, ""))).toEqual([{ opcode: close, payload: Buffer.alloc(0) }]);
  });

  test("a reason that is too long is cut between characters", () => {
    const [frame] = serverFrames(encodeClose(1000, "€".repeat(100)));
    expect(frame?.payload.subarray(2).toString()).toBe("€".repeat(41));
  });
});

describe("splits", () => {
  const bytes = conversation(
    { opcode: text, payload: "größer als €1" },
    { opcode: ping, payload: "are you there" },
    { opcode: binary, final: false, payload: Buffer.from([1, 2, 3]) },
    { opcode: ping },
    { opcode: continuation, final: false },
    { opcode: pong, payload: "unasked" },
    { opcode: continuation, payload: Buffer.alloc(200, 7) },
    { opcode: text },
    { opcode: text, final: false, payload: Buffer.from([0xe2, 0x82]) },
    { opcode: continuation, payload: Buffer.from([0xac]) },
    { opcode: close, payload: closePayload(1000, "bye") },
  );
  const expected: Event[] = [
    [Found.text, "größer als €1"],
    [Found.ping, hex("are you there")],
    [Found.ping, ""],
    [Found.pong, hex("unasked")],
    [Found.binary, `010203${"07".repeat(200)}`],
    [Found.text, ""],
    [Found.text, "€"],
    [Found.close, hex(closePayload(1000, "bye"))],
  ];

  test("at once, byte by byte, and at every position", () => {
    expect(decode([bytes])).toEqual(expected);
    expect(decode([...bytes].map((byte) => Buffer.from([byte])))).toEqual(expected);
    for (let at = 0; at <= bytes.length; at++) {
      expect(decode([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(expected);
    }
  });

  test("every length around the borders of the header's forms, at every alignment", () => {
    for (const length of [0, 1, 125, 126, 127, 128, 129, 130, 131, 65_535, 65_536, 65_537]) {
      const payload = pattern(length);
      for (let shift = 0; shift < 4; shift++) {
        const before = clientFrame({ opcode: ping, payload: "x".repeat(shift) });
        const reads = [Buffer.concat([before, clientFrame({ opcode: binary, payload })])];
        expect(decode(reads, 70_000)[1]).toEqual([Found.binary, hex(payload)]);
      }
    }
  });

  test("a large message in reads of one byte, of odd sizes, and in fragments of one byte", () => {
    const payload = pattern(300_001);
    const frame = clientFrame({ opcode: binary, payload });
    for (const readBytes of [1, 4_095, 4_097, 100_003]) {
      const reads = Array.from({ length: Math.ceil(frame.length / readBytes) }, (_, index) =>
        frame.subarray(index * readBytes, (index + 1) * readBytes),
      );
      expect(decode(reads, 1_000_000)).toEqual([[Found.binary, hex(payload)]]);
    }
    const fragments = Array.from(payload.subarray(0, 50_000), (byte, at) =>
      clientFrame({
        opcode: at === 0 ? binary : continuation,
        final: at === 49_999,
        payload: Buffer.from([byte]),
      }),
    );
    expect(decode([Buffer.concat(fragments)], 1_000_000)).toEqual([
      [Found.binary, hex(payload.subarray(0, 50_000))],
    ]);
  });

  test("a message of exactly the limit is taken", () => {
    const payload = "x".repeat(LIMIT_BYTES);
    expect(decode([clientFrame({ opcode: text, payload })])).toEqual([[Found.text, payload]]);
  });
});

/** Strings with every kind of character, also halves of surrogate pairs as a careless caller has them. */
const anyText = fc.string({
  unit: fc.oneof(fc.string({ unit: "binary", maxLength: 1 }), fc.constant("\ud800")),
});

describe("round trips", () => {
  const message = fc.record({
    payload: fc.oneof(
      fc.string({ unit: "binary", maxLength: 400 }),
      fc.uint8Array({ maxLength: 400 }),
      fc.integer({ min: 100, max: 9_000 }).map(pattern),
    ),
    /** Where it is cut into fragments, and the pings in between. */
    cuts: fc.array(fc.nat(9_000), { maxLength: 5 }),
    pings: fc.array(fc.uint8Array({ maxLength: 125 }), { maxLength: 3 }),
    mask: fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)),
  });

  test("any messages, fragments, masks and reads", () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 6 }),
        fc.array(fc.nat(20_000), { maxLength: 12 }),
        (messages, splits) => {
          const frames: Buffer[] = [];
          const expected: Event[] = [];
          for (const { payload, cuts, pings, mask } of messages) {
            const bytes = Buffer.from(payload as string);
            const isText = typeof payload === "string";
            const edges = [
              0,
              ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b),
              bytes.length,
            ];
            for (let index = 1; index < edges.length; index++) {
              const opcode = index > 1 ? continuation : isText ? text : binary;
              const final = index === edges.length - 1;
              frames.push(
                clientFrame({ opcode, final, mask, payload: bytes.subarray(edges[index - 1], edges[index]) }),
              );
              const between = final ? undefined : pings[index - 1];
              if (between) {
                frames.push(clientFrame({ opcode: ping, mask, payload: between }));
                expected.push([Found.ping, hex(between)]);
              }
            }
            expected.push(isText ? [Found.text, payload] : [Found.binary, hex(bytes)]);
          }
          const all = Buffer.concat(frames);
          const edges = [0, ...splits.filter((at) => at < all.length).sort((a, b) => a - b), all.length];
          const reads = edges.slice(1).map((edge, index) => all.subarray(edges[index], edge));
          expect(decode(reads, 20_000)).toEqual(expected);
        },
      ),
      { numRuns: 150 },
    );
  });

  test("what the server sends says the same", () => {
    fc.assert(
      fc.property(anyText, fc.uint8Array({ maxLength: 300 }), (said, bytes) => {
        expect(serverFrames(Buffer.concat([encodeText(said), encodeBytes(binary, bytes)]))).toEqual([
          { opcode: text, payload: Buffer.from(said) },
          { opcode: binary, payload: Buffer.from(bytes) },
        ]);
      }),
      { numRuns: 300 },
    );
    for (const length of [0, 125, 126, 65_535, 65_536, 200_000]) {
      const [frame] = serverFrames(encodeText("x".repeat(length)));
      expect(frame?.payload.length).toBe(length);
    }
    expect(encodeHead(binary, 5 * 2 ** 32 + 3).toString("hex")).toBe("827f0000000500000003");
  });
});
