/** Notifications arrive, however fast they come and however often their reader's connection breaks. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { deploymentOfRun, inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { politeHandler, wholeStream } from "@model-gateway/testing/upstream.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { z } from "zod";
import { BusEventHub } from "../../src/bus/event-hub.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { defineNotification } from "../../src/kernel/method.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const padded = defineNotification({
  name: "test.padded",
  summary: "For this test",
  params: z.object({ i: z.number(), pad: z.string() }),
});

let bench: InferenceBench;
let film: VideoUpstream;
beforeAll(async () => {
  bench = await bootInference();
  film = startMinimax();
  await bench.addBackend({ type: "minimax", name: "film", url: film.url, api_key: "k", models: ["film-1"] });
});
afterAll(async () => {
  film.stop();
  await bench.stop();
});
beforeEach(() => bench.upstream.answer(politeHandler));

interface Heard {
  id: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: notifications are looked into freely
  message: any;
}

/** One connection to a session; `heard` grows as it is read. */
class Listener {
  readonly heard: Heard[] = [];
  lastId: string | null = null;
  #isSubscribed = false;
  readonly #leave = new AbortController();
  done: Promise<void> = Promise.resolve();

  static async open(session: string, { headers = {}, query = "" } = {}): Promise<Listener> {
    const listener = new Listener();
    const response = await fetch(`${bench.url}/api/rpc/events?session=${session}${query}`, {
      headers,
      signal: listener.#leave.signal,
    });
    expect(response.status).toBe(200);
    listener.done = listener.#read(response).catch(() => {});
    await until("the subscription", () => listener.#isSubscribed);
    return listener;
  }

  async #read(response: Response): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const piece of response.body!) {
      const blocks = (rest + decoder.decode(piece, { stream: true })).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        if (block.startsWith(": subscribed")) this.#isSubscribed = true;
        const id = /^id: (.*)$/m.exec(block)?.[1] ?? null;
        const data = /^data: (.*)$/m.exec(block)?.[1];
        if (data !== undefined) this.heard.push({ id, message: JSON.parse(data) });
        if (id !== null) this.lastId = id;
      }
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: notifications are looked into freely
  get params(): any[] {
    return this.heard.map(({ message }) => message.params);
  }

  async leave(): Promise<void> {
    this.#leave.abort();
    await this.done;
  }
}

const say = (content: string, more: Record<string, unknown> = {}) =>
  bench.rpc(
    "chat.send",
    { model: "m", messages: [{ role: "user", content }], ...more },
    bench.token,
  ) as Promise<{ stream_id: string }>;

