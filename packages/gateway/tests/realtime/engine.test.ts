import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import {
  RpcFailure,
  type RpcHandler,
  type RpcSocketServer,
} from "@model-gateway/testing/rpc-socket-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startFakeEngine } from "../support/engine.ts";

type Event = Record<string, unknown>;
type Session = { session_id: string; stream_session: string };

const AUDIO_BYTES = 48_000;
const audio = () => Buffer.from(crypto.getRandomValues(new Uint8Array(AUDIO_BYTES))).toString("base64");
/** What the engine says in its next answers. */
interface Answer {
  deltas: string[];
  transcript: string;
  usage: { input_tokens: number; output_tokens: number } | null;
}
const answers: Answer[] = [];

/** An engine's voice: it answers response.create with audio, what it said in it, and what that took. */
const speak: RpcHandler = ({ params: { session_id, event }, peer }) => {
  const say = (said: Event) => peer.notify("Engine.RealtimeEvent", { session_id, event: said });
  if (event.type !== "response.create") return;
  const { deltas, transcript, usage } = answers.shift()!;
  say({ type: "response.created", response: { id: "r1", status: "in_progress" } });
  for (const delta of deltas) say({ type: "response.output_audio.delta", response_id: "r1", delta });
  say({ type: "response.output_audio_transcript.done", response_id: "r1", transcript });
  say({ type: "response.done", response: { id: "r1", status: "completed", usage } });
};

let gateway: TestGateway;
let engine: RpcSocketServer;
let ada: string;
let grace: string;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  gateway = await bootGateway({ deployment: null });
  ada = await gateway.signIn("ada");
  grace = await gateway.signIn("grace");
  engine = startFakeEngine({
    models: [
      { id: "voice", capabilities: ["chat", "realtime"] },
      { id: "mute", capabilities: ["realtime"] },
      { id: "writer", capabilities: ["chat"] },
    ],
    handlers: {
      "Engine.RealtimeEvent": speak,
      "Engine.RealtimeStart": ({ params }) => {
        if (params.model === "mute") throw new RpcFailure(-32000, "no microphone");
        return { session_id: params.session_id };
      },
    },
  });
  const deaf = startFakeEngine({ capabilities: ["chat"], models: [{ id: "deaf" }] });
  cleanups.push(() => deaf.stop());
  await register("voices", engine.url, "writer");
  await register("chats", deaf.url, "deaf");
});
afterEach(() => {
  answers.length = 0;
});
afterAll(async () => {
  await gateway.stop();
  await engine.stop();
  for (const cleanup of cleanups) await cleanup();
});

async function register(name: string, url: string, model: string) {
  const response = await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ type: "engine", name, url }),
  });
  expect(response.status).toBe(200);
  await until(`${model} is routable`, async () => {
    const { data } = (await (await fetch(`${gateway.url}/v1/models`)).json()) as { data: { id: string }[] };
    return data.some(({ id }) => id === model);
  });
}

const start = (params: object = {}, token = ada) =>
  gateway.rpc<Session>("realtime.start", { model: "voice", ...params }, token);
const send = ({ session_id }: Session, event: Event, token = ada) =>
  gateway.call("realtime.event", { session_id, event }, token);
const stop = ({ session_id }: Session, token = ada) => gateway.rpc("realtime.stop", { session_id }, token);

/** The session's events as a subscriber gets them, complete once it was closed. */
async function listen({
  stream_session,
  session_id,
}: Session): Promise<{ events: Event[]; closed: Promise<void> }> {
  const stream = await fetch(`${gateway.url}/api/rpc/events?session=${stream_session}`);
  const events: Event[] = [];
  const read = async () => {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of stream.body as unknown as AsyncIterable<Uint8Array>) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (!line.startsWith("data: ")) continue;
        const { method, params } = JSON.parse(line.slice(6));
        expect([method, params.session_id]).toEqual(["realtime.event", session_id]);
        events.push(params.event);
      }
      if (events.at(-1)?.type === "session.closed") return;
    }
  };
  return { events, closed: read() };
}

const rowsOf = async (token: string) =>
  (await gateway.rpc<{ records: Event[] }>("usage.list", {}, token)).records;

