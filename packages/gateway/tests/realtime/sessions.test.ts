import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { createCloudRealtime } from "../../src/backends/cloud-realtime/index.ts";
import type { Backend } from "../../src/backends/contract.ts";
import { ENGINE_RATES as rates } from "../../src/backends/engine/streams.ts";
import { ERRORS } from "../../src/kernel/errors.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Event = Record<string, unknown>;
interface Received {
  session_id: string;
  event: Event;
}

/** A gateway with one realtime backend, whose connection to the upstream may be replaced by `link`. */
async function setUp(dialect: "openai" | "dashscope" = "openai", link?: Backend["realtime"]) {
  const upstream: RealtimeUpstream = startRealtimeUpstream(dialect);
  const clock = new ManualClock();
  const gateway = await bootGateway({ overrides: { clock }, deployment: null });
  cleanups.push(upstream.stop, () => gateway.stop());
  const { routing, realtime, metering } = gateway.app.rooms;
  const config = { name: "rt", kind: "cloud-realtime", type: "cloud-realtime", url: upstream.url };
  const cloud = createCloudRealtime({ ...config, apiKey: null, models: ["voice"] }, { fetch });
  await routing.adopt(link ? { ...cloud, realtime: link } : cloud, { yields: false });
  let owner = await gateway.signIn("owner");
  await gateway.rpc("billing.plan.set", { user_email: "owner@example.com", tier: "enterprise" }, ADMIN_TOKEN);

  const start = (params: Event = {}, person = owner) =>
    gateway.call<{ session_id: string; stream_session: string }>(
      "realtime.start",
      { model: "voice", ...params },
      person,
    );
  const listen = async (streamSession: string) => {
    const received: Received[] = [];
    const { body } = await fetch(`${gateway.url}/api/rpc/events?session=${streamSession}`);
    void (async () => {
      let rest = "";
      const decoder = new TextDecoder();
      for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop()!;
        for (const line of lines)
          if (line.startsWith("data: ")) received.push(JSON.parse(line.slice(6)).params);
      }
    })().catch(() => {});
    return received;
  };
  return {
    gateway,
    upstream,
    clock,
    start,
    listen,
    /** An open session. */
    open: async (params: Event = {}) => (await start(params)).result!,
    send: (session_id: string, event: Event, person = owner) =>
      gateway.call("realtime.event", { session_id, event }, person),
    stop: async (session_id: string, person = owner) =>
      (await gateway.rpc("realtime.stop", { session_id }, person)).removed,
    sessions: () => realtime.sessionCount,
    usage: async () => {
      await (metering as MeteringService).flush(5_000);
      return (await gateway.rpc("usage.list", {}, owner)).records as Event[];
    },
    rpc: (method: string, params: Event) => gateway.rpc(method, params, owner),
    signInAgain: async () => {
      owner = await gateway.signIn("owner");
    },
  };
}

for (const dialect of ["openai", "dashscope"] as const) {
  test(`${dialect}: a whole session: events, audio, usage, transcript, stop`, async () => {
    const { upstream, open, send, stop, sessions, usage, rpc, listen } = await setUp(dialect);
    const { id: conversation_id } = await rpc("conversations.create", {});
    const { session_id, stream_session } = await open({ config: { voice: "alloy" }, conversation_id });
    const received = await listen(stream_session);
    await until("the first event", () => received.length > 0);
    expect(received[0]).toMatchObject({ session_id, event: { type: "session.created" } });
    const audio = btoa("pcm");
    await send(session_id, { type: "input_audio_buffer.append", audio });
    await send(session_id, { type: "response.create" });
    await until("the response is done", () => received.some(({ event }) => event.type === "response.done"));
    expect(upstream.received.find(({ type }) => type === "input_audio_buffer.append")).toEqual({
      type: "input_audio_buffer.append",
      audio,
    });
    const rows = await usage();
    expect(rows).toHaveLength(1);
    expect(rows[0]).toMatchObject({
      model: "voice",
      prompt_tokens: 100,
      completion_tokens: 50,
      backend: "realtime",
    });
    const transcript = async () => (await rpc("conversations.get", { conversation_id })).messages;
    await until("the transcript is stored", async () => (await transcript()).length > 0);
    expect(await transcript()).toMatchObject([{ role: "assistant", content: "hello there" }]);
    expect(await stop(session_id)).toBe(true);
    expect(await stop(session_id)).toBe(false);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
    expect(sessions()).toBe(0);
  });
}

