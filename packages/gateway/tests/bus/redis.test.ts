import { afterAll, describe, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRedis } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { beforeSending } from "@model-gateway/wire/turns";
import { z } from "zod";
import { REFUSED } from "../../src/bus/contract.ts";
import { BusEventHub } from "../../src/bus/event-hub.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import { BusRequests } from "../../src/bus/requests.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { defineNotification } from "../../src/kernel/method.ts";

const url = process.env.TEST_REDIS_URL;
const cleanups: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

async function instance(redisUrl: string, service = `test ${process.pid}`): Promise<Shared> {
  const opened = await openBus({ redisUrl, service, clock: systemClock, ids: randomIds, log: silentLog });
  cleanups.push(() => opened.bus.close());
  return opened;
}

/** One more of those that the pool has room for. */
async function holdOne({ counter }: Shared, pool = "pool", most = 2): Promise<boolean> {
  const limit = { money: most, tokens: 0 };
  const spent = { money: 0, tokens: 0, version: 0 };
  const granted = await counter.grant({
    purses: [{ name: pool, limit, spent, unitsBeyond: null }],
    alsoOn: [],
    fixed: { money: 1, tokens: 0 },
    perUnit: { money: 0, tokens: 0 },
    unitsMin: 0,
    unitsMax: 0,
  });
  return granted !== REFUSED;
}

/** The milliseconds to wait; 0 when it was counted. */
const hit = async ({ counter }: Shared, key: string, max: number, windowMs = 60_000): Promise<number> =>
  (await counter.hit([{ key, max, windowMs }]))?.waitMs ?? 0;

const ticked = defineNotification({
  name: "test.ticked",
  summary: "Counts",
  params: z.object({ i: z.int() }),
});

