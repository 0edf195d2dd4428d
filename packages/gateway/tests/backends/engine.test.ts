import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { NO_ANSWER, RpcFailure, type RpcPeer } from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type BackendConfig, BackendError } from "../../src/backends/contract.ts";
import { engine as kind } from "../../src/backends/engine/index.ts";
import type { Clock } from "../../src/kernel/clock.ts";
import { backendConfig, chatCall, eventsOf, modelCall, realDeps, responding } from "../support/backends.ts";
import { type FakeEngineOptions, sendChunks, startFakeEngine } from "../support/engine.ts";

const create = (...args: Parameters<typeof kind.create>) => responding(kind.create(...args));
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0)) await undo();
});

const signal = () => AbortSignal.timeout(30_000);
const body = (content: string, stream: boolean) => ({
  model: "echo",
  messages: [{ role: "user", content }],
  stream,
});

/** An engine and a backend that has not spoken to it yet. */
function attach(options: FakeEngineOptions = {}, config: Partial<BackendConfig> = {}, clock?: Clock) {
  const engine = startFakeEngine(options);
  const backend = create(backendConfig("engine", engine.url, config), {
    ...realDeps,
    ...(clock && { clock }),
  });
  cleanup.push(
    () => backend.close(),
    () => engine.stop(),
  );
  return { engine, backend };
}

/** The same after the first probe. */
async function connect(options: FakeEngineOptions = {}, config: Partial<BackendConfig> = {}) {
  const attached = attach(options, config);
  await attached.backend.probe(signal());
  return attached;
}

