/**
 * Conversations over a WebSocket with an echo server, and how each must end. The facts (which situations there are, and
 * what RFC 6455 asks in them) are those of groups 1-7, 9 and 10 of github.com/crossbario/autobahn-testsuite; the
 * numbers in brackets are its cases. The messages are our own.
 */
import { Opcode } from "../../src/websocket/frames.ts";
import { type ClientFrame, closePayload } from "../websocket/support.ts";

/** What the server sends: the opcode's name and the payload, or the code of its close frame. */
export type Sent = ["text" | "binary" | "pong", string | Buffer] | ["close", number | null];

export interface SocketCase {
  what: string;
  frames: readonly ClientFrame[];
  /** Everything that the server sends. Without a close frame the client closes with 1000, which is answered. */
  answer: readonly Sent[];
  /** Cut into pieces of this many bytes, each sent on its own. */
  pieceBytes?: number;
}

const { text, binary, ping, pong, continuation, close } = Opcode;
const words = (count: number): string => "0123456789abcdef".repeat(Math.ceil(count / 16)).slice(0, count);
const bytes = (count: number): Buffer =>
  Buffer.from(Array.from({ length: count }, (_, i) => (i * 37 + 11) & 255));

const PROTOCOL_ERROR: Sent = ["close", 1002];
const NOT_TEXT: Sent = ["close", 1007];

const SIZES = [0, 125, 126, 127, 128, 65_535, 65_536];

const messages: SocketCase[] = [
  ...SIZES.map((size) => ({
    what: `a text of ${size} bytes [1.1]`,
    frames: [{ opcode: text, payload: words(size) }],
    answer: [["text", words(size)] as Sent],
  })),
  ...SIZES.map((size) => ({
    what: `${size} bytes [1.2]`,
    frames: [{ opcode: binary, payload: bytes(size) }],
    answer: [["binary", bytes(size)] as Sent],
  })),
  {
    what: "a text that comes in pieces [1.1.8]",
    frames: [{ opcode: text, payload: words(65_536) }],
    answer: [["text", words(65_536)]],
    pieceBytes: 991,
  },
  {
    what: "bytes that come in pieces [1.2.8]",
    frames: [{ opcode: binary, payload: bytes(65_536) }],
    answer: [["binary", bytes(65_536)]],
    pieceBytes: 991,
  },
];

const tenPings = Array.from({ length: 10 }, (_, i): ClientFrame => ({ opcode: ping, payload: `ping ${i}` }));
const tenPongs = Array.from({ length: 10 }, (_, i): Sent => ["pong", `ping ${i}`]);

const pings: SocketCase[] = [
  { what: "an empty ping [2.1]", frames: [{ opcode: ping }], answer: [["pong", ""]] },
  { what: "a ping with a text [2.2]", frames: [{ opcode: ping, payload: "hey" }], answer: [["pong", "hey"]] },
  {
    what: "a ping with bytes that are no text [2.3]",
    frames: [{ opcode: ping, payload: Buffer.from([0, 0xff, 0xfe, 0xfd, 0x80]) }],
    answer: [["pong", Buffer.from([0, 0xff, 0xfe, 0xfd, 0x80])]],
  },
  {
    what: "the largest ping [2.4]",
    frames: [{ opcode: ping, payload: bytes(125) }],
    answer: [["pong", bytes(125)]],
  },
  { what: "a larger ping [2.5]", frames: [{ opcode: ping, payload: bytes(126) }], answer: [PROTOCOL_ERROR] },
  {
    what: "the largest ping byte by byte [2.6]",
    frames: [{ opcode: ping, payload: bytes(125) }],
    answer: [["pong", bytes(125)]],
    pieceBytes: 1,
  },
  { what: "a pong that nobody asked for [2.7]", frames: [{ opcode: pong }], answer: [] },
  { what: "a pong with a payload [2.8]", frames: [{ opcode: pong, payload: "unasked" }], answer: [] },
  {
    what: "a pong, then a ping [2.9]",
    frames: [
      { opcode: pong, payload: "unasked" },
      { opcode: ping, payload: "asked" },
    ],
    answer: [["pong", "asked"]],
  },
  { what: "ten pings [2.10]", frames: tenPings, answer: tenPongs },
  { what: "ten pings byte by byte [2.11]", frames: tenPings, answer: tenPongs, pieceBytes: 1 },
];

