import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { createCloudRealtime } from "../../src/backends/cloud-realtime/index.ts";
import type { Backend } from "../../src/backends/contract.ts";
import { ENGINE_RATES as rates } from "../../src/backends/engine/realtime.ts";
import { BusEventHub } from "../../src/bus/event-hub.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import type { Actor } from "../../src/kernel/context.ts";
import { fail } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { Admission, FinalUsage } from "../../src/rooms/metering/index.ts";
import { Realtime, type ResponseBound } from "../../src/rooms/realtime/index.ts";

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

const person = (userId: string): Actor => ({ userId, email: "", name: "", isAdmin: false });
const owner = person("owner");
const stranger = person("stranger");

function setUp(dialect: "openai" | "dashscope" = "openai", link?: Backend["realtime"]) {
  const upstream: RealtimeUpstream = startRealtimeUpstream(dialect);
  const clock = new ManualClock();
  const events = new BusEventHub(new InProcessBus(), clock, randomIds);
  const usage: (Omit<ResponseBound, "bound"> & FinalUsage)[] = [];
  const admit = ({ bound, ...response }: ResponseBound): Admission => ({
    outputTokensHeld: "costUsd" in bound ? 0 : bound.outputTokensMax,
    lowered: false,
    grow: () => true,
    settle: (spent) => void usage.push({ ...response, ...spent }),
    release() {},
  });
  const stored: [string, string][] = [];
  const config = {
    name: "rt",
    kind: "cloud-realtime",
    type: "cloud-realtime",
    url: upstream.url,
    apiKey: null,
    models: ["voice"],
  } as const;
  const cloud = createCloudRealtime(config, { fetch });
  const backend: Backend = link ? { ...cloud, realtime: link } : cloud;
  const textOnly: Backend = { ...cloud, realtime: undefined };
  const realtime = new Realtime({
    requests: null,
    events,
    clock,
    ids: randomIds,
    log: silentLog,
    route: (model) => ({
      backend: model === "voice" ? backend : textOnly,
      model,
      succeeded() {},
      failed() {},
      abandoned() {},
      suspect() {},
    }),
    limitsOf: () => ({ outputTokensMax: 4_096, contextTokens: null }),
    admit,
    conversations: {
      access: async (userId, id) => {
        if (userId !== "owner") fail("conversation_forbidden", id);
      },
      append: async (id, messages) =>
        void stored.push(
          ...messages.map(({ role, content }): [string, string] => [`${id} ${role}`, content]),
        ),
    },
  });
  const listen = (sessionId: string) => {
    const received: { session_id: string; event: Record<string, unknown> }[] = [];
    events.subscribe({
      sessionId,
      userId: null,
      subscriber: { deliver: (json) => received.push(JSON.parse(json).params) > 0, closed() {} },
    });
    return received;
  };
  cleanups.push(upstream.stop, () => realtime.close());
  return { upstream, clock, realtime, usage, stored, listen };
}
const failure = async (attempt: () => unknown) => {
  try {
    await attempt();
    return null;
  } catch (error) {
    return error as { kind: string; message: string };
  }
};

for (const dialect of ["openai", "dashscope"] as const) {
  test(`${dialect}: a whole session: events, audio, usage, transcript, stop`, async () => {
    const { upstream, realtime, usage, stored, listen } = setUp(dialect);
    const { session_id, stream_session } = await realtime.start(owner, {
      model: "voice",
      config: { voice: "alloy" },
      conversationId: "c1",
    });
    const received = listen(stream_session);
    await until("the first event", () => received.length > 0);
    expect(received[0]).toMatchObject({ session_id, event: { type: "session.created" } });
    const audio = btoa("pcm");
    realtime.send(owner, session_id, { type: "input_audio_buffer.append", audio });
    realtime.send(owner, session_id, { type: "response.create" });
    await until("the response is done", () => received.some(({ event }) => event.type === "response.done"));
    expect(upstream.received.find(({ type }) => type === "input_audio_buffer.append")).toEqual({
      type: "input_audio_buffer.append",
      audio,
    });
    expect(usage).toEqual([
      {
        requestId: expect.any(String),
        actor: owner,
        model: "voice",
        promptTokens: 100,
        completionTokens: 50,
        refId: null,
        backend: "realtime",
        estimated: false,
      },
    ]);
    expect(stored).toEqual([["c1 assistant", "hello there"]]);
    expect(realtime.stop(owner, session_id)).toBe(true);
    expect(realtime.stop(owner, session_id)).toBe(false);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
    expect(realtime.sessionCount).toBe(0);
  });
}

