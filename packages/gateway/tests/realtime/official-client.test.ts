/** `GET /v1/realtime` with the realtime client of the `openai` package. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { bootSpending, type Spender, type SpendingBench } from "../support/spending.ts";

/** By its name, at five dollars a million tokens of input, and thirty of output. */
const MODEL = "voice-test-dear";
const PlainSocket = globalThis.WebSocket;
let bench: SpendingBench;
let upstream: RealtimeUpstream;
let count = 0;

beforeAll(async () => {
  // The client knows only wss, and there is no TLS between it and a gateway on the same machine.
  globalThis.WebSocket = class extends PlainSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(String(url).replace(/^wss:/, "ws:"), protocols);
    }
  } as typeof WebSocket;
  bench = await bootSpending();
  upstream = startRealtimeUpstream("openai");
  await bench.addBackend({ type: "cloud-realtime", name: "voice", url: upstream.url, models: [MODEL] });
});
afterEach(async () => {
  await until("no session is left", () => bench.app.rooms.realtime.sessionCount === 0);
});
afterAll(async () => {
  globalThis.WebSocket = PlainSocket;
  await bench.stop();
  upstream.stop();
});

const person = (points = 1_000) => bench.spender(`caller-${++count}`, { points, drained: true });
function connect({ key }: { key: string }, model = MODEL) {
  const client = new OpenAI({ apiKey: key, baseURL: `${bench.url}/v1` });
  const socket = new OpenAIRealtimeWebSocket({ model }, client);
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events freely
  const events: any[] = [];
  const errors: Error[] = [];
  const closes: { code: number; reason: string }[] = [];
  socket.on("event", (event) => void events.push(event));
  socket.on("error", (error) => void errors.push(error));
  socket.socket.addEventListener("close", ({ code, reason }) => void closes.push({ code, reason }));
  const heard = (type: string) => until(type, () => events.some((event) => event.type === type));
  return { socket, events, errors, closes, heard };
}
const text = (words: string) => ({
  type: "conversation.item.create" as const,
  item: {
    type: "message" as const,
    role: "user" as const,
    content: [{ type: "input_text" as const, text: words }],
  },
});

describe("the openai client", () => {
  test("opens a session, talks, and each response is charged to its key", async () => {
    const who = await person();
    const { socket, events, heard, closes } = connect(who);
    await heard("session.created");
    expect(socket.socket.protocol).toBe("realtime");
    socket.send(text("good morning"));
    socket.send({ type: "response.create" });
    await heard("response.done");
    expect(events.map(({ type }) => type)).toContain("response.output_audio.delta");
    expect(upstream.received.map(({ type }) => type)).toEqual([
      "conversation.item.create",
      "response.create",
    ]);
    const [row] = await who.rows();
    expect(row).toMatchObject({
      backend: "realtime",
      prompt_tokens: 100,
      completion_tokens: 50,
      model: MODEL,
    });
    expect(row.api_key_id).toBe(who.key.slice(8, 16));
    socket.close();
    await until("the upstream is left", () => upstream.sessions() === 0);
    await until("it is closed", () => closes.length === 1);
  });

  test("is told of events that do not pass, and goes on", async () => {
    const { socket, errors, heard } = connect(await person());
    await heard("session.created");
    socket.socket.send('{"type":"transcription_session.update","event_id":"mine"}');
    socket.socket.send("no JSON");
    socket.send({ type: "session.update", session: { type: "realtime", model: "gpt-dear" } });
    await until("three errors", () => errors.length === 3);
    expect(errors[0]!.message).toContain("event_id=mine");
    socket.send({ type: "response.create" });
    await heard("response.done");
    socket.close();
  });

  test("gets what was said before the last points ran out, and why it ends", async () => {
    const who = await person(1);
    const { socket, errors, closes, heard } = connect(who);
    await heard("session.created");
    // A prompt that costs more than a point, which is a cent: 2,000 tokens.
    socket.send(text("word ".repeat(4_000)));
    socket.send({ type: "response.create" });
    await until("it is closed", () => closes.length === 1);
    expect(closes[0]!.code).toBe(1008);
    expect(errors[0]!.message).toContain("payment_required");
    expect(await who.charged()).toBe(0);
  });

  test("is refused with a wrong key, without a model, and where nothing can be paid", async () => {
    for (const [key, model] of [
      ["service-00000000-0000-4000-8000-000000000000", MODEL],
      [(await person(0)).key, MODEL],
      [(await person()).key, "nobody"],
    ] as const) {
      const { closes, events } = connect({ key }, model);
      await until("it is closed", () => closes.length === 1);
      expect(events).toEqual([]);
    }
  });
});

