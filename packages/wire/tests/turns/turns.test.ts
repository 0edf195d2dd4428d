import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { systemClock } from "../../src/clock.ts";
import { arrived, departed, type Recipient } from "../../src/turns/inbox.ts";
import { beforeSending, Outbox } from "../../src/turns/outbox.ts";

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const bytes = (text: string) => Buffer.from(text);

describe("the inbox", () => {
  /** Writes down what it hears, in one list with the others. */
  const listener = (name: string, heard: string[]): Recipient => ({
    received(what) {
      heard.push(`${name}:${what}`);
      if (what.toString() === "boom") throw new Error("boom");
    },
    disconnected: (error) => void heard.push(`${name} gone${error ? ` ${error.message}` : ""}`),
    broke: (error) => void heard.push(`${name} broke ${(error as Error).message}`),
  });

  test("hands over after the turn, in the order of arrival, and an end never before the last bytes", async () => {
    const heard: string[] = [];
    const [a, b] = [listener("a", heard), listener("b", heard)];
    arrived(a, bytes("1"));
    arrived(b, bytes("2"));
    arrived(a, bytes("3"));
    departed(a, null);
    departed(b, new Error("reset"));
    expect(heard).toEqual([]);
    await turn();
    expect(heard).toEqual(["a:1", "b:2", "a:3", "a gone", "b gone reset"]);
  });

  test("one that throws does not take the others' bytes with it", async () => {
    const heard: string[] = [];
    const [a, b] = [listener("a", heard), listener("b", heard)];
    arrived(a, bytes("boom"));
    arrived(b, bytes("fine"));
    await turn();
    expect(heard).toEqual(["a:boom", "a broke boom", "b:fine"]);
  });

  test("what arrives while it hands over comes with the next turn", async () => {
    const heard: string[] = [];
    const late = listener("late", heard);
    const early: Recipient = { ...late, received: () => arrived(late, bytes("x")) };
    arrived(early, bytes("1"));
    await turn();
    await turn();
    expect(heard).toEqual(["late:x"]);
  });

  test("the clock stands still for those who are handed what arrived in one turn, and goes on after it", async () => {
    const times: number[][] = [];
    const slow: Recipient = {
      received() {
        times.push([systemClock.now(), systemClock.elapsed()]);
        Bun.sleepSync(3);
      },
      disconnected: () => {},
      broke: () => {},
    };
    for (let i = 0; i < 3; i++) arrived(slow, bytes("x"));
    await turn();
    expect(times[1]).toEqual(times[0]!);
    expect(times[2]).toEqual(times[0]!);
    expect(systemClock.now()).toBeGreaterThanOrEqual(times[0]![0]! + 8);
    expect(systemClock.elapsed()).toBeGreaterThan(times[0]![1]! + 8);
  });

  test("the clock goes on even if a recipient fails at its own failure", () => {
    const fail = () => {
      throw new Error("boom");
    };
    const broken: Recipient = { received: fail, disconnected: () => {}, broke: fail };
    expect(() => arrived(broken, Buffer.alloc(2 * 1024 * 1024))).toThrow("boom");
    const beforeMs = systemClock.elapsed();
    Bun.sleepSync(2);
    expect(systemClock.elapsed()).toBeGreaterThan(beforeMs);
  });

  test("does not gather without end: beyond a megabyte it hands over at once", () => {
    let count = 0;
    const big: Recipient = { received: () => count++, disconnected: () => {}, broke: () => {} };
    const piece = Buffer.alloc(512 * 1024);
    for (let i = 0; i < 3; i++) arrived(big, piece);
    expect(count).toBe(3);
  });
});

/** A socket that takes as much as it is told to, and remembers it. */
class FakeSocket {
  readonly writes: string[] = [];
  capacity = Number.POSITIVE_INFINITY;
  onWrite: (() => void) | null = null;
  data = { drained() {} };

  write(data: unknown, offset = 0, length?: number): number {
    const all = data as Uint8Array;
    const whole = Buffer.from(all.subarray(offset, length === undefined ? undefined : offset + length));
    const taken = Math.min(whole.length, this.capacity);
    this.capacity -= taken;
    if (taken > 0) this.writes.push(whole.subarray(0, taken).toString("latin1"));
    this.onWrite?.();
    return taken;
  }
  get text(): string {
    return this.writes.join("");
  }
}

const outboxOn = (socket: FakeSocket) => new Outbox(socket as never);