describe("sessions", () => {
  test("belong to their owner", async () => {
    const { realtime, upstream } = setUp();
    const { session_id } = await realtime.start(owner, { model: "voice" });
    expect(
      (await failure(() => realtime.send(stranger, session_id, { type: "response.create" })))?.kind,
    ).toBe("not_found");
    expect(realtime.stop(stranger, session_id)).toBe(false);
    expect(realtime.sessionCount).toBe(1);
    expect(upstream.received).toEqual([]);
    expect(
      (await failure(() => realtime.start(stranger, { model: "voice", conversationId: "c1" })))?.kind,
    ).toBe("conversation_forbidden");
  });

  test("a model without the capability is refused, with no fallback", async () => {
    const { realtime } = setUp();
    const error = await failure(() => realtime.start(owner, { model: "text" }));
    expect([error?.kind, error?.message]).toEqual([
      "app_error",
      expect.stringContaining("does not support realtime sessions"),
    ]);
    expect(realtime.sessionCount).toBe(0);
  });

  test("an upstream that is not there leaves nothing behind", async () => {
    const { realtime, upstream } = setUp();
    upstream.stop();
    expect((await failure(() => realtime.start(owner, { model: "voice" })))?.kind).toBe("bad_gateway");
    expect(realtime.sessionCount).toBe(0);
  });

  test("end when the upstream closes, and on session.stop; the owner is told", async () => {
    const { realtime, upstream, listen } = setUp();
    const first = await realtime.start(owner, { model: "voice" });
    const received = listen(first.stream_session);
    upstream.closeAll(1000, "time is up");
    await until("the session is over", () => realtime.sessionCount === 0);
    expect(received.at(-1)?.event).toEqual({ type: "session.closed", reason: "time is up" });
    const second = await realtime.start(owner, { model: "voice" });
    realtime.send(owner, second.session_id, { type: "session.stop" });
    expect(realtime.sessionCount).toBe(0);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
  });

  test("what an upstream says before it hangs up at once still reaches the subscriber", async () => {
    const { realtime, upstream, listen } = setUp();
    const { stream_session } = await realtime.start(owner, { model: "voice" });
    await until("the upstream session is open", () => upstream.sessions() === 1);
    upstream.emit({ type: "error", error: { message: "no such model" } });
    upstream.closeAll(1008, "refused");
    await until("the session is over", () => realtime.sessionCount === 0);
    const received = listen(stream_session);
    await until("session.closed is the last event", () => received.at(-1)?.event.type === "session.closed");
    expect(received.map(({ event }) => event.type)).toContain("error");
    expect(received.at(-1)?.event).toEqual({ type: "session.closed", reason: "refused" });
  });

  test("one that is closed while it opens is not handed out, and its connection is let go", async () => {
    let closed = 0;
    const { realtime } = setUp("openai", {
      rates,
      open: async ({ onClose }) => {
        onClose("no room");
        return { send: () => true, close: () => closed++ };
      },
    });
    expect(await failure(() => realtime.start(owner, { model: "voice" }))).toMatchObject({
      kind: "bad_gateway",
      message: expect.stringContaining("closed while it opened"),
    });
    expect([closed, realtime.sessionCount]).toEqual([1, 0]);
  });

  test("that are asked for all at once count like those before", async () => {
    const { realtime } = setUp("openai", { rates, open: async () => ({ send: () => true, close() {} }) });
    const starts = Array.from({ length: 300 }, () =>
      failure(() => realtime.start(owner, { model: "voice" })),
    );
    const refused = (await Promise.all(starts)).filter((error) => error !== null);
    expect([refused.length, realtime.sessionCount]).toEqual([50, 250]);
    expect(refused[0]?.message).toContain("250 open realtime sessions");
  });

  test("zero-token responses are recorded only with a reference", async () => {
    const { realtime, upstream, usage } = setUp();
    const empty = {
      type: "response.done",
      response: { id: "r", status: "completed", usage: { input_tokens: 0, output_tokens: 0 } },
    };
    await realtime.start(owner, { model: "voice" });
    await until("the upstream session is open", () => upstream.sessions() === 1);
    upstream.emit(empty);
    upstream.emit({
      type: "response.done",
      response: { id: "r", usage: { input_tokens: 3, output_tokens: 4 } },
    });
    await until("usage is recorded", () => usage.length > 0);
    expect(usage.map(({ promptTokens }) => promptTokens)).toEqual([3]);
    const tagged = setUp();
    await tagged.realtime.start(owner, { model: "voice", refId: "order-1" });
    tagged.upstream.emit(empty);
    await until("usage is recorded", () => tagged.usage.length > 0);
    expect(tagged.usage[0]).toMatchObject({ promptTokens: 0, completionTokens: 0, refId: "order-1" });
  });

  test("what the upstream says before the subscriber is there waits a second, in bounded number", async () => {
    const { realtime, upstream, clock, listen } = setUp();
    const { stream_session } = await realtime.start(owner, { model: "voice" });
    await until("the upstream session is open", () => upstream.sessions() === 1);
    for (let i = 0; i < 1_000; i++) upstream.emit({ type: "noise", i });
    await Bun.sleep(100);
    const received = listen(stream_session);
    await until("the first event", () => received.length > 0);
    await Bun.sleep(20);
    expect(received.length).toBe(256);
    clock.advance(2_000);
    upstream.emit({ type: "later" });
    await until("the later event", () => received.at(-1)?.event.type === "later");
  });

  test("a full queue is an error, not a leak", async () => {
    const sent: unknown[] = [];
    const { realtime } = setUp("openai", {
      rates,
      open: async () => ({ send: (event) => sent.length < 3 && sent.push(event) > 0, close() {} }),
    });
    const { session_id } = await realtime.start(owner, { model: "voice" });
    for (let i = 0; i < 3; i++) realtime.send(owner, session_id, { type: "response.create" });
    const error = await failure(() => realtime.send(owner, session_id, { type: "response.create" }));
    expect(error?.message).toContain("queue is full");
    expect(sent).toHaveLength(3);
  });

  test("a session whose client has gone silent is ended", async () => {
    const { realtime, clock, upstream } = setUp();
    const { session_id } = await realtime.start(owner, { model: "voice" });
    clock.advance(9 * 60_000);
    realtime.send(owner, session_id, { type: "input_audio_buffer.clear" });
    clock.advance(9 * 60_000);
    expect(realtime.sessionCount).toBe(1);
    clock.advance(2 * 60_000);
    expect(realtime.sessionCount).toBe(0);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
  });
});