const RESERVED = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70];
const reservedBits: SocketCase[] = RESERVED.flatMap((reserved): SocketCase[] => [
  {
    what: `reserved bits ${reserved.toString(2)} of a text after a good one [3.1-3.4]`,
    frames: [{ opcode: text, payload: "good" }, { opcode: text, payload: "bad", reserved }, { opcode: ping }],
    answer: [["text", "good"], PROTOCOL_ERROR],
  },
  {
    what: `reserved bits ${reserved.toString(2)} of bytes [3.5]`,
    frames: [{ opcode: binary, payload: bytes(8), reserved }],
    answer: [PROTOCOL_ERROR],
    pieceBytes: 1,
  },
  {
    what: `reserved bits ${reserved.toString(2)} of a ping [3.6]`,
    frames: [{ opcode: ping, reserved }],
    answer: [PROTOCOL_ERROR],
  },
  {
    what: `reserved bits ${reserved.toString(2)} of a close [3.7]`,
    frames: [{ opcode: close, reserved }],
    answer: [PROTOCOL_ERROR],
  },
]);

const opcodes: SocketCase[] = [3, 4, 5, 6, 7, 11, 12, 13, 14, 15].flatMap((opcode): SocketCase[] => [
  { what: `opcode ${opcode} [4.1.1, 4.2.1]`, frames: [{ opcode }], answer: [PROTOCOL_ERROR] },
  {
    what: `opcode ${opcode} with a payload, after a text [4.1.2-4, 4.2.2-4]`,
    frames: [{ opcode: text, payload: "good" }, { opcode, payload: "bad" }, { opcode: ping }],
    answer: [["text", "good"], PROTOCOL_ERROR],
  },
  {
    what: `opcode ${opcode} byte by byte [4.1.5, 4.2.5]`,
    frames: [
      { opcode: text, payload: "good" },
      { opcode, payload: "bad" },
    ],
    answer: [["text", "good"], PROTOCOL_ERROR],
    pieceBytes: 1,
  },
]);

const inTwo: ClientFrame[] = [
  { opcode: text, payload: "first ", final: false },
  { opcode: continuation, payload: "second" },
];
const inTwoAndPing: ClientFrame[] = [inTwo[0]!, { opcode: ping, payload: "between" }, inTwo[1]!];
const inFive: ClientFrame[] = [
  { opcode: text, payload: "a", final: false },
  { opcode: continuation, payload: "b", final: false },
  { opcode: ping, payload: "one" },
  { opcode: continuation, payload: "c", final: false },
  { opcode: continuation, payload: "d", final: false },
  { opcode: ping, payload: "two" },
  { opcode: continuation, payload: "e" },
];

/** Each of them at once, frame by frame and byte by byte. */
const anyCut = (what: string, frames: ClientFrame[], answer: Sent[]): SocketCase[] => [
  { what, frames, answer },
  { what: `${what}, in pieces`, frames, answer, pieceBytes: 7 },
  { what: `${what}, byte by byte`, frames, answer, pieceBytes: 1 },
];

