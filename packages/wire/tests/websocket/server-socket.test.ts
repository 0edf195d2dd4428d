import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { Opcode } from "../../src/websocket/frames.ts";
import {
  CLOSE_GRACE_MS,
  PONGS_WAITING_MAX,
  ServerSocket,
  UNCOPIED_FROM_BYTES,
} from "../../src/websocket/server-socket.ts";
import { clientFrame, closePayload, RecordingPipe } from "./support.ts";

const BUFFER_BYTES_MAX = 10_000;

interface Heard {
  messages: (string | Buffer)[];
  closes: [number, string][];
  errors: unknown[];
  drains: number;
  opens: number;
}

type Socket = ServerSocket<Heard>;

function setUp(onMessage: (socket: Socket, message: string | Buffer) => void | Promise<void> = () => {}) {
  const pipe = new RecordingPipe();
  const clock = new ManualClock();
  const data: Heard = { messages: [], closes: [], errors: [], drains: 0, opens: 0 };
  const socket: Socket = new ServerSocket({
    pipe,
    data,
    clock,
    messageBytesMax: 1_000,
    bufferBytesMax: BUFFER_BYTES_MAX,
    onError: (error) => data.errors.push(error),
    handlers: {
      open: ({ data }) => {
        data.opens++;
      },
      message: (socket, message) => {
        socket.data.messages.push(message);
        return onMessage(socket, message);
      },
      drain: ({ data }) => {
        data.drains++;
      },
      close: ({ data }, code, reason) => {
        data.closes.push([code, reason]);
      },
    },
  });
  socket.opened();
  const say = (text: string) => socket.received(clientFrame({ opcode: Opcode.text, payload: text }));
  const sayClose = (code: number, reason = "") =>
    socket.received(clientFrame({ opcode: Opcode.close, payload: closePayload(code, reason) }));
  const ping = (text: string) => socket.received(clientFrame({ opcode: Opcode.ping, payload: text }));
  return { pipe, clock, socket, heard: data, say, sayClose, ping };
}

describe("sending", () => {
  test("a frame leaves in one write, and its size is told", () => {
    const { pipe, socket } = setUp();
    expect(socket.sendText("€")).toBe(5);
    expect(socket.sendText("")).toBe(2);
    expect(socket.sendBinary(Buffer.alloc(300, 1))).toBe(304);
    expect(pipe.writes.map((write) => write.length)).toEqual([5, 2, 304]);
    expect(pipe.frames()).toEqual([
      { opcode: Opcode.text, payload: Buffer.from("€") },
      { opcode: Opcode.text, payload: Buffer.alloc(0) },
      { opcode: Opcode.binary, payload: Buffer.alloc(300, 1) },
    ]);
  });

  test("a large payload follows its header", () => {
    const { pipe, socket } = setUp();
    const payload = Buffer.alloc(UNCOPIED_FROM_BYTES, 5);
    expect(socket.sendBinary(payload)).toBe(UNCOPIED_FROM_BYTES + 10);
    expect(pipe.frames()).toEqual([{ opcode: Opcode.binary, payload }]);
  });

  test("what does not fit into the buffer is dropped, until the peer reads again", () => {
    const { pipe, socket, heard } = setUp();
    pipe.stuck = true;
    expect(socket.sendText("x".repeat(BUFFER_BYTES_MAX + 1))).toBe(BUFFER_BYTES_MAX + 5);
    expect(socket.getBufferedAmount()).toBe(BUFFER_BYTES_MAX + 5);
    expect(socket.sendText("y")).toBe(0);
    expect(socket.sendBinary(Buffer.from("y"))).toBe(0);
    expect(pipe.writes.length).toBe(1);
    pipe.bufferedBytes = 0;
    socket.drained();
    expect(heard.drains).toBe(1);
    expect(socket.sendText("z")).toBe(3);
    expect(socket.isOpen).toBe(true);
  });
});

describe("pings", () => {
  test("are answered with what they said; pongs are ignored", () => {
    const { pipe, socket, heard, ping } = setUp();
    ping("one");
    socket.received(clientFrame({ opcode: Opcode.pong, payload: "unasked" }));
    expect(pipe.frames()).toEqual([{ opcode: Opcode.pong, payload: Buffer.from("one") }]);
    expect(heard.messages).toEqual([]);
  });

  test("a bounded number of answers waits; of the rest the last is answered later", () => {
    const { pipe, socket, ping } = setUp();
    pipe.stuck = true;
    pipe.bufferedBytes = 1;
    for (let count = 1; count <= PONGS_WAITING_MAX + 50; count++) ping(`${count}`);
    expect(pipe.writes.length).toBe(PONGS_WAITING_MAX);
    pipe.bufferedBytes = 0;
    socket.drained();
    expect(pipe.frames().at(-1)?.payload.toString()).toBe(`${PONGS_WAITING_MAX + 50}`);
    expect(pipe.writes.length).toBe(PONGS_WAITING_MAX + 1);
  });
});