/** Pushes the answer of a call onto the session. */
const push = async (session: string, id: unknown) => {
  const answer = await fetch(`${bench.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-session-id": session },
    body: JSON.stringify({ jsonrpc: "2.0", id, method: "system.status" }),
  });
  expect(answer.status).toBe(200);
};

describe("a burst", () => {
  test("that has come before the subscriber reaches it whole: 3,000 tokens at once", async () => {
    const words = Array.from({ length: 3_000 }, (_, i) => `w${i} `);
    let isWritten = false;
    bench.upstream.answer(async (_, reply) => {
      const [first, ...rest] = wholeStream(words);
      reply.head(200, { "content-type": "text/event-stream" });
      // As much as the service takes before anyone listens; the rest follows when it is read.
      await reply.write(first + rest.splice(0, 1_000).join(""));
      isWritten = true;
      await reply.write(rest.join(""));
      await reply.end();
    });
    const { stream_id } = await say("go");
    await until("the upstream has sent", () => isWritten);
    // What was sent is read in the turns that these take.
    for (let i = 0; i < 5; i++) await fetch(`${bench.url}/healthz`);
    const listener = await Listener.open(stream_id);
    await until("the end", () => listener.params.at(-1)?.done === true);
    expect(listener.params.map(({ content }) => content).join("")).toBe(words.join(""));
    expect(listener.params.at(-1)).not.toHaveProperty("error");
    await listener.leave();
  });

  inOneProcess("a reader that reads nothing is cut off at a bounded number of bytes", async () => {
    const session = crypto.randomUUID();
    const socket = connect(bench.app.port, "127.0.0.1");
    const isOver = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    socket.on("error", () => {});
    socket.write(`GET /api/rpc/events?session=${session} HTTP/1.1\r\nhost: x\r\n\r\n`);
    await new Promise((resolve) => socket.once("data", resolve));
    socket.pause();
    const subscribers = async () => {
      const text = await (await fetch(`${bench.url}/metrics`)).text();
      return Number(/gateway_event_subscribers (\d+)/.exec(text)![1]);
    };
    const before = await subscribers();
    const pad = "x".repeat(1_000_000);
    let sent = 0;
    for (; (await subscribers()) === before; sent++) await push(session, pad);
    // What the kernel takes comes on top of what is kept.
    expect(sent).toBeGreaterThan(3);
    expect(sent).toBeLessThan(40);
    socket.resume();
    await isOver;
  });
});

describe("the first notifications of a call wait for its subscriber", () => {
  const create = () =>
    bench.rpc("video.create", { model: "film-1", prompt: "a fox" }, bench.token) as Promise<{
      job_id: string;
      stream_id: string;
    }>;

  test("video.failed of a job that fails at once", async () => {
    film.onSubmit = minimax.refused(1026, "the prompt is not allowed");
    const { job_id, stream_id } = await create();
    await until("the job has failed", async () => {
      const { status } = await bench.rpc("video.get", { job_id }, bench.token);
      return status === "failed";
    });
    for (const session of [stream_id, job_id]) {
      const listener = await Listener.open(session);
      await until("what happened", () => listener.heard.length > 0);
      expect(listener.heard[0]!.message).toMatchObject({
        method: "video.failed",
        params: { job_id, status: "failed", error: expect.stringContaining("not allowed") },
      });
      await listener.leave();
    }
    film.onSubmit = null;
  });

  test("the first video.progress, over RPC and REST", async () => {
    film.script = [minimax.status("Processing")];
    const { job_id, stream_id } = await create();
    await until("the job runs", async () => {
      const { status } = await bench.rpc("video.get", { job_id }, bench.token);
      return status === "running";
    });
    const listener = await Listener.open(stream_id);
    await until("the progress", () => listener.heard.length > 0);
    expect(listener.heard[0]!.message).toMatchObject({ method: "video.progress", params: { job_id } });
    await listener.leave();
    await bench.rpc("video.cancel", { job_id }, bench.token);
  });
});

describe("a subscriber that comes back", () => {
  test("gets what it missed, and nothing twice", async () => {
    // What several processes send has no order among them.
    const idsOf = ({ heard }: Listener) => {
      const ids = heard.map(({ message }) => message.id);
      return deploymentOfRun ? ids.toSorted() : ids;
    };
    const session = crypto.randomUUID();
    const first = await Listener.open(session);
    for (const id of [1, 2, 3]) await push(session, id);
    await until("three", () => first.heard.length === 3);
    expect(new Set(first.heard.map(({ id }) => id)).size).toBe(3);
    await first.leave();
    for (const id of [4, 5]) await push(session, id);
    const second = await Listener.open(session, { headers: { "last-event-id": first.lastId! } });
    await push(session, 6);
    await until("three more", () => second.heard.length === 3);
    expect(idsOf(second)).toEqual([4, 5, 6]);
    await second.leave();
    // From somewhere in the middle, and by the query, for pages that were loaded again.
    const third = await Listener.open(session, { query: `&last_event_id=${first.heard[1]!.id}` });
    await until("four", () => third.heard.length === 4);
    expect(idsOf(third)).toEqual([first.heard[2]!.message.id, 4, 5, 6]);
    await third.leave();
  });

  test("also when it had nothing before its connection broke", async () => {
    const session = crypto.randomUUID();
    const first = await Listener.open(session);
    await first.leave();
    await push(session, 1);
    const second = await Listener.open(session, { headers: { "last-event-id": first.lastId! } });
    await until("the missed one", () => second.heard.length === 1);
    await second.leave();
  });

  test("without an id gets what comes from then on, as the first time", async () => {
    const session = crypto.randomUUID();
    const first = await Listener.open(session);
    await push(session, 1);
    await first.leave();
    const second = await Listener.open(session);
    await push(session, 2);
    await until("the new one", () => second.heard.length === 1);
    expect(second.heard[0]!.message.id).toBe(2);
    await second.leave();
  });

  test.each(["a b", "x\ny", "x".repeat(65), "\u00e9"])(
    "an id that cannot be one (%j) counts as none",
    async (id) => {
      const session = crypto.randomUUID();
      const first = await Listener.open(session);
      await push(session, 1);
      await first.leave();
      const second = await Listener.open(session, { query: `&last_event_id=${encodeURIComponent(id)}` });
      await push(session, 2);
      await until("the new one", () => second.heard.length === 1);
      expect(second.heard[0]!.message.id).toBe(2);
      await second.leave();
    },
  );

  test("to a chat gets the rest of the answer, also when that has ended meanwhile", async () => {
    const { promise: go, resolve } = Promise.withResolvers<void>();
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      const [start, ...rest] = wholeStream(["one ", "two ", "three"]);
      await reply.write(start! + rest.shift()!);
      await go;
      await reply.write(rest.join(""));
      await reply.end();
    });
    const { stream_id } = await say("count");
    const first = await Listener.open(stream_id);
    await until("the first word", () => first.params.some(({ content }) => content === "one "));
    await first.leave();
    resolve();
    await until("the chat is over", async () => (await bench.usageRows())[0]?.model === "m");
    const second = await Listener.open(stream_id, { headers: { "last-event-id": first.lastId! } });
    await until("the end", () => second.params.at(-1)?.done === true);
    const words = [...first.params, ...second.params].map(({ content }) => content).join("");
    expect(words).toBe("one two three");
    await second.leave();
  });

  test("somebody else's id is still not found", async () => {
    const eve = await bench.signIn("eve");
    const { stream_id } = await say("secret");
    const listener = await Listener.open(stream_id);
    await until("the end", () => listener.params.at(-1)?.done === true);
    await listener.leave();
    const answer = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}`, {
      headers: { authorization: `Bearer ${eve}`, "last-event-id": "0" },
    });
    expect(answer.status).toBe(404);
  });
});