describe("sessions", () => {
  test("belong to their owner", async () => {
    const { gateway, upstream, rpc, start, open, send, stop, sessions } = await setUp();
    const stranger = await gateway.signIn("stranger");
    const { session_id } = await open();
    const sent = await send(session_id, { type: "response.create" }, stranger);
    expect(sent.error.code).toBe(ERRORS.not_found.rpc);
    expect(await stop(session_id, stranger)).toBe(false);
    expect(sessions()).toBe(1);
    expect(upstream.received).toEqual([]);
    const { id: conversation_id } = await rpc("conversations.create", {});
    const { error } = await start({ conversation_id }, stranger);
    expect(error.code).toBe(ERRORS.conversation_forbidden.rpc);
  });

  test("an upstream that is not there leaves nothing behind", async () => {
    const { upstream, start, sessions } = await setUp();
    upstream.stop();
    expect((await start()).error.code).toBe(ERRORS.bad_gateway.rpc);
    expect(sessions()).toBe(0);
  });

  test("end when the upstream closes, and on session.stop; the owner is told", async () => {
    const { upstream, open, send, sessions, listen } = await setUp();
    const first = await open();
    const received = await listen(first.stream_session);
    upstream.closeAll(1000, "time is up");
    await until("the session is over", () => sessions() === 0);
    await until("session.closed is the last event", () => received.at(-1)?.event.type === "session.closed");
    expect(received.at(-1)?.event).toEqual({ type: "session.closed", reason: "time is up" });
    const second = await open();
    await send(second.session_id, { type: "session.stop" });
    expect(sessions()).toBe(0);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
  });

  test("what an upstream says before it hangs up at once still reaches the subscriber", async () => {
    const { upstream, open, sessions, listen } = await setUp();
    const { stream_session } = await open();
    await until("the upstream session is open", () => upstream.sessions() === 1);
    upstream.emit({ type: "error", error: { message: "no such model" } });
    upstream.closeAll(1008, "refused");
    await until("the session is over", () => sessions() === 0);
    const received = await listen(stream_session);
    await until("session.closed is the last event", () => received.at(-1)?.event.type === "session.closed");
    expect(received.map(({ event }) => event.type)).toContain("error");
    expect(received.at(-1)?.event).toEqual({ type: "session.closed", reason: "refused" });
  });

  test("one that is closed while it opens is not handed out, and its connection is let go", async () => {
    let closed = 0;
    const { start, sessions } = await setUp("openai", {
      ...{ rates, known: [] },
      open: async ({ onClose }) => {
        onClose("no room");
        return { send: () => true, close: () => closed++ };
      },
    });
    const { error } = await start();
    expect(error.code).toBe(ERRORS.bad_gateway.rpc);
    expect(error.message).toContain("closed while it was being opened");
    expect([closed, sessions()]).toEqual([1, 0]);
  });

  test("that are asked for all at once count like those before", async () => {
    const { start, sessions } = await setUp("openai", {
      ...{ rates, known: [] },
      open: async () => ({ send: () => true, close() {} }),
    });
    const answers = await Promise.all(Array.from({ length: 300 }, () => start()));
    const refused = answers.filter(({ error }) => error);
    expect([refused.length, sessions()]).toEqual([50, 250]);
    expect(refused[0]?.error.message).toContain("250 open realtime sessions");
  });

  test("zero-token responses are recorded only with a reference", async () => {
    const empty = {
      type: "response.done",
      response: { id: "r", status: "completed", usage: { input_tokens: 0, output_tokens: 0 } },
    };
    const { upstream, open, usage } = await setUp();
    await open();
    await until("the upstream session is open", () => upstream.sessions() === 1);
    upstream.emit(empty);
    upstream.emit({
      type: "response.done",
      response: { id: "r2", usage: { input_tokens: 3, output_tokens: 4 } },
    });
    await until("usage is recorded", async () => (await usage()).length > 0);
    expect((await usage()).map(({ prompt_tokens }) => prompt_tokens)).toEqual([3]);
    const tagged = await setUp();
    await tagged.open({ ref_id: "order-1" });
    await until("the upstream session is open", () => tagged.upstream.sessions() === 1);
    tagged.upstream.emit(empty);
    await until("usage is recorded", async () => (await tagged.usage()).length > 0);
    expect((await tagged.usage())[0]).toMatchObject({ prompt_tokens: 0, completion_tokens: 0 });
  });

  test("what the upstream says before the subscriber is there waits a second, all of it", async () => {
    const { upstream, open, clock, usage, listen } = await setUp();
    const { stream_session } = await open();
    await until("the upstream session is open", () => upstream.sessions() === 1);
    for (let i = 0; i < 1_000; i++) upstream.emit({ type: "noise", i });
    // Its row says that the gateway has read everything before it.
    upstream.emit({
      type: "response.done",
      response: { id: "r", usage: { input_tokens: 3, output_tokens: 4 } },
    });
    await until("usage is recorded", async () => (await usage()).length > 0);
    const received = await listen(stream_session);
    await until("all of them", () => received.some(({ event }) => event.i === 999));
    expect(received.filter(({ event }) => event.type === "noise").map(({ event }) => event.i)).toEqual(
      Array.from({ length: 1_000 }, (_, i) => i),
    );
    clock.advance(2_000);
    upstream.emit({ type: "later" });
    await until("the later event", () => received.at(-1)?.event.type === "later");
  });

  test("a full queue is an error, not a leak", async () => {
    const sent: unknown[] = [];
    const { open, send } = await setUp("openai", {
      ...{ rates, known: [] },
      open: async () => ({ send: (event) => sent.length < 3 && sent.push(event) > 0, close() {} }),
    });
    const { session_id } = await open();
    for (let i = 0; i < 3; i++)
      expect((await send(session_id, { type: "response.create" })).error).toBeUndefined();
    const { error } = await send(session_id, { type: "response.create" });
    expect(error.message).toContain("queue is full");
    expect(sent).toHaveLength(3);
  });

  test("a session whose client has gone silent is ended", async () => {
    const { open, send, sessions, clock, upstream, signInAgain } = await setUp();
    const { session_id } = await open();
    clock.advance(9 * 60_000);
    await send(session_id, { type: "input_audio_buffer.clear" });
    clock.advance(9 * 60_000);
    expect(sessions()).toBe(1);
    clock.advance(2 * 60_000);
    expect(sessions()).toBe(0);
    await until("the upstream session is closed", () => upstream.sessions() === 0);
    await signInAgain();
    expect((await send(session_id, { type: "input_audio_buffer.clear" })).error.code).toBe(
      ERRORS.not_found.rpc,
    );
  });
});