const plain = (who: Pick<Spender, "key">, query: string, headers: Record<string, string> = {}) =>
  fetch(`${bench.url}/v1/realtime${query}`, { headers: { authorization: `Bearer ${who.key}`, ...headers } });

test("refusals are statuses, as on every other path", async () => {
  const who = await person();
  expect((await plain({ key: "service-none" }, `?model=${MODEL}`)).status).toBe(401);
  expect((await plain(who, "")).status).toBe(400);
  expect((await plain(who, `?model=${MODEL}`)).status).toBe(426);
  const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "12" };
  expect((await plain(who, `?model=${MODEL}`, upgrade)).status).toBe(426);
  expect(upstream.sessions()).toBe(0);
});

const HANDSHAKE = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

test("a revoked, an unknown and no key are 401, whatever else is wrong with the handshake", async () => {
  const who = await person();
  const [{ id }] = await bench.rpc("keys.list", {}, who.token);
  await bench.rpc("keys.revoke", { key_id: id }, who.token);
  const unknown = "service-00000000-0000-4000-8000-000000000000";
  for (const key of [who.key, unknown, "service-none", "x"])
    for (const query of [`?model=${MODEL}`, "", "?model=nobody"])
      for (const headers of [
        HANDSHAKE,
        { ...HANDSHAKE, "sec-websocket-version": "12" },
        { ...HANDSHAKE, "sec-websocket-key": "short" },
        {
          ...HANDSHAKE,
          authorization: "",
          "sec-websocket-protocol": `realtime, openai-insecure-api-key.${key}`,
        },
        { ...HANDSHAKE, authorization: "" },
      ])
        expect([headers, (await plain({ key }, query, headers)).status]).toEqual([headers, 401]);
});

test.each([
  ["a budget", { total_budget_usd: 0 }, "budget"],
  ["a pace", { requests_per_minute: 1 }, "requests a minute"],
  ["other models", { allowed_models: ["another"] }, "may not use"],
  ["an end", { expires_at: "soon" }, "expired"],
])(
  "a key that gets %s while its session is open is held to it from the next response on",
  async (_, limits, words) => {
    const who = await person();
    const { socket, errors, events, heard } = connect(who);
    await heard("session.created");
    socket.send({ type: "response.create" });
    await heard("response.done");
    const [{ id }] = await bench.rpc("keys.list", {}, who.token);
    const endsAtMs = Date.now() + 1_000;
    const given = "expires_at" in limits ? { expires_at: new Date(endsAtMs).toISOString() } : limits;
    await bench.rpc("keys.update", { key_id: id, ...given }, who.token);
    if ("expires_at" in limits) await until("the key has expired", () => Date.now() > endsAtMs);
    // The opening was the first request of this minute.
    for (let i = 0; i < 3; i++) socket.send({ type: "response.create" });
    await until("it is refused", () => errors.some(({ message }) => message.includes(words)));
    socket.close();
    expect(events.filter(({ type }) => type === "response.done").length).toBeLessThanOrEqual(2);
  },
);

test("an alias that leads to an alias does not lead around the key's models", async () => {
  const who = await person();
  const alias = async (alias: string, target: string) =>
    expect((await bench.admin("POST", "/aliases", { alias, target })).status).toBe(200);
  await alias("first", "second");
  await alias("second", MODEL);
  const { key } = await bench.rpc("keys.create", { name: "k", allowed_models: ["second"] }, who.token);
  expect((await plain({ key }, "?model=first", HANDSHAKE)).status).not.toBe(101);
  expect(upstream.sessions()).toBe(0);
});

test("a key that is revoked ends its session", async () => {
  const who = await person();
  const { closes, heard } = connect(who);
  await heard("session.created");
  const [key] = await bench.rpc("keys.list", {}, who.token);
  await bench.rpc("keys.revoke", { key_id: key.id }, who.token);
  await until("it is closed", () => closes.length === 1);
  expect(closes[0]!.code).toBe(1008);
});

test("a group's model rules hold", async () => {
  const { id: group_id } = await bench.rpc("group.create", { name: "quiet" }, bench.token);
  await bench.rpc("group.models.deny", { group_id, model_ids: [MODEL] }, bench.token);
  const { key } = await bench.rpc("keys.create", { name: "g", group_id }, bench.token);
  expect((await plain({ key }, `?model=${MODEL}`, HANDSHAKE)).status).toBe(403);
});