describe.if(url !== undefined)("the bus over Redis", () => {
  test("a message does not leave before what has to be done before answers are sent", async () => {
    const { bus } = await instance(url!);
    const seen: string[] = [];
    beforeSending(() => seen.push("written"));
    bus.publish("topic", "the end of an answer");
    expect(seen).toEqual(["written"]);
  });

  test("a message reaches its own and every other instance exactly once, in order", async () => {
    const [a, b] = [await instance(url!), await instance(url!)];
    const heard: string[] = [];
    const subscriptions = [a, b].map(({ bus }, i) =>
      bus.subscribe("topic", (message) => heard.push(`${i}:${message}`)),
    );
    await Promise.all(subscriptions.map(({ ready }) => ready));
    for (let i = 0; i < 20; i++) a.bus.publish("topic", `m ${i}`);
    await until("every message arrived", () => heard.length >= 40);
    for (const i of [0, 1]) {
      expect(heard.filter((text) => text.startsWith(`${i}:`))).toEqual(
        Array.from({ length: 20 }, (_, n) => `${i}:m ${n}`),
      );
    }
    subscriptions[1]!();
    a.bus.publish("topic", "after");
    a.bus.publish("other", "x");
    await until("the message after the others arrived", () => heard.includes("0:after"));
    expect(heard).not.toContain("1:after");
  });

  test("two services that use one Redis neither hear each other nor count together", async () => {
    const [a, b] = [await instance(url!, "one"), await instance(url!, "another")];
    const heard: string[] = [];
    for (const { bus } of [a, b]) await bus.subscribe("topic", (message) => heard.push(message)).ready;
    a.bus.publish("topic", "of one");
    b.bus.publish("topic", "of another");
    expect(await hit(a, "address", 1)).toBe(0);
    expect(await hit(b, "address", 1)).toBe(0);
    expect(await hit(b, "address", 1)).toBeGreaterThan(0);
    expect([await holdOne(a, "mine", 1), await holdOne(b, "mine", 1)]).toEqual([true, true]);
    expect(heard).toEqual(["of one", "of another"]);
  });

  test("a notification emitted on one instance waits for and reaches the subscriber on another", async () => {
    const [a, b] = [await instance(url!), await instance(url!)];
    const [hubA, hubB] = [a, b].map(({ bus }) => new BusEventHub(bus, systemClock, randomIds)) as [
      BusEventHub,
      BusEventHub,
    ];
    await Bun.sleep(50);
    const received: string[] = [];
    const stream = hubA.open({ userId: "user-1" });
    const reader = hubB.subscribe({
      sessionId: stream.sessionId,
      userId: "user-1",
      subscriber: { deliver: (json) => received.push(json) > 0, closed() {} },
    });
    reader!.resume();
    await stream.whenHeard();
    for (let i = 0; i < 10; i++) stream.emit(ticked, { i });
    await until("every message arrived", () => received.length === 10);
    expect(received.map((json) => JSON.parse(json).params.i)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // The owner is known on the other instance too.
    const stranger = hubB.subscribe({
      sessionId: stream.sessionId,
      userId: "user-2",
      subscriber: { deliver: () => true, closed() {} },
    });
    expect(stranger).toBeNull();
  });

  test("what a subscriber missed on one instance it gets from another, once and in order", async () => {
    const instances = await Promise.all([1, 2, 3].map(() => instance(url!)));
    const [hubA, hubB, hubC] = instances.map(({ bus }) => {
      const requests = new BusRequests({ bus, clock: systemClock, ids: randomIds });
      return new BusEventHub(bus, systemClock, randomIds, requests);
    }) as [BusEventHub, BusEventHub, BusEventHub];
    await Promise.all(instances.map(({ bus }) => bus.ready()));
    const received: { i: number; id: string }[] = [];
    const subscriber = {
      deliver: (json: string, id: string) => received.push({ i: JSON.parse(json).params.i, id }) > 0,
      closed() {},
    };
    const stream = hubA.open({ userId: "user-1" });
    const { sessionId } = stream;
    let sent = 0;
    const emit = (count: number) => {
      for (const end = sent + count; sent < end; sent++) stream.emit(ticked, { i: sent });
    };
    const first = hubB.subscribe({ sessionId, userId: "user-1", subscriber })!;
    first.resume();
    await stream.whenHeard();
    emit(10);
    await until("the first ten", () => received.length === 10);
    first.leave();
    emit(100);
    const second = hubC.subscribe({ sessionId, userId: "user-1", lastId: received.at(-1)!.id, subscriber })!;
    second.resume();
    // Some of these are heard both by the one that kept them and by the one that asks for them.
    for (let burst = 0; burst < 20; burst++) {
      emit(5);
      await Bun.sleep(1);
    }
    await until("everything", () => received.length >= sent);
    expect(received.map(({ i }) => i)).toEqual(Array.from({ length: sent }, (_, i) => i));
    // A stranger is told nothing of it.
    expect(hubC.subscribe({ sessionId, userId: "user-2", lastId: "0", subscriber })).toBeNull();
  });

  test("limits are exact over instances", async () => {
    const instances = await Promise.all([1, 2, 3].map(() => instance(url!)));
    const key = crypto.randomUUID();
    const waits = await Promise.all(Array.from({ length: 90 }, (_, i) => hit(instances[i % 3]!, key, 10)));
    expect(waits.filter((waitMs) => waitMs === 0)).toHaveLength(10);
    expect(Math.max(...waits)).toBeLessThanOrEqual(60_000);
    expect(await hit(instances[0]!, `${key}-0`, 0, 1_000)).toBe(1_000);
  });

  test("a pool for ten admits ten of a thousand over three instances, 100 of 100 times", async () => {
    const instances = await Promise.all([1, 2, 3].map(() => instance(url!)));
    for (let round = 0; round < 100; round++) {
      const pool = crypto.randomUUID();
      const held = Array.from({ length: 1_000 }, (_, i) => holdOne(instances[i % 3]!, pool, 10));
      expect((await Promise.all(held)).filter(Boolean)).toHaveLength(10);
    }
  });

  test("a limit opens again when its window has passed", async () => {
    const one = await instance(url!);
    const key = crypto.randomUUID();
    expect(await hit(one, key, 1, 50)).toBe(0);
    expect(await hit(one, key, 1, 50)).toBeGreaterThan(0);
    await until("the window is over", async () => (await hit(one, key, 1, 50)) === 0);
  });
});

describe.if(url !== undefined)("Redis goes away and comes back", () => {
  let server: ChildProcess;
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  const start = () => {
    server = spawn(
      "redis-server",
      ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
      { stdio: "ignore" },
    );
  };
  afterAll(() => {
    server?.kill("SIGKILL");
  });

  test("local delivery and limits go on; afterwards caches are forgotten and messages flow again", async () => {
    start();
    await until("the port accepts connections", () => fetchable(port));
    const redisUrl = `redis://127.0.0.1:${port}`;
    const [a, b] = [await instance(redisUrl), await instance(redisUrl)];
    const heard: string[] = [];
    await a.bus.subscribe("topic", (message) => heard.push(`a:${message}`)).ready;
    await b.bus.subscribe("topic", (message) => heard.push(`b:${message}`)).ready;
    let gaps = 0;
    a.bus.onGap(() => gaps++);
    server.kill("SIGKILL");
    await until("both noticed the outage", () => !a.bus.connected && !b.bus.connected);
    a.bus.publish("topic", "alone");
    expect(heard).toEqual(["a:alone"]);
    const waits = await Promise.all([1, 2, 3].map(() => hit(a, "k", 2)));
    expect(waits.filter((waitMs) => waitMs === 0)).toHaveLength(2);
    start();
    await until("both are connected again", () => a.bus.connected && b.bus.connected && gaps === 1);
    await until("messages arrive again", () => {
      a.bus.publish("topic", "again");
      return heard.includes("b:again");
    });
    expect(await hit(a, "k", 2)).toBe(0);
  });
});

describe.if(url !== undefined)("a Redis that is emptied", () => {
  test("is told again by every instance, before any of them promises the same points twice", async () => {
    const redis = await startRedis(tmpdir());
    cleanups.push(() => redis.child.kill("SIGKILL"));
    const [a, b] = [await instance(redis.url), await instance(redis.url)];
    await Promise.all([a.bus.ready(), b.bus.ready()]);
    expect([await holdOne(a), await holdOne(b)]).toEqual([true, true]);
    const client = new Bun.RedisClient(redis.url);
    cleanups.push(() => client.close());
    for (const asking of [a, b, a]) {
      await client.send("FLUSHALL", []);
      expect(await holdOne(asking)).toBe(false);
    }
    b.counter.change([{ name: "pool", amount: { money: -1, tokens: 0 } }]);
    await until("the hold is granted", () => holdOne(a));
    expect([await holdOne(a), await holdOne(b)]).toEqual([false, false]);
  });
});

describe.if(url !== undefined)("a Redis that hangs", () => {
  test("is waited for, then each has its share of a pool for itself, and it is shared again when it answers", async () => {
    const redis = await startRedis(tmpdir());
    cleanups.push(() => redis.child.kill("SIGKILL"));
    const [a, b] = [await instance(redis.url), await instance(redis.url)];
    expect([await holdOne(a, "slow"), await holdOne(b)]).toEqual([true, true]);
    process.kill(redis.child.pid!, "SIGSTOP");
    const held = [a, b, a, b].map((each) => holdOne(each, "slow"));
    await until("heartbeats are missed", () => !a.bus.connected && !b.bus.connected);
    process.kill(redis.child.pid!, "SIGCONT");
    expect((await Promise.all(held)).filter(Boolean)).toHaveLength(1);
    await until("heartbeats come again", () => a.bus.connected && b.bus.connected);
    process.kill(redis.child.pid!, "SIGSTOP");
    expect(await Promise.all([hit(a, "k", 1), holdOne(b)])).toEqual([0, false]);
    expect(await hit(a, "k", 1)).toBeGreaterThan(0);
    expect([await holdOne(a), await holdOne(a), await holdOne(b)]).toEqual([true, false, false]);
    process.kill(redis.child.pid!, "SIGCONT");
    await until("the other one's hold counts", async () => {
      const granted = await holdOne(b);
      if (granted) b.counter.change([{ name: "pool", amount: { money: -1, tokens: 0 } }]);
      return !granted;
    });
  });

  test("counts as away, so that nobody trusts a cache that it would tell of changes", async () => {
    const redis = await startRedis(tmpdir());
    cleanups.push(() => redis.child.kill("SIGKILL"));
    const [a, b] = [await instance(redis.url), await instance(redis.url)];
    const heard: string[] = [];
    await b.bus.subscribe("topic", (message) => heard.push(message)).ready;
    process.kill(redis.child.pid!, "SIGSTOP");
    await until("both noticed the outage", () => !a.bus.connected && !b.bus.connected);
    process.kill(redis.child.pid!, "SIGCONT");
    await until("both are connected again", () => a.bus.connected && b.bus.connected);
    a.bus.publish("topic", "after");
    await until("messages arrive again", () => heard.includes("after"));
  });
});

async function fetchable(port: number): Promise<boolean> {
  try {
    const socket = await Bun.connect({ hostname: "127.0.0.1", port, socket: { data() {} } });
    socket.end();
    return true;
  } catch {
    return false;
  }
}

describe.if(url !== undefined && process.env.TEST_POSTGRES_URL !== undefined)(
  "two instances of the service",
  () => {
    test("a key revoked on one is refused on the other within 100 ms, and logins are limited over both", async () => {
      const { options, drop } = await freshDatabase("postgres");
      const config = {
        databaseUrl: options.databaseUrl,
        redisUrl: url!,
        jwtSecret: "a secret that both instances share, long",
      };
      const [a, b] = (await Promise.all([bootGateway({ config }), bootGateway({ config })])) as [
        TestGateway,
        TestGateway,
      ];
      try {
        const token = await a.signIn("ada");
        const { key, id } = await a.rpc("keys.create", { name: "k" }, token);
        expect(await b.app.rooms.keys.authenticate(key)).toMatchObject({ keyId: id });
        expect((await b.rpc("auth.me", {}, token)).email).toBe("ada@example.com");
        await a.rpc("keys.revoke", { key_id: id }, token);
        await until(
          "the other instance refuses the key",
          async () => (await b.app.rooms.keys.authenticate(key)) === null,
          100,
        );
        const email = `${crypto.randomUUID()}@example.com`;
        const codes: number[] = [];
        for (let i = 0; i < 6; i++)
          codes.push(
            (await [a, b][i % 2]!.call("auth.login", { email, password: "wrong password" })).error.code,
          );
        expect(codes).toEqual([-32005, -32005, -32005, -32005, -32005, -32000]);
      } finally {
        await a.stop();
        await b.stop();
        await drop();
      }
    });
  },
);
