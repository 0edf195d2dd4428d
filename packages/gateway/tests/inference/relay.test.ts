import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { chunk, DONE } from "@model-gateway/testing/upstream.ts";
import type { Answer, PieceReader } from "../../src/backends/contract.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { CallWatch, CLIENT_LEFT, DEFAULT_DEADLINES } from "../../src/rooms/inference/call/deadlines.ts";
import { ChatMeter } from "../../src/rooms/inference/stream/chat-meter.ts";
import { Relay, StreamHold } from "../../src/rooms/inference/stream/relay.ts";
import { payer } from "../metering/support.ts";

function relaying() {
  const clock = new ManualClock();
  const watch = new CallWatch({
    clock,
    log: silentLog,
    deadlines: DEFAULT_DEADLINES,
    isInForce: async () => true,
  });
  const watched = watch.open(payer());
  let upstream!: PieceReader;
  const flow = { resume() {}, pause() {}, cancel() {}, leave() {} };
  const answer = {
    pipe: (reader: PieceReader) => {
      upstream = reader;
      return flow;
    },
  } as unknown as Answer;
  const admission = {
    outputTokensHeld: 1e6,
    lowered: false,
    sent() {},
    writtenTokens: () => 0,
    grow: async () => true,
    settle: () => null,
    givenUp() {},
    release() {},
  };
  const hold = new StreamHold(admission, { bound: { promptTokens: 1 }, isLimitSent: false });
  const relay = new Relay(answer, new ChatMeter({ keepUsage: false }), watched, hold);
  const say = (text: string) => {
    upstream.piece(Buffer.from(text));
    upstream.flush();
  };
  return { relay, watched, clock, say };
}

/** Takes one piece and then no more. */
const stuck = () => ({ write: () => false, end() {} });

describe("a client that does not read while the upstream comes to its end", () => {
  for (const [how, go] of [
    ["leaves", ({ watched }) => watched.abort(CLIENT_LEFT)],
    ["is waited for no longer", ({ clock }) => clock.advance(DEFAULT_DEADLINES.clientStallMs + 2_000)],
  ] as [string, (bench: ReturnType<typeof relaying>) => void][]) {
    test(`${how}: the answer is over`, async () => {
      const bench = relaying();
      const running = bench.relay.run(stuck());
      bench.say(chunk({ delta: { content: "a" } }));
      bench.say(chunk({ finish_reason: "stop" }) + DONE);
      go(bench);
      expect(await running).toEqual({ kind: "left" });
    });
  }

  test("leaves while the upstream is paused, and says nothing of its own end: the answer is over", async () => {
    const bench = relaying();
    const running = bench.relay.run(stuck());
    bench.say(chunk({ delta: { content: "a" } }));
    bench.watched.abort(CLIENT_LEFT);
    expect(await running).toEqual({ kind: "left" });
  });

  test("has left before its answer begins: it is over at once", async () => {
    const bench = relaying();
    bench.say(chunk({ delta: { content: "a" } }) + chunk({ finish_reason: "stop" }) + DONE);
    bench.watched.abort(CLIENT_LEFT);
    expect(await bench.relay.run(stuck())).toEqual({ kind: "left" });
  });
});

test("a pause of the whole process cuts no stream, and silence afterwards still ends one", () => {
  const bench = relaying();
  void bench.relay.run({ write: () => true, end() {} });
  bench.say(chunk({ delta: { content: "a" } }));
  bench.clock.jump(3 * 3_600_000);
  bench.clock.advance(DEFAULT_DEADLINES.idleMs - 5_000);
  expect(bench.watched.isAborted).toBe(false);
  bench.clock.advance(10_000);
  expect(bench.watched.isAborted).toBe(true);
});