test("speech both ways untouched, transcripts kept, a row for each answer that took tokens", async () => {
  const { id: conversation_id } = await gateway.rpc("conversations.create", {}, ada);
  const session = await start({ conversation_id, config: { voice: "alto", audio: { a: [1, null] } } });
  expect(engine.of("Engine.RealtimeStart").at(-1)!.params).toEqual({
    session_id: session.session_id,
    model: "voice",
    config: { voice: "alto", audio: { a: [1, null] } },
  });
  const { events, closed } = await listen(session);
  const said: Answer[] = [
    {
      deltas: Array.from({ length: 20 }, audio),
      transcript: "hello there",
      usage: { input_tokens: 100, output_tokens: 50 },
    },
    { deltas: [], transcript: "", usage: { input_tokens: 0, output_tokens: 0 } },
    { deltas: [audio()], transcript: "goodbye", usage: { input_tokens: 7, output_tokens: 3 } },
    { deltas: [audio()], transcript: "nothing counted", usage: null },
  ];
  answers.push(...said);
  const spoken = Array.from({ length: 20 }, () => ({
    type: "input_audio_buffer.append",
    audio: audio(),
    more: { kept: true },
  }));
  for (const event of spoken) expect((await send(session, event)).result).toEqual({ ok: true });
  for (const _ of said)
    expect((await send(session, { type: "response.create" })).result).toEqual({ ok: true });
  await until(
    "all is said",
    () => events.filter(({ type }) => type === "response.done").length === said.length,
  );

  const heard = engine
    .of("Engine.RealtimeEvent")
    .filter(({ params }) => params.session_id === session.session_id)
    .map(({ params }) => params.event);
  expect(heard.slice(0, spoken.length)).toEqual(spoken);
  const deltas = events.filter(({ type }) => type === "response.output_audio.delta");
  expect(deltas.map(({ delta }) => delta)).toEqual(said.flatMap((answer) => answer.deltas));

  const kept = async () =>
    (await gateway.rpc("conversations.get", { conversation_id }, ada)).messages as Event[];
  await until("transcripts are kept", async () => (await kept()).length === 3);
  const messages = (await kept()).map(({ role, content }) => ({ role, content }));
  expect(messages).toEqual(
    ["hello there", "goodbye", "nothing counted"].map((content) => ({ role: "assistant", content })),
  );

  expect(await stop(session)).toEqual({ removed: true });
  await closed;
  expect(events.at(-1)).toMatchObject({ type: "session.closed", reason: "stopped" });
  await until("the engine is told", () =>
    engine.of("Engine.RealtimeStop").some(({ params }) => params.session_id === session.session_id),
  );
  expect(await stop(session)).toEqual({ removed: false });
  expect((await send(session, { type: "response.create" })).error.code).toBe(-32000);
  await until("rows are written", async () => (await rowsOf(ada)).length >= 3);
  const rows = (await rowsOf(ada)).map(({ model, backend, prompt_tokens, completion_tokens, ref_id }) => ({
    model,
    backend,
    prompt_tokens,
    completion_tokens,
    ref_id,
  }));
  const row = { model: "voice", backend: "realtime", ref_id: null };
  expect(rows).toHaveLength(3);
  expect(rows).toContainEqual({ ...row, prompt_tokens: 100, completion_tokens: 50 });
  expect(rows).toContainEqual({ ...row, prompt_tokens: 7, completion_tokens: 3 });
  // Where the engine reports nothing, the count stands: it read the ten tokens of the answer before, and said
  // two words in a second.
  expect(rows).toContainEqual({ ...row, prompt_tokens: 10, completion_tokens: 29 });
});

test("with a reference, answers without tokens have their rows too", async () => {
  const session = await start({ ref_id: "call-7" }, grace);
  const { closed } = await listen(session);
  answers.push(
    { deltas: [], transcript: "", usage: { input_tokens: 0, output_tokens: 0 } },
    { deltas: [], transcript: "", usage: null },
  );
  for (let i = 0; i < 2; i++) await send(session, { type: "response.create" }, grace);
  await until("both rows", async () => (await rowsOf(grace)).length === 2);
  for (const row of await rowsOf(grace))
    expect(row).toMatchObject({ ref_id: "call-7", total_tokens: 0, backend: "realtime" });
  // The client's own event ends a session as well.
  expect((await send(session, { type: "session.stop" }, grace)).result).toEqual({ ok: true });
  await closed;
  expect(await stop(session, grace)).toEqual({ removed: false });
});