describe("closing", () => {
  test("by the peer: its code is answered and reported, once", () => {
    const { pipe, clock, socket, heard, sayClose, say } = setUp();
    sayClose(4001, "enough");
    expect(socket.isOpen).toBe(false);
    expect(pipe.frames()).toEqual([{ opcode: Opcode.close, payload: closePayload(4001) }]);
    expect(pipe.calls).toEqual(["end"]);
    say("too late");
    expect(socket.sendText("too late")).toBe(0);
    socket.close(1000);
    socket.disconnected();
    clock.advance(CLOSE_GRACE_MS);
    socket.terminate();
    expect(heard).toMatchObject({ messages: [], closes: [[4001, "enough"]] });
    expect(pipe.calls).toEqual(["end"]);
    expect(pipe.writes.length).toBe(1);
  });

  test("by the peer, without a code", () => {
    const { pipe, socket, heard } = setUp();
    socket.received(clientFrame({ opcode: Opcode.close }));
    expect(pipe.frames()).toEqual([{ opcode: Opcode.close, payload: Buffer.alloc(0) }]);
    expect(heard.closes).toEqual([[1005, ""]]);
  });

  test("by this side: messages on the way are dropped, the peer's code is reported", () => {
    const { pipe, socket, heard, say, sayClose } = setUp();
    socket.close(1013, "busy");
    say("crossed");
    expect(heard).toMatchObject({ messages: [], closes: [] });
    expect(pipe.calls).toEqual([]);
    sayClose(1013, "fine");
    expect(pipe.frames()).toEqual([{ opcode: Opcode.close, payload: closePayload(1013, "busy") }]);
    expect(pipe.calls).toEqual(["end"]);
    expect(heard.closes).toEqual([[1013, "fine"]]);
  });

  test("a peer that does not answer is cut off", () => {
    const { pipe, clock, socket, heard } = setUp();
    socket.close();
    clock.advance(CLOSE_GRACE_MS - 1);
    expect(pipe.calls).toEqual([]);
    clock.advance(1);
    expect(pipe.calls).toEqual(["terminate"]);
    expect(heard.closes).toEqual([[1006, ""]]);
  });

  test("a peer that does not go after both have said goodbye is cut off", () => {
    const { pipe, clock, heard, sayClose } = setUp();
    sayClose(1000);
    clock.advance(CLOSE_GRACE_MS);
    expect(pipe.calls).toEqual(["end", "terminate"]);
    expect(heard.closes).toEqual([[1000, ""]]);
  });

  test("a connection that vanishes, or is terminated, is 1006, once", () => {
    for (const end of ["disconnected", "terminate"] as const) {
      const { socket, heard, say } = setUp();
      socket[end]();
      socket[end]();
      socket.disconnected();
      say("too late");
      expect(heard).toMatchObject({ messages: [], closes: [[1006, ""]] });
      expect(socket.getBufferedAmount()).toBe(0);
    }
  });

  test("a pipe that notices the end while it is written to", () => {
    for (const act of [
      (socket: Socket) => socket.close(1001),
      (socket: Socket) => socket.received(clientFrame({ opcode: Opcode.close, payload: closePayload(1000) })),
      (socket: Socket) => socket.received(Buffer.from([0xff])),
      (socket: Socket) => socket.sendText("x"),
    ]) {
      const { pipe, socket, heard, clock } = setUp();
      pipe.write = () => socket.disconnected();
      act(socket);
      clock.advance(CLOSE_GRACE_MS);
      expect(heard.closes.length).toBe(1);
      expect(socket.isOpen).toBe(false);
      expect(pipe.calls).not.toContain("terminate");
    }
  });

  test.each([
    ["a protocol error", Buffer.from([0xff]), 1002],
    ["a text that is not UTF-8", clientFrame({ opcode: Opcode.text, payload: Buffer.from([0xff]) }), 1007],
    ["a message over the limit", clientFrame({ opcode: Opcode.text, payload: "x".repeat(1_001) }), 1009],
    [
      "a close code that may not be sent",
      clientFrame({ opcode: Opcode.close, payload: closePayload(1006) }),
      1002,
    ],
    [
      "a close reason that is not UTF-8",
      clientFrame({ opcode: Opcode.close, payload: closePayload(1000, Buffer.from([0xc0])) }),
      1007,
    ],
  ])("%s ends the connection", (_, bytes, code) => {
    const { pipe, clock, socket, heard, say } = setUp();
    socket.received(bytes);
    say("ignored");
    const [farewell] = pipe.frames();
    expect(farewell?.opcode).toBe(Opcode.close);
    expect(farewell?.payload.readUInt16BE(0)).toBe(code);
    expect(heard).toMatchObject({ messages: [], closes: [[code, expect.any(String)]] });
    clock.advance(CLOSE_GRACE_MS);
    expect(pipe.calls).toEqual(["end", "terminate"]);
  });
});

describe("handlers", () => {
  test("one that throws, at once or later, is reported and the connection goes on", async () => {
    const { socket, heard, say } = setUp((_, message) => {
      if (message === "throw") throw new Error("thrown");
      return message === "reject" ? Promise.reject(new Error("rejected")) : undefined;
    });
    say("throw");
    say("reject");
    say("fine");
    await Promise.resolve();
    expect(heard.messages).toEqual(["throw", "reject", "fine"]);
    expect(heard.errors.map(String)).toEqual(["Error: thrown", "Error: rejected"]);
    expect(heard.opens).toBe(1);
    expect(socket.isOpen).toBe(true);
  });

  test("one that throws while closing does not keep the connection", () => {
    const { pipe, clock, socket, heard, sayClose } = setUp();
    heard.closes.push = () => {
      throw new Error("thrown");
    };
    sayClose(1000);
    clock.advance(CLOSE_GRACE_MS);
    expect(heard.errors.map(String)).toEqual(["Error: thrown"]);
    expect(pipe.calls).toEqual(["end", "terminate"]);
    expect(socket.isOpen).toBe(false);
  });

  test("one that closes or terminates hears nothing more of the same read", () => {
    for (const end of ["close", "terminate"] as const) {
      const { socket, heard } = setUp((socket) => socket[end]());
      const frame = clientFrame({ opcode: Opcode.text, payload: "again" });
      socket.received(Buffer.concat([frame, frame]));
      expect(heard.messages).toEqual(["again"]);
    }
  });
});