describe("the outbox", () => {
  test("hands over a megabyte of a large message in a turn, and the rest in the next ones", async () => {
    const socket = new FakeSocket();
    const outbox = outboxOn(socket);
    socket.data = outbox;
    const megabyte = 1024 * 1024;
    const message = Buffer.alloc(2.5 * megabyte, "x");
    outbox.send(message);
    const sent = [socket.text.length];
    for (let i = 0; i < 3; i++) {
      await turn();
      sent.push(socket.text.length);
    }
    expect(sent).toEqual([megabyte, 2 * megabyte, 2.5 * megabyte, 2.5 * megabyte]);
    expect(outbox.waitingBytes).toBe(0);
  });

  test("sends after the turn, a connection's consecutive messages in one write", async () => {
    const [one, two] = [new FakeSocket(), new FakeSocket()];
    const [first, second] = [outboxOn(one), outboxOn(two)];
    first.sendMessage("HEAD ", "bödy");
    first.send(bytes("!"));
    second.sendMessage("OTHER ", bytes("x"));
    expect([one.writes, two.writes]).toEqual([[], []]);
    await turn();
    expect(one.writes).toEqual([Buffer.from("HEAD bödy!").toString("latin1")]);
    expect(two.writes).toEqual(["OTHER x"]);
  });

  test("frames chunks of every size so that they can be read again", async () => {
    for (const size of [1, 15, 16, 255, 256, 4095, 65_000, 70_000, 300_000]) {
      const socket = new FakeSocket();
      const outbox = outboxOn(socket);
      outbox.sendChunk("H", bytes("a".repeat(size)), false);
      outbox.sendChunk("", bytes(""), true);
      await turn();
      const hex = size.toString(16);
      const body = socket.text.slice(1 + hex.length + 2, -7);
      expect(socket.text.slice(0, 1 + hex.length + 2)).toBe(`H${hex}\r\n`);
      expect(body).toBe("a".repeat(size));
      expect(socket.text.slice(-7)).toBe("\r\n0\r\n\r\n");
    }
  });

  test("frames a text by its bytes, not by its characters", async () => {
    for (const text of ["a", "Grüße", "世界 😀", "\ud800", "世".repeat(21_000), "世".repeat(30_000)]) {
      const socket = new FakeSocket();
      outboxOn(socket).sendChunk("H", text, false);
      await turn();
      const expected = Buffer.from(text).toString("latin1");
      expect(socket.text).toBe(`H${expected.length.toString(16)}\r\n${expected}\r\n`);
    }
  });

  test("ends a stream in the same write as its last piece, and an empty one too", async () => {
    const socket = new FakeSocket();
    const outbox = outboxOn(socket);
    outbox.sendChunk("", bytes("ab"), true);
    await turn();
    outbox.sendChunk("H", bytes(""), true);
    await turn();
    expect(socket.writes).toEqual(["2\r\nab\r\n0\r\n\r\n", "H0\r\n\r\n"]);
  });

  test("a message from within a write comes after what was there before it", () => {
    const socket = new FakeSocket();
    const outbox = outboxOn(socket);
    const other = new FakeSocket();
    other.onWrite = () => {
      other.onWrite = null;
      outbox.sendMessage("late", "!");
    };
    outboxOn(other).send(bytes("x"));
    outbox.send(bytes("first "));
    Outbox.flush();
    expect(socket.text).toBe("first late!");
  });

  test("whatever is sent, in whatever sizes and however little the socket takes, arrives whole and in order", () => {
    const message = fc.record({ size: fc.integer({ min: 0, max: 90_000 }), to: fc.nat({ max: 2 }) });
    const step = fc.oneof(
      { weight: 4, arbitrary: message },
      { weight: 1, arbitrary: fc.constant("flush" as const) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 200_000 }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const sockets = [0, 1, 2].map(() => new FakeSocket());
        const outboxes = sockets.map(outboxOn);
        const expected = ["", "", ""];
        let letter = 0;
        for (const each of steps) {
          if (each === "flush") Outbox.flush();
          else if (typeof each === "number") {
            for (const [i, socket] of sockets.entries()) {
              socket.capacity = each;
              outboxes[i]!.drained();
            }
          } else {
            const text = String.fromCharCode(97 + (letter++ % 26)).repeat(each.size);
            expected[each.to] += text;
            outboxes[each.to]!.send(bytes(text));
          }
        }
        Outbox.flush();
        for (const [i, socket] of sockets.entries()) {
          socket.capacity = Number.POSITIVE_INFINITY;
          outboxes[i]!.drained();
          if (socket.text !== expected[i] || outboxes[i]!.waitingBytes !== 0) return false;
        }
        return true;
      }),
      { numRuns: 60 },
    );
  });
});

describe("what is to be done before anything is sent", () => {
  const socket = (name: string, seen: string[]) => ({
    data: { drained() {} },
    write(data: unknown, from = 0, length = (data as Uint8Array).length) {
      seen.push(`${name}:${Buffer.from((data as Uint8Array).subarray(from, from + length))}`.slice(0, 20));
      return length;
    },
  });

  test("is done once, before the messages of the turn, queued earlier or later", async () => {
    const seen: string[] = [];
    const outbox = new Outbox(socket("a", seen));
    outbox.send(bytes("1"));
    beforeSending(() => seen.push("written"));
    outbox.send(bytes("2"));
    expect(seen).toEqual([]);
    await turn();
    expect(seen).toEqual(["written", "a:12"]);
    outbox.send(bytes("3"));
    await turn();
    expect(seen).toEqual(["written", "a:12", "a:3"]);
  });

  test("is done before a large message, which is not queued", () => {
    const seen: string[] = [];
    beforeSending(() => seen.push("written"));
    new Outbox(socket("a", seen)).send(Buffer.alloc(100_000, "x"));
    expect(seen).toEqual(["written", `a:${"x".repeat(18)}`]);
  });

  test("is done at the end of the turn when nothing is sent", async () => {
    const seen: string[] = [];
    beforeSending(() => seen.push("written"));
    await turn();
    expect(seen).toEqual(["written"]);
  });
});