describe("what is kept is bounded", () => {
  function setUp() {
    const clock = new ManualClock();
    const hub = new BusEventHub(new InProcessBus(), clock, randomIds);
    const listen = (sessionId: string, lastId: string | null = null) => {
      const got: string[] = [];
      const ids: string[] = [];
      const subscriber = {
        deliver(json: string, id: string) {
          got.push(JSON.parse(json));
          ids.push(id);
          return true;
        },
        closed() {},
      };
      const reader = hub.subscribe({ sessionId, userId: null, lastId, subscriber })!;
      reader.resume();
      return { got, ids, reader };
    };
    return { clock, hub, listen };
  }

  test("by age: after two minutes without a subscriber nothing is left", () => {
    const { clock, hub, listen } = setUp();
    const first = listen("s");
    hub.push("s", '"a"');
    first.reader.leave();
    hub.push("s", '"b"');
    clock.advance(119_000);
    const second = listen("s", first.ids[0]);
    expect(second.got).toEqual(["b"]);
    second.reader.leave();
    clock.advance(121_000);
    hub.push("s", '"c"');
    expect(listen("s", first.ids[0]).got).toEqual([]);
  });

  test("by bytes: of more than 4 MiB the latest are kept", () => {
    const { hub, listen } = setUp();
    const first = listen("s");
    first.reader.leave();
    const pad = "x".repeat(1_000_000);
    for (let i = 0; i < 10; i++) hub.push("s", JSON.stringify(`${i}${pad}`));
    const kept = listen("s", "0").got.map((text) => Number(text[0]));
    expect(kept.at(-1)).toBe(9);
    expect(kept.length).toBeLessThanOrEqual(4);
    expect(kept.length).toBeGreaterThanOrEqual(3);
    expect(kept).toEqual(kept.map((_, i) => 10 - kept.length + i));
  });

  test("in all sessions together: those that nobody came back to give way first, the oldest of them", () => {
    const { hub, listen } = setUp();
    const pad = "x".repeat(1_000_000);
    const kept = (name: string) => listen(name, "0").got.length > 0;
    const reading = listen("reading");
    hub.push("reading", '"a"');
    for (let i = 0; i < 100; i++) {
      const { reader } = listen(`left-${i}`);
      hub.push(`left-${i}`, JSON.stringify(pad));
      reader.leave();
    }
    expect(kept("left-0")).toBe(false);
    expect(kept("left-99")).toBe(true);
    expect(reading.got).toEqual(["a"]);
    expect(kept("reading")).toBe(true);
  });

  test("what waits for the first subscriber: beyond 4 MiB nothing waits any more", () => {
    const { hub, listen } = setUp();
    const stream = hub.open({ userId: "user-1" });
    const emit = (i: number) => stream.emit(padded, { i, pad: "x".repeat(1_000_000) });
    for (let i = 0; i < 4; i++) emit(i);
    const early = listen(stream.sessionId);
    return stream.whenHeard().then(() => {
      expect(early.got).toHaveLength(4);
      const other = hub.open({ userId: "user-1" });
      for (let i = 0; i < 5; i++) other.emit(padded, { i, pad: "x".repeat(1_000_000) });
      expect(listen(other.sessionId).got).toHaveLength(0);
    });
  });

  test("a reader that takes nothing is closed, the others are not", () => {
    const { hub, listen } = setUp();
    let closed = 0;
    const stuck = hub.subscribe({
      sessionId: "s",
      userId: null,
      subscriber: { deliver: () => false, closed: () => closed++ },
    })!;
    stuck.resume();
    const good = listen("s");
    for (let i = 0; i < 10; i++) hub.push("s", JSON.stringify("x".repeat(1_000_000)));
    expect(closed).toBe(1);
    expect(good.got).toHaveLength(10);
    // One that has not begun to read yet is served when it does.
    const early: string[] = [];
    const reader = hub.subscribe({
      sessionId: "s",
      userId: null,
      subscriber: { deliver: (json) => early.push(json) > 0, closed: () => closed++ },
    })!;
    for (let i = 0; i < 1_000; i++) hub.push("s", '"y"');
    expect(early).toHaveLength(0);
    reader.resume();
    expect(early).toHaveLength(1_000);
    expect(closed).toBe(1);
  });
});