const fragments: SocketCase[] = [
  ...anyCut(
    "a ping in two frames [5.1]",
    [
      { opcode: ping, payload: "a", final: false },
      { opcode: continuation, payload: "b" },
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut(
    "a pong in two frames [5.2]",
    [
      { opcode: pong, payload: "a", final: false },
      { opcode: continuation, payload: "b" },
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut("a text in two frames [5.3-5.5]", inTwo, [["text", "first second"]]),
  ...anyCut("a ping between two frames [5.6-5.8]", inTwoAndPing, [
    ["pong", "between"],
    ["text", "first second"],
  ]),
  ...anyCut(
    "a last frame that continues nothing [5.9-5.11]",
    [
      { opcode: continuation, payload: "nothing" },
      { opcode: text, payload: "late" },
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut(
    "a frame in between that continues nothing [5.12-5.14]",
    [
      { opcode: continuation, payload: "nothing", final: false },
      { opcode: text, payload: "late" },
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut(
    "a frame that continues a message that has ended [5.15]",
    [...inTwo, { opcode: continuation, payload: "nothing", final: false }, { opcode: text, payload: "late" }],
    [["text", "first second"], PROTOCOL_ERROR],
  ),
  ...anyCut(
    "a frame that continues nothing before a good message, twice [5.16, 5.17]",
    [
      { opcode: continuation, payload: "nothing", final: false },
      ...inTwo,
      { opcode: continuation, payload: "nothing" },
      ...inTwo,
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut(
    "a text that begins within another [5.18]",
    [
      { opcode: text, payload: "first", final: false },
      { opcode: text, payload: "second" },
    ],
    [PROTOCOL_ERROR],
  ),
  ...anyCut("five frames with two pings between [5.19, 5.20]", inFive, [
    ["pong", "one"],
    ["pong", "two"],
    ["text", "abcde"],
  ]),
  ...anyCut(
    "bytes that begin within a text",
    [
      { opcode: text, payload: "first", final: false },
      { opcode: binary, payload: "second" },
    ],
    [PROTOCOL_ERROR],
  ),
  {
    what: "a frame that is not masked",
    frames: [{ opcode: text, payload: "bare", mask: null }],
    answer: [PROTOCOL_ERROR],
  },
];

/** Texts in several scripts, with characters of one to four bytes. */
const TEXTS = [
  "plain",
  "a$b",
  "a£b",
  "a₦b",
  "a𐍈b",
  "Ωραῖος κόσμος",
  "😀 ünï 漢字 한글 हिन्दी",
  "\u0000",
  "\u007f",
];
const FIRST_AND_LAST = [0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x1_0000, 0x10_fffd, 0x10_ffff];
/** Code points that stand for no character, which are allowed all the same. */
const NONCHARACTERS = Array.from({ length: 17 }, (_, plane) => [
  plane * 0x1_0000 + 0xfffe,
  plane * 0x1_0000 + 0xffff,
])
  .flat()
  .concat([0xfdd0, 0xfdef]);

const goodText = (payload: string): SocketCase[] => {
  const label = payload === "\u0000" ? "NUL" : payload.slice(0, 12);
  const encoded = Buffer.from(payload);
  const perByte = [...encoded].map(
    (byte, at): ClientFrame => ({
      opcode: at === 0 ? text : continuation,
      payload: Buffer.from([byte]),
      final: at === encoded.length - 1,
    }),
  );
  return [
    {
      what: `the text ${label} [6.2.1, 6.5]`,
      frames: [{ opcode: text, payload }],
      answer: [["text", payload]],
    },
    {
      what: `the text ${label}, a frame for each byte [6.2.3]`,
      frames: perByte,
      answer: [["text", payload]],
    },
    {
      what: `the text ${label}, byte by byte`,
      frames: [{ opcode: text, payload }],
      answer: [["text", payload]],
      pieceBytes: 1,
    },
  ];
};

/** Bytes that are not UTF-8, and what is wrong with them [6.3, 6.6-6.23]. */
export const NOT_UTF8: readonly (readonly [what: string, ...bytes: number[]])[] = [
  ["beyond the last code point", 0xf4, 0x90, 0x80, 0x80],
  ["five bytes", 0xf8, 0x88, 0x80, 0x80, 0x80],
  ["the last of five bytes", 0xfb, 0xbf, 0xbf, 0xbf, 0xbf],
  ["six bytes", 0xfc, 0x84, 0x80, 0x80, 0x80, 0x80],
  ["the last of six bytes", 0xfd, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf],
  ["the last of four bytes", 0xf7, 0xbf, 0xbf, 0xbf],
  ["the first continuation", 0x80],
  ["the last continuation", 0xbf],
  ["two continuations", 0x80, 0xbf],
  ["seven continuations", 0x80, 0xbf, 0x80, 0xbf, 0x80, 0xbf, 0x80],
  ["all continuations", ...Array.from({ length: 64 }, (_, i) => 0x80 + i)],
  ["each first of two, and a space", ...Array.from({ length: 32 }, (_, i) => [0xc0 + i, 0x20]).flat()],
  ["each first of three, and a space", ...Array.from({ length: 16 }, (_, i) => [0xe0 + i, 0x20]).flat()],
  ["each first of four, and a space", ...Array.from({ length: 8 }, (_, i) => [0xf0 + i, 0x20]).flat()],
  ["each first of five, and a space", ...Array.from({ length: 4 }, (_, i) => [0xf8 + i, 0x20]).flat()],
  ["each first of six, and a space", 0xfc, 0x20, 0xfd, 0x20],
  ["two bytes without the last", 0xc3],
  ["three bytes without the last", 0xe1, 0x81],
  ["four bytes without the last", 0xf1, 0x81, 0x81],
  ["the last of two without its last", 0xdf],
  ["the last of three without its last", 0xef, 0xbf],
  ["characters without their ends in a row", 0xc3, 0xe1, 0x81, 0xf1, 0x81, 0x81],
  ["FE", 0xfe],
  ["FF", 0xff],
  ["FE and FF", 0xfe, 0xfe, 0xff, 0xff],
  ["a slash in two bytes", 0xc0, 0xaf],
  ["a slash in three bytes", 0xe0, 0x80, 0xaf],
  ["a slash in four bytes", 0xf0, 0x80, 0x80, 0xaf],
  ["a slash in five bytes", 0xf8, 0x80, 0x80, 0x80, 0xaf],
  ["a slash in six bytes", 0xfc, 0x80, 0x80, 0x80, 0x80, 0xaf],
  ["the longest two bytes that one holds", 0xc1, 0xbf],
  ["the longest three bytes that two hold", 0xe0, 0x9f, 0xbf],
  ["the longest four bytes that three hold", 0xf0, 0x8f, 0xbf, 0xbf],
  ["NUL in two bytes", 0xc0, 0x80],
  ["NUL in three bytes", 0xe0, 0x80, 0x80],
  ["NUL in four bytes", 0xf0, 0x80, 0x80, 0x80],
  ["the first half of a surrogate pair", 0xed, 0xa0, 0x80],
  ["the last first half", 0xed, 0xaf, 0xbf],
  ["the second half", 0xed, 0xb0, 0x80],
  ["the last second half", 0xed, 0xbf, 0xbf],
  ["a surrogate pair", 0xed, 0xa0, 0x81, 0xed, 0xb0, 0x81],
];

const badText = ([what, ...bad]: (typeof NOT_UTF8)[number]): SocketCase[] => {
  const payload = Buffer.from([...Buffer.from("ab"), ...bad]);
  return [
    { what: `${what} [6.3.1]`, frames: [{ opcode: text, payload }], answer: [NOT_TEXT] },
    {
      what: `${what}, byte by byte [6.3.2]`,
      frames: [{ opcode: text, payload }],
      answer: [NOT_TEXT],
      pieceBytes: 1,
    },
    {
      what: `${what}, in two frames`,
      frames: [
        { opcode: text, payload: payload.subarray(0, 3), final: false },
        { opcode: continuation, payload: payload.subarray(3) },
      ],
      answer: [NOT_TEXT],
    },
  ];
};

const texts: SocketCase[] = [
  { what: "an empty text [6.1.1]", frames: [{ opcode: text }], answer: [["text", ""]] },
  {
    what: "a text of three empty frames [6.1.2]",
    frames: [
      { opcode: text, final: false },
      { opcode: continuation, final: false },
      { opcode: continuation },
    ],
    answer: [["text", ""]],
  },
  {
    what: "an empty frame before and behind a full one [6.1.3]",
    frames: [
      { opcode: text, final: false },
      { opcode: continuation, payload: "middle", final: false },
      { opcode: continuation },
    ],
    answer: [["text", "middle"]],
  },
  ...TEXTS.flatMap(goodText),
  ...[...FIRST_AND_LAST, ...NONCHARACTERS].flatMap((point) =>
    goodText(String.fromCodePoint(point)).slice(0, 2),
  ),
  ...NOT_UTF8.flatMap(badText),
  {
    what: "bytes that are no text are fine in a binary message",
    frames: [{ opcode: binary, payload: Buffer.from([0xff, 0xfe]) }],
    answer: [["binary", Buffer.from([0xff, 0xfe])]],
  },
];

const closing = (what: string, payload: Buffer | string, code: number | null): SocketCase => ({
  what,
  frames: [{ opcode: close, payload }],
  answer: [["close", code]],
});

const VALID_CODES = [
  1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999,
];
const INVALID_CODES = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535];

const closes: SocketCase[] = [
  {
    what: "a message, then a close [7.1.1]",
    frames: [
      { opcode: text, payload: "last words" },
      { opcode: close, payload: closePayload(1000) },
    ],
    answer: [
      ["text", "last words"],
      ["close", 1000],
    ],
  },
  {
    what: "two closes [7.1.2]",
    frames: [
      { opcode: close, payload: closePayload(1000) },
      { opcode: close, payload: closePayload(1001) },
    ],
    answer: [["close", 1000]],
  },
  {
    what: "a ping behind a close [7.1.3]",
    frames: [{ opcode: close, payload: closePayload(1000) }, { opcode: ping }],
    answer: [["close", 1000]],
  },
  {
    what: "a text behind a close [7.1.4]",
    frames: [
      { opcode: close, payload: closePayload(1000) },
      { opcode: text, payload: "too late" },
    ],
    answer: [["close", 1000]],
  },
  {
    what: "a close within a message [7.1.5]",
    frames: [inTwo[0]!, { opcode: close, payload: closePayload(1000) }, inTwo[1]!],
    answer: [["close", 1000]],
  },
  {
    what: "a long message, a short one, a close and a ping [7.1.6]",
    frames: [
      { opcode: text, payload: words(262_144) },
      { opcode: text, payload: "short" },
      { opcode: close, payload: closePayload(1000) },
      { opcode: ping },
    ],
    answer: [
      ["text", words(262_144)],
      ["text", "short"],
      ["close", 1000],
    ],
  },
  closing("a close without a code [7.3.1]", "", null),
  closing("a close of one byte [7.3.2]", "x", 1002),
  closing("a close with a code [7.3.3]", closePayload(1000), 1000),
  closing("a close with a reason [7.3.4]", closePayload(1000, "done here"), 1000),
  closing("a close with the longest reason [7.3.5]", closePayload(1000, words(123)), 1000),
  closing("a close with a longer reason [7.3.6]", closePayload(1000, words(124)), 1002),
  closing(
    "a close whose reason is not UTF-8 [7.5.1]",
    closePayload(1000, Buffer.from([0x61, 0xed, 0xa0, 0x81, 0x62])),
    1007,
  ),
  ...VALID_CODES.map((code) => closing(`a close with ${code} [7.7]`, closePayload(code), code)),
  ...INVALID_CODES.map((code) => closing(`a close with ${code} [7.9, 7.13]`, closePayload(code), 1002)),
];

const inFrames = (opcode: number, payload: Buffer, frameBytes: number): ClientFrame[] => {
  const frames: ClientFrame[] = [];
  for (let at = 0; at < payload.length; at += frameBytes)
    frames.push({
      opcode: at === 0 ? opcode : continuation,
      payload: payload.subarray(at, at + frameBytes),
      final: at + frameBytes >= payload.length,
    });
  return frames;
};

const KIB = 1024;
const MIB = KIB * KIB;
/** The largest message that the server of these tests takes. */
export const MESSAGE_BYTES_MAX = 16 * MIB;

const large: SocketCase[] = [
  ...[64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB].flatMap((size): SocketCase[] => [
    {
      what: `a text of ${size / KIB} KiB [9.1]`,
      frames: [{ opcode: text, payload: words(size) }],
      answer: [["text", words(size)]],
    },
    {
      what: `${size / KIB} KiB [9.2]`,
      frames: [{ opcode: binary, payload: bytes(size) }],
      answer: [["binary", bytes(size)]],
    },
  ]),
  ...[64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB].flatMap(
    (frameBytes): SocketCase[] => [
      {
        what: `a text of 4 MiB in frames of ${frameBytes} bytes [9.3]`,
        frames: inFrames(text, Buffer.from(words(4 * MIB)), frameBytes),
        answer: [["text", words(4 * MIB)]],
      },
      {
        what: `4 MiB in frames of ${frameBytes} bytes [9.4]`,
        frames: inFrames(binary, bytes(4 * MIB), frameBytes),
        answer: [["binary", bytes(4 * MIB)]],
      },
    ],
  ),
  ...[64, 128, 256, 512, KIB, 2 * KIB].flatMap((pieceBytes): SocketCase[] => [
    {
      what: `a text of 256 KiB in pieces of ${pieceBytes} bytes [9.5]`,
      frames: [{ opcode: text, payload: words(256 * KIB) }],
      answer: [["text", words(256 * KIB)]],
      pieceBytes,
    },
    {
      what: `256 KiB in pieces of ${pieceBytes} bytes [9.6]`,
      frames: [{ opcode: binary, payload: bytes(256 * KIB) }],
      answer: [["binary", bytes(256 * KIB)]],
      pieceBytes,
    },
  ]),
  ...[0, 16, 64, 256, KIB, 4 * KIB].flatMap((size): SocketCase[] => [
    {
      what: `500 texts of ${size} bytes [9.7]`,
      frames: Array.from({ length: 500 }, () => ({ opcode: text, payload: words(size) })),
      answer: Array.from({ length: 500 }, (): Sent => ["text", words(size)]),
    },
    {
      what: `500 messages of ${size} bytes [9.8]`,
      frames: Array.from({ length: 500 }, () => ({ opcode: binary, payload: bytes(size) })),
      answer: Array.from({ length: 500 }, (): Sent => ["binary", bytes(size)]),
    },
  ]),
  {
    what: "a message without end is cut off at the largest size [9.9]",
    frames: Array.from({ length: 4_097 }, (_, i) => ({
      opcode: i === 0 ? text : continuation,
      payload: words(4 * KIB),
      final: false,
    })),
    answer: [["close", 1009]],
  },
  {
    what: "a frame that is larger than the largest message",
    frames: [{ opcode: binary, payload: bytes(MESSAGE_BYTES_MAX + 1) }],
    answer: [["close", 1009]],
  },
  {
    what: "a text of 64 KiB in frames of 1,300 bytes [10.1.1]",
    frames: inFrames(text, Buffer.from(words(65_536)), 1_300),
    answer: [["text", words(65_536)]],
  },
];

export const SOCKET_CASES: Readonly<Record<string, readonly SocketCase[]>> = {
  messages,
  pings,
  "reserved bits": reservedBits,
  opcodes,
  fragments,
  texts,
  closes,
  "large messages": large,
};
