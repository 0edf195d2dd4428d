import { afterEach, expect, spyOn, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import { beforeSending } from "@model-gateway/wire/turns";
import type { Socket } from "bun";
import { NO_LIMIT, REFUSED } from "../../src/bus/contract.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import { Channel, FRAME_BYTES_MAX } from "../../src/bus/workers/channel.ts";
import { WorkerHub } from "../../src/bus/workers/hub.ts";
import { WorkerLink } from "../../src/bus/workers/link.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { createLog, silentLog } from "../../src/kernel/log.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function startHub(clock = systemClock) {
  const dir = mkdtempSync(join(tmpdir(), "workers-"));
  const path = join(dir, "hub.sock");
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return { path, ...listen(path, clock) };
}

function listen(path: string, clock = systemClock) {
  const lines: string[] = [];
  const log = createLog({ level: "info", format: "json", write: (line) => lines.push(line) });
  const hub = new WorkerHub({ path, clock, log });
  cleanups.push(() => hub.close());
  return { hub, lines };
}

async function joined(path: string): Promise<Shared> {
  const shared = await openBus({
    redisUrl: null,
    service: "",
    supervisorPath: path,
    clock: systemClock,
    ids: randomIds,
    log: silentLog,
  });
  cleanups.push(() => shared.close());
  return shared;
}

test("a message does not leave before what has to be done before answers are sent", async () => {
  const seen: string[] = [];
  const socket = { write: (frame: Uint8Array) => seen.push("sent") && frame.length, terminate: () => {} };
  const channel = new Channel<string, string>({
    socket: socket as never,
    receive: () => {},
    dropped: () => {},
    broke: () => {},
  });
  channel.send("an answer begins");
  beforeSending(() => seen.push("written"));
  channel.send("and ends");
  await new Promise((resolve) => setImmediate(resolve));
  expect(seen).toEqual(["written", "sent"]);
});

const room = (limit: number) => ({
  purses: [
    {
      name: "pool",
      limit: { money: limit, tokens: NO_LIMIT },
      spent: { money: 0, tokens: 0, version: 0 },
      unitsBeyond: null,
    },
  ],
  alsoOn: [],
  fixed: { money: 1, tokens: 0 },
  perUnit: { money: 0, tokens: 0 },
  unitsMin: 0,
  unitsMax: 0,
});
/** Enters and holds one of the pool. */
const holdsOne = (instance: string) => [
  ["enter", 1, instance],
  ["ask", 2, instance, [{ change: [{ name: "pool", amount: { money: 1, tokens: 0 } }] }]],
];
/** The milliseconds to wait; 0 when it was counted. */
const hit = async ({ counter }: Shared, max: number): Promise<number> =>
  (await counter.hit([{ key: "key", max, windowMs: 60_000 }]))?.waitMs ?? 0;
const holdOne = async ({ counter }: Shared, limit = 2) => (await counter.grant(room(limit))) !== REFUSED;
const freeOne = ({ counter }: Shared) => counter.change([{ name: "pool", amount: { money: -1, tokens: 0 } }]);
/** Whether nothing more fits; asks for it and gives it back. */
async function isFull(shared: Shared): Promise<boolean> {
  const granted = await holdOne(shared);
  if (granted) freeOne(shared);
  return !granted;
}

test("only the service's own account can open the socket", () => {
  const { path } = startHub();
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("a message reaches its own and every other worker exactly once, in order, and ends with the subscription", async () => {
  const { path } = startHub();
  const workers = await Promise.all([1, 2, 3].map(() => joined(path)));
  const heard: string[][] = [[], [], []];
  const subscriptions = workers.map(({ bus }, i) => bus.subscribe("topic", (text) => heard[i]!.push(text)));
  await Promise.all(subscriptions.map(({ ready }) => ready));
  const expected = Array.from({ length: 200 }, (_, n) => `ä "${n}"\n`);
  for (const text of expected) workers[0]!.bus.publish("topic", text);
  await until("everything arrived", () => heard.every((texts) => texts.length >= 200));
  expect(heard).toEqual([expected, expected, expected]);
  subscriptions[2]!();
  workers[1]!.bus.publish("topic", "after");
  await until("the other heard it", () => heard[0]!.length === 201);
  // One more round trip: whatever was sent to the third before is there now.
  await workers[2]!.bus.subscribe("another", () => {}).ready;
  expect([heard[1]!.length, heard[2]!.length]).toEqual([201, 200]);
});

test("limits and holds are exact over workers that ask at the same time", async () => {
  const { path } = startHub();
  const workers = await Promise.all([1, 2, 3].map(() => joined(path)));
  const of = (i: number) => workers[i % 3]!;
  const waits = await Promise.all(Array.from({ length: 1_000 }, (_, i) => hit(of(i), 10)));
  expect(waits.filter((waitMs) => waitMs === 0)).toHaveLength(10);
  expect(Math.max(...waits)).toBeLessThanOrEqual(60_000);
  const granted = await Promise.all(Array.from({ length: 1_000 }, (_, i) => holdOne(of(i), 10)));
  expect(granted.filter(Boolean)).toHaveLength(10);
});

test("what one turn of the event loop asks goes in one message, and what comes meanwhile in the next", async () => {
  const { path } = startHub();
  const worker = await joined(path);
  const asks = spyOn(WorkerLink.prototype, "ask");
  cleanups.push(() => asks.mockRestore());
  const ask = () =>
    Promise.all(Array.from({ length: 50 }, () => Promise.all([hit(worker, 100), holdOne(worker, 100)])));
  const first = ask();
  await new Promise((resolve) => setImmediate(resolve));
  await Promise.all([first, ask(), ask()]);
  expect(asks.mock.calls.map(([name]) => name)).toEqual(["ask", "ask"]);
});

test("the holds of a worker that died stay for 15 s; a clean stop frees them at once", async () => {
  const clock = new ManualClock();
  const { path } = startHub(clock);
  const [alive, other] = (await Promise.all([1, 2].map(() => joined(path)))) as [Shared, Shared];
  expect([await holdOne(alive), await holdOne(other), await holdOne(alive)]).toEqual([true, true, false]);
  await other.close();
  expect(await holdOne(alive)).toBe(true);
  freeOne(alive);
  // The connection is gone without a word, as after a kill.
  const dying = await rawWorker(path);
  dying.say(...holdsOne("dying"));
  await until("it counts", () => isFull(alive));
  dying.socket.terminate();
  await alive.bus.subscribe("a round trip", () => {}).ready;
  clock.advance(14_999);
  expect(await holdOne(alive)).toBe(false);
  clock.advance(1);
  expect([await holdOne(alive), await holdOne(alive)]).toEqual([true, false]);
});

test("without the supervisor each worker counts for itself; a new one is told everything, and caches are cleared", async () => {
  const { path, hub } = startHub();
  const [a, b] = await Promise.all([1, 2].map(() => joined(path)));
  const heard: string[] = [];
  let gaps = 0;
  b!.bus.onGap(() => gaps++);
  await b!.bus.subscribe("topic", (text) => heard.push(text)).ready;
  expect([await holdOne(a!), await holdOne(b!)]).toEqual([true, true]);
  freeOne(b!);
  hub.close();
  await until("both noticed", () => !a!.bus.connected && !b!.bus.connected);
  // Neither knows of the other's, and each has one half of the two that there is room for.
  expect([await holdOne(a!), await holdOne(b!), await holdOne(b!)]).toEqual([false, true, false]);
  expect(await hit(b!, 1)).toBe(0);
  expect(await hit(b!, 1)).toBeGreaterThan(0);
  listen(path);
  await until("both are back", () => a!.bus.connected && b!.bus.connected && gaps === 1);
  expect([await holdOne(a!), await holdOne(b!)]).toEqual([false, false]);
  freeOne(b!);
  // Where little is left, what comes free is told within milliseconds.
  await until("what was freed can be had", () => holdOne(b!));
  a!.bus.publish("topic", "again");
  await until("messages arrive again", () => heard.includes("again"));
});

/** A peer that can say anything. */
async function rawWorker(path: string) {
  let isClosed = false;
  const socket: Socket<undefined> = await Bun.connect({
    unix: path,
    socket: {
      data() {},
      close() {
        isClosed = true;
      },
    },
  });
  const write = (body: Buffer, bytes = body.length) => {
    const header = Buffer.alloc(4);
    header.writeUInt32BE(bytes);
    socket.write(Buffer.concat([header, body]));
  };
  return {
    socket,
    write,
    say: (...messages: unknown[]) => write(Buffer.from(JSON.stringify(messages))),
    isClosed: () => isClosed,
  };
}

test("what is not a frame, is too large or comes from nobody ends that connection only", async () => {
  const { path, lines } = startHub();
  const good = await joined(path);
  const bad: ((raw: Awaited<ReturnType<typeof rawWorker>>) => void)[] = [
    (raw) => raw.write(Buffer.from("not JSON")),
    (raw) => raw.write(Buffer.from("{}")),
    (raw) => raw.write(Buffer.from("x"), FRAME_BYTES_MAX + 1),
    (raw) => raw.say(["enter", 1, "2"], ["ask", 2, "2", null]),
    (raw) => raw.say(["leave", 1, null]),
  ];
  for (const send of bad) {
    const raw = await rawWorker(path);
    send(raw);
    await until("it is cut off", raw.isClosed);
  }
  expect(lines.filter((line) => line.includes("a worker's message failed"))).toHaveLength(bad.length);
  expect(await holdOne(good)).toBe(true);
  // A frame in single bytes is one all the same.
  const slow = await rawWorker(path);
  const body = Buffer.from(JSON.stringify(holdsOne("3")));
  const header = Buffer.alloc(4);
  header.writeUInt32BE(body.length);
  for (const byte of Buffer.concat([header, body])) slow.socket.write(Buffer.of(byte));
  await until("it counts", () => isFull(good));
});