async function failure(work: Promise<unknown>): Promise<BackendError> {
  const error = await work.then(
    () => new Error("it succeeded"),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(BackendError);
  return error as BackendError;
}

const textOf = async (response: Response) =>
  eventsOf(await response.text())
    .map((event) => event.choices?.[0]?.delta.content ?? "")
    .join("");

describe("connection", () => {
  test("nothing is opened before the first call; the handshake comes first", async () => {
    const { engine, backend } = attach();
    expect(engine.peers).toHaveLength(0);
    expect(await backend.probe(signal())).toEqual({ state: "Healthy", models: [{ id: "echo" }] });
    expect(engine.received.map(({ method }) => method)).toEqual(["Engine.Handshake", "Engine.Models"]);
    expect(engine.received[0]!.params).toMatchObject({ protocol: 1, client: { name: "model-gateway" } });
  });

  test("calls made together share one connection and one handshake", async () => {
    const { engine, backend } = attach({}, { capabilities: ["chat", "invoke"] });
    const words = Array.from({ length: 50 }, (_, i) => `word-${i}`);
    const answers = await Promise.all(
      words.map(async (word) => textOf(await backend.chat!(chatCall(body(word, true))))),
    );
    expect(answers).toEqual(words);
    expect(engine.peers).toHaveLength(1);
    expect(engine.of("Engine.Handshake")).toHaveLength(1);
  });

  test("a lost connection is made anew, with a new handshake, by the next call", async () => {
    const { engine, backend } = await connect();
    engine.peers[0]!.cut();
    await until("the connection is gone", () => !engine.peers[0]!.open);
    await until("an answer came over a new connection", async () => {
      // The very next call may still meet the dying connection; the one after that must not.
      const answer = await backend.chat!(chatCall(body("again", true))).catch(() => null);
      return answer !== null && (await textOf(answer)) === "again";
    });
    expect(engine.peers).toHaveLength(2);
    expect(engine.of("Engine.Handshake")).toHaveLength(2);
  });

  test("an answered error sends the next call through a fresh handshake and disturbs no other call", async () => {
    let release: (peer: RpcPeer) => void = () => {};
    let heldId = "";
    const { engine, backend } = await connect({
      handlers: {
        "Engine.ChatStart": ({ params, peer }) => {
          heldId = params.stream_id;
          release = (on) => sendChunks(on, heldId, ["still ", "here"]);
          expect(peer.number).toBe(1);
          return { stream_id: params.stream_id };
        },
        "Engine.Chat": () => {
          throw new RpcFailure(-32001, "context too long");
        },
      },
    });
    const streaming = await backend.chat!(chatCall(body("hold", true)));
    const error = await failure(backend.chat!(chatCall(body("x", false))));
    expect(error).toMatchObject({ kind: "upstream", status: 500 });
    expect(error.message).toBe("upstream 500: context too long (code -32001)");
    await backend.probe(signal());
    expect(engine.peers).toHaveLength(2);
    expect(engine.of("Engine.Models").at(-1)!.peer.number).toBe(2);
    release(engine.peers[0]!);
    expect(await textOf(streaming)).toBe("still here");
    await until("the old connection closed once nothing was left on it", () => !engine.peers[0]!.open);
  });

  test("a peer that breaks the protocol is dropped", async () => {
    for (const raw of ["garbage", "[]", '"text"', '{"jsonrpc":"2.0","id":777,"result":1}']) {
      const { engine, backend } = await connect({ handlers: { "sensor.read": () => NO_ANSWER } });
      const waiting = failure(backend.invoke!("sensor.read", {}, signal()));
      await until("the call arrived", () => engine.of("sensor.read").length === 1);
      engine.peers[0]!.sendRaw(raw);
      expect((await waiting).kind).toBe("transport");
      expect(await backend.probe(signal())).toMatchObject({ state: "Healthy" });
      expect(engine.peers).toHaveLength(2);
    }
  });

  test("no engine, a deaf one and one of another protocol are unhealthy", async () => {
    const gone = startFakeEngine();
    await gone.stop();
    const dead = create(backendConfig("engine", gone.url, { capabilities: ["chat"] }), realDeps);
    expect(await dead.probe(signal())).toMatchObject({ state: "Unhealthy", models: [] });
    expect((await failure(dead.chat!(chatCall(body("x", true))))).kind).toBe("connect");

    const { backend: deaf } = attach({ handlers: { "Engine.Handshake": () => NO_ANSWER } });
    expect(await deaf.probe(AbortSignal.timeout(100))).toMatchObject({ state: "Unhealthy" });

    const handshake = { name: "new", version: "9", protocol: 2, capabilities: ["chat"] };
    const { backend: newer } = await connect({ handlers: { "Engine.Handshake": () => handshake } });
    expect(await newer.probe(signal())).toMatchObject({
      state: "Unhealthy",
      detail: expect.stringContaining("protocol 2"),
    });
  });
});

test("an engine that falls silent is dropped when an answer is overdue", async () => {
  const clock = new ManualClock();
  let silent = true;
  const { engine, backend } = attach(
    { handlers: { "Engine.Models": () => (silent ? NO_ANSWER : { models: [] }) } },
    {},
    clock,
  );
  const overdue = backend.probe(signal());
  await until("the engine was asked", () => engine.of("Engine.Models").length === 1);
  clock.advance(5_000);
  expect(await overdue).toMatchObject({ state: "Unhealthy", detail: expect.stringContaining("5000 ms") });
  silent = false;
  expect(await backend.probe(signal())).toMatchObject({ state: "Healthy" });
  expect(engine.peers).toHaveLength(2);
});

describe("capabilities and models", () => {
  test("an engine can what it declares, and an operator may declare otherwise", async () => {
    const { backend } = await connect({ capabilities: ["embeddings", "telepathy"] });
    expect(backend.embed).toBeDefined();
    for (const absent of [backend.chat, backend.realtime, backend.invoke, backend.video])
      expect(absent).toBeUndefined();
    const { backend: declared } = await connect({ capabilities: [] }, { capabilities: ["chat"] });
    expect(declared.chat).toBeDefined();
    expect(declared.embed).toBeUndefined();
  });

  test("discovered models come first, static ids follow; without a listing the static ones serve", async () => {
    const models = [{ id: "b", capabilities: ["chat_stream", "realtime", "?"] }, { id: "a" }];
    const { backend } = await connect({ models }, { models: ["a", "z"] });
    expect((await backend.probe(signal())).models).toEqual([
      { id: "b", capabilities: ["chat", "realtime"] },
      { id: "a" },
      { id: "z" },
    ]);
    const { engine, backend: unlisted } = await connect(
      {
        handlers: {
          "Engine.Models": () => {
            throw new RpcFailure(-32601, "Method not found");
          },
        },
      },
      { models: ["z"] },
    );
    expect(await unlisted.probe(signal())).toEqual({ state: "Healthy", models: [{ id: "z" }] });
    expect(engine.peers).toHaveLength(1);
  });
});

describe("chat", () => {
  test("a whole answer, and the parameters that reach the engine", async () => {
    const { engine, backend } = await connect();
    const request = { ...body("hello", false), temperature: 0, tools: [], stream_options: {}, custom: 1 };
    const answer = await (await backend.chat!(chatCall(request))).json();
    expect(answer).toMatchObject({
      id: "chatcmpl-r1",
      object: "chat.completion",
      model: "echo",
      choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
    });
    expect(engine.of("Engine.Chat")[0]!.params).toEqual({
      model: "echo",
      messages: [{ role: "user", content: "hello" }],
      temperature: 0,
      tools: [],
      custom: 1,
    });
  });

  test("a stream with role, finish, usage and [DONE]; chunks of two streams do not mix", async () => {
    const pending = new Map<string, { peer: RpcPeer; id: string }>();
    const { backend } = await connect({
      handlers: {
        "Engine.ChatStart": ({ params, peer }) => {
          pending.set(params.messages[0].content, { peer, id: params.stream_id });
          return { stream_id: params.stream_id };
        },
      },
    });
    const [first, second] = await Promise.all([
      backend.chat!(chatCall(body("first", true))),
      backend.chat!(chatCall(body("second", true))),
    ]);
    const send = (to: string, delta: object, rest: object = {}) => {
      const { peer, id } = pending.get(to)!;
      peer.notify("Engine.ChatChunk", { stream_id: id, delta, finish_reason: null, done: false, ...rest });
    };
    send("first", { content: "1" });
    send("second", { reasoning: "hm", content: "" });
    send("first", { content: "2" });
    const call = { id: "c1", function: { name: "f", arguments: { a: 1 } } };
    send("second", { tool_calls: [call] });
    pending.get("first")!.peer.notify("Engine.ChatChunk", { stream_id: "unknown", delta: { content: "?" } });
    send("first", {}, { finish_reason: "length", done: true });
    send("second", {}, { done: true, usage: { total_tokens: 9 } });

    const one = eventsOf(await first.text());
    expect(one.map((event) => event.choices?.[0]?.delta.content ?? "").join("")).toBe("12");
    expect(one[0].choices[0].delta.role).toBe("assistant");
    expect(one.at(-2).choices[0].finish_reason).toBe("length");
    expect(one.at(-1)).toBe("[DONE]");
    const two = eventsOf(await second.text());
    expect(two[0].choices[0].delta).toEqual({ role: "assistant", reasoning_content: "hm", content: "" });
    expect(two[1].choices[0].delta.tool_calls).toEqual([
      { index: 0, id: "c1", type: "function", function: { name: "f", arguments: '{"a":1}' } },
    ]);
    expect(two.at(-3).choices[0].finish_reason).toBe("tool_calls");
    expect(two.at(-2).usage).toEqual({ total_tokens: 9 });
  });

  test("an engine that cannot stream still serves a stream, as one event", async () => {
    const { engine, backend } = await connect({ capabilities: ["chat"] });
    const response = await backend.chat!(chatCall(body("whole", true)));
    const events = eventsOf(await response.text());
    expect(events[0].choices[0].delta).toEqual({ role: "assistant", content: "whole" });
    expect(events.at(-1)).toBe("[DONE]");
    expect(engine.of("Engine.ChatStart")).toHaveLength(0);
  });

  test("a refused start is an error of the call; an error chunk and a lost connection are the stream's", async () => {
    const { engine, backend } = await connect({
      handlers: {
        "Engine.ChatStart": ({ params, peer }) => {
          const what = params.messages[0].content;
          if (what === "refuse") throw new RpcFailure(-32602, "bad temperature", { status: 422 });
          queueMicrotask(() => {
            const chunk = { stream_id: params.stream_id, delta: { content: "a" }, done: false };
            peer.notify("Engine.ChatChunk", chunk);
            if (what === "fail")
              peer.notify("Engine.ChatChunk", { ...chunk, delta: {}, error: { message: "gpu on fire" } });
            else setTimeout(() => peer.cut(), 20);
          });
          return { stream_id: params.stream_id };
        },
      },
    });
    const refused = await failure(backend.chat!(chatCall(body("refuse", true))));
    expect(refused).toMatchObject({ kind: "upstream", status: 422 });
    const failed = eventsOf(await (await backend.chat!(chatCall(body("fail", true)))).text());
    expect(failed.at(-1).error.message).toBe("gpu on fire");
    const cut = await backend.chat!(chatCall(body("cut", true)));
    expect((await failure(cut.text())).kind).toBe("transport");
    expect(engine.of("Engine.ChatCancel")).toHaveLength(0);
  });

  test("a client that leaves cancels at the engine, by signal and by closing the stream", async () => {
    const { engine, backend } = await connect({
      handlers: { "Engine.ChatStart": ({ params }) => ({ stream_id: params.stream_id }) },
    });
    const leaving = new AbortController();
    const bySignal = await backend.chat!(chatCall(body("x", true), { signal: leaving.signal }));
    leaving.abort(new Error("left"));
    await expect(bySignal.text()).rejects.toThrow("left");
    const byCancel = await backend.chat!(chatCall(body("y", true)));
    await byCancel.body!.cancel();
    await until("both streams were cancelled", () => engine.of("Engine.ChatCancel").length === 2);
    expect(engine.of("Engine.ChatCancel").map(({ params }) => params.stream_id)).toEqual(
      engine.of("Engine.ChatStart").map(({ params }) => params.stream_id),
    );
    expect(engine.peers).toHaveLength(1);
  });

  test("a reader that is megabytes behind loses its stream, and only its own", async () => {
    const { engine, backend } = await connect({
      handlers: {
        "Engine.ChatStart": ({ params, peer }) => {
          const flood = params.messages[0].content === "flood";
          const words = flood ? Array.from({ length: 300 }, () => "x".repeat(64_000)) : ["calm"];
          queueMicrotask(() => sendChunks(peer, params.stream_id, words));
          return { stream_id: params.stream_id };
        },
      },
    });
    const flooded = await backend.chat!(chatCall(body("flood", true)));
    await until("the engine was told to stop", () => engine.of("Engine.ChatCancel").length === 1);
    expect((await failure(flooded.text())).message).toContain("not read as fast");
    expect(await textOf(await backend.chat!(chatCall(body("calm", true))))).toBe("calm");
    expect(engine.peers).toHaveLength(1);
  });
});

test("embeddings as numbers and base64", async () => {
  const { engine, backend } = await connect();
  const answer = await (await backend.embed!(modelCall({ model: "echo", input: "abc" }))).json();
  expect(answer).toMatchObject({
    data: [{ embedding: [3, 0.5] }],
    usage: { prompt_tokens: 1, total_tokens: 1 },
  });
  expect(engine.of("Engine.Embeddings")[0]!.params).toEqual({ model: "echo", input: ["abc"] });
  expect((await failure(backend.embed!(modelCall({ model: "echo", input: [1] })))).kind).toBe("request");
});

describe("invoke", () => {
  test("method and params go as they are, the raw result comes back, Engine. is refused", async () => {
    const { engine, backend } = await connect({
      handlers: { "sensor.ingest": ({ params }) => [params, null] },
    });
    expect(await backend.invoke!("sensor.ingest", { x: 1 }, signal())).toEqual([{ x: 1 }, null]);
    const refused = await failure(backend.invoke!("Engine.Chat", {}, signal()));
    expect(refused).toMatchObject({ kind: "unsupported", message: expect.stringContaining("Engine.") });
    expect((await failure(backend.invoke!("no.such", {}, signal()))).status).toBe(501);
    expect(engine.of("Engine.Chat")).toHaveLength(0);
    expect(engine.peers).toHaveLength(1);
  });

  test("several callers at 30 Hz, each in its own order, on one connection, beside a stream", async () => {
    const { engine, backend } = await connect({
      handlers: { "control.setpoint": async ({ params }) => params },
    });
    const loop = async (caller: number) => {
      for (let tick = 0; tick < 15; tick++) {
        const answer = backend.invoke!("control.setpoint", { caller, tick }, signal());
        const [got] = await Promise.all([answer, Bun.sleep(33)]);
        expect(got).toEqual({ caller, tick });
      }
    };
    const streaming = backend.chat!(chatCall(body("meanwhile", true))).then(textOf);
    await Promise.all([1, 2, 3, 4, 5].map(loop));
    expect(await streaming).toBe("meanwhile");
    expect(engine.of("control.setpoint")).toHaveLength(75);
    expect(engine.peers).toHaveLength(1);
  });
});

describe("realtime", () => {
  const open = async (options: FakeEngineOptions = {}) => {
    const { engine, backend } = await connect(options);
    const events: unknown[] = [];
    const closed: string[] = [];
    const link = await backend.realtime!.open(
      {
        sessionId: "s1",
        model: "echo",
        config: { voice: "a" },
        onEvent: (event) => events.push(event),
        onClose: (reason) => closed.push(reason),
      },
      signal(),
    );
    return { engine, backend, link, events, closed };
  };

  test("events travel both ways until the session is closed here", async () => {
    const { engine, link, events, closed } = await open();
    expect(engine.of("Engine.RealtimeStart")[0]!.params).toEqual({
      session_id: "s1",
      model: "echo",
      config: { voice: "a" },
    });
    expect(link.send({ type: "response.create" })).toBe(true);
    await until("the engine's event came back", () => events.length === 1);
    expect(events).toEqual([{ type: "echo", of: { type: "response.create" } }]);
    link.close();
    link.close();
    await until("the engine was told", () => engine.of("Engine.RealtimeStop").length === 1);
    expect(link.send({ type: "late" })).toBe(false);
    expect(closed).toEqual([]);
  });

  test("the engine's stop and a lost connection close the session once", async () => {
    const stopped = await open();
    stopped.engine.peers[0]!.notify("Engine.RealtimeStop", { session_id: "s1" });
    await until("the session was closed", () => stopped.closed.length === 1);
    stopped.engine.peers[0]!.cut();
    const lost = await open();
    lost.engine.peers[0]!.cut();
    await until("the session was closed", () => lost.closed.length === 1);
    expect(lost.link.send({ type: "late" })).toBe(false);
    expect(stopped.closed).toHaveLength(1);
  });

  test("a refused start leaves nothing behind", async () => {
    const { backend } = await connect({
      handlers: {
        "Engine.RealtimeStart": () => {
          throw new RpcFailure(-32000, "no microphone");
        },
      },
    });
    const options = { sessionId: "s", model: "echo", config: {}, onEvent() {}, onClose() {} };
    expect((await failure(backend.realtime!.open(options, signal()))).message).toContain("no microphone");
  });
});

test("video tasks: start, poll, cancel", async () => {
  const { engine, backend } = await connect({
    capabilities: ["video"],
    handlers: {
      "Engine.VideoStart": () => ({ task_id: "t1" }),
      "Engine.VideoPoll": ({ params }) =>
        params.task_id === "t1"
          ? { state: "succeeded", result: { url: "http://127.0.0.1:1/v.mp4", width: 64, frames: 96 } }
          : { state: "vanished" },
      "Engine.VideoCancel": () => null,
    },
  });
  const request = {
    model: "v",
    prompt: "a cat",
    images: [],
    durationSeconds: 4,
    extra: { seed: 1, prompt: "no" },
  };
  expect(await backend.video!.submit(request, signal())).toBe("t1");
  expect(engine.of("Engine.VideoStart")[0]!.params).toEqual({
    model: "v",
    prompt: "a cat",
    images: [],
    duration_seconds: 4,
    seed: 1,
  });
  expect(await backend.video!.poll("t1", signal())).toEqual({
    state: "succeeded",
    result: { url: "http://127.0.0.1:1/v.mp4", mime_type: "video/mp4", width: 64 },
    made: { url: "http://127.0.0.1:1/v.mp4", mime_type: "video/mp4", width: 64, frames: 96 },
  });
  expect((await failure(backend.video!.poll("t2", signal()))).kind).toBe("transport");
  await backend.video!.cancel!("t1", signal());
  expect(engine.of("Engine.VideoCancel")[0]!.params).toEqual({ task_id: "t1" });
});