test("a stranger can neither speak in a session nor end it, nor write into another's conversation", async () => {
  const session = await start();
  const intruding = await send(session, { type: "response.create" }, grace);
  expect([intruding.error.code, intruding.error.message]).toEqual([
    -32000,
    expect.stringContaining("not found"),
  ]);
  expect(await stop(session, grace)).toEqual({ removed: false });
  const { id: conversation_id } = await gateway.rpc("conversations.create", {}, ada);
  const starts = engine.of("Engine.RealtimeStart").length;
  const refused = await gateway.call("realtime.start", { model: "voice", conversation_id }, grace);
  expect(refused.error.code).toBe(-32000);
  expect(engine.of("Engine.RealtimeStart")).toHaveLength(starts);
  expect(await stop(session)).toEqual({ removed: true });
});

test("models and engines without voice are refused, without falling back to text", async () => {
  for (const model of ["writer", "deaf"]) {
    const { error } = await gateway.call("realtime.start", { model }, ada);
    expect([error.code, error.message]).toEqual([
      -32000,
      expect.stringContaining("does not support realtime sessions"),
    ]);
  }
  const unknown = await gateway.call("realtime.start", { model: "voice", config: { webhook: "x" } }, ada);
  expect(unknown.error).toMatchObject({ code: -32602, data: { fields: ["config.webhook"] } });
  const { error } = await gateway.call("realtime.start", { model: "mute" }, ada);
  expect(error.message).toContain("no microphone");
  expect(gateway.app.rooms.realtime.sessionCount).toBe(0);
  expect(engine.received.filter(({ method }) => method.startsWith("Engine.Chat"))).toEqual([]);
});

test("a session ends with the engine's word or its connection; the next one connects again", async () => {
  const ended = await start();
  const other = await start();
  const [endedStream, otherStream] = [await listen(ended), await listen(other)];
  const peer = engine.of("Engine.RealtimeStart").at(-1)!.peer;
  peer.notify("Engine.RealtimeStop", { session_id: ended.session_id });
  await endedStream.closed;
  expect(endedStream.events.at(-1)!.reason).toContain("engine ended");
  expect((await send(ended, { type: "response.create" })).error.code).toBe(-32000);
  expect((await send(other, { type: "input_audio_buffer.clear" })).result).toEqual({ ok: true });

  peer.cut();
  await otherStream.closed;
  expect(gateway.app.rooms.realtime.sessionCount).toBe(0);
  const handshakes = engine.of("Engine.Handshake").length;
  const again = await start();
  expect(engine.of("Engine.Handshake").length).toBeGreaterThan(handshakes);
  expect(await stop(again)).toEqual({ removed: true });
});

test("an engine that stops reading fills the queue: an error, not a leak, and it goes on afterwards", async () => {
  const script = join(import.meta.dir, "../support/engine-process.ts");
  const child = Bun.spawn([process.execPath, script], { stdout: "pipe", stderr: "inherit" });
  cleanups.push(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  const { value } = await child.stdout.getReader().read();
  await register("stuck", new TextDecoder().decode(value).trim(), "voice-2");
  const session = await start({ model: "voice-2" });
  const { events, closed } = await listen(session);
  const frame = { type: "input_audio_buffer.append", audio: Buffer.alloc(600_000, 7).toString("base64") };
  child.kill("SIGSTOP");
  let refused: { code: number; message: string } | undefined;
  let taken = 0;
  for (; !refused && taken < 64; taken++) refused = (await send(session, frame)).error;
  expect(refused).toMatchObject({ code: -32000, message: expect.stringContaining("queue is full") });
  child.kill("SIGCONT");
  await until(
    "what was taken arrives",
    () => events.filter(({ type }) => type === "heard").length === taken - 1,
  );
  expect((await send(session, { type: "response.create" })).result).toEqual({ ok: true });
  await until("it goes on", () => events.length === taken);
  expect(await stop(session)).toEqual({ removed: true });
  await closed;
}, 60_000);
