/** `GET /v1/realtime` with the realtime clients of the `openai` package. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer, type Server } from "node:tls";
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

  test("is answered by a key whose pace is small, since what it takes grows with the answer", async () => {
    const who = await person();
    const { key } = await bench.rpc("keys.create", { name: "slow", tokens_per_minute: 100 }, who.token);
    const { socket, heard } = connect({ ...who, key });
    await heard("session.created");
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

const openssl = Bun.which("openssl");
const node = Bun.which("node");
describe.if(openssl !== null && node !== null)("its OpenAIRealtimeWS on Node, over TLS", () => {
  const dir = mkdtempSync(join(tmpdir(), "gateway-realtime-"));
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  let proxy: Server;
  let address: string;

  /** It knows only wss: a proxy in front of the gateway speaks TLS. */
  beforeAll(async () => {
    const made = Bun.spawn(
      [
        ...[openssl!, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
        ...["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=gateway"],
        ...["-addext", "subjectAltName=IP:127.0.0.1"],
      ],
      { stderr: "ignore" },
    );
    expect(await made.exited).toBe(0);
    proxy = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (client) => {
      const gateway = connectTcp(Number(new URL(bench.url).port), "127.0.0.1");
      client.pipe(gateway).pipe(client);
      for (const [one, other] of [
        [client, gateway],
        [gateway, client],
      ] as const)
        one.on("error", () => other.destroy()).on("close", () => other.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    address = `https://127.0.0.1:${(proxy.address() as { port: number }).port}`;
  });
  afterAll(() => {
    proxy.close();
    rmSync(dir, { recursive: true, force: true });
  });

  // biome-ignore lint/suspicious/noExplicitAny: tests look into events freely
  async function run(apiKey: string, model = MODEL): Promise<any[]> {
    const child = Bun.spawn([node!, join(import.meta.dir, "node-client.mjs")], {
      env: {
        PATH: process.env.PATH,
        NODE_EXTRA_CA_CERTS: cert,
        GATEWAY: address,
        MODEL: model,
        OPENAI_API_KEY: apiKey,
      },
      stdout: "pipe",
      stderr: "inherit",
    });
    const text = await new Response(child.stdout).text();
    expect(await child.exited).toBe(0);
    return text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  }

  test("talks and is charged; the request record says what it did", async () => {
    const who = await person();
    const events = await run(who.key);
    expect(events.map(({ type }) => type)).toEqual([
      "session.created",
      "response.created",
      "response.output_audio.delta",
      "response.output_audio_transcript.done",
      "response.done",
      "closed",
    ]);
    expect(await who.rows()).toMatchObject([{ prompt_tokens: 100, completion_tokens: 50, model: MODEL }]);
    await until("the session has ended", () => bench.app.rooms.realtime.sessionCount === 0);
    const { records } = await bench.rpc("requests.list", {}, who.token);
    expect(records).toMatchObject([
      {
        surface: "/v1/realtime",
        outcome: "ok",
        status: 200,
        model: MODEL,
        backend: "voice",
        attempts: 1,
        prompt_tokens: 100,
        completion_tokens: 50,
        key_name: expect.any(String),
      },
    ]);
  });

  test("a wrong key and an unknown model are refused once, with a status", async () => {
    const sessions = upstream.models.length;
    const [refused] = await run("service-00000000-0000-4000-8000-000000000000");
    expect(refused).toMatchObject({ type: "failed", message: expect.stringContaining("401") });
    const who = await person();
    const [unknown] = await run(who.key, "nobody");
    expect(unknown).toMatchObject({ type: "failed", message: expect.stringContaining("404") });
    expect(upstream.models.length).toBe(sessions);
    const { records } = await bench.rpc("requests.list", {}, who.token);
    expect(records).toMatchObject([
      { surface: "/v1/realtime", status: 404, model_asked: "nobody", client_ip: "127.0.0.1" },
    ]);
  });
});

const plain = (who: Pick<Spender, "key">, query: string, headers: Record<string, string> = {}) =>
  fetch(`${bench.url}/v1/realtime${query}`, { headers: { authorization: `Bearer ${who.key}`, ...headers } });

test("refusals are statuses, as on every other path", async () => {
  const who = await person();
  expect((await plain({ key: "service-none" }, `?model=${MODEL}`)).status).toBe(401);
  expect((await plain(who, "")).status).toBe(400);
  for (const other of ["intent=transcription", "call_id=rtc_1"]) {
    const refused = await plain(who, `?model=${MODEL}&${other}`, HANDSHAKE);
    expect(refused.status).toBe(400);
    expect(await refused.text()).toContain(`\`${other.split("=")[0]}\``);
  }
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

test("a model route leads to a model, and past a target that opens no session", async () => {
  const closed = Bun.serve({ port: 0, fetch: () => new Response("not today", { status: 403 }) });
  await bench.addBackend({
    type: "cloud-realtime",
    name: "closed",
    url: `ws://127.0.0.1:${closed.port}/v1/realtime`,
    models: ["voice-test-dear-closed"],
  });
  const targets = [{ model: "voice-test-dear-closed" }, { model: MODEL, order: 2 }];
  await bench.rpc("routes.set", { name: "any-voice", targets }, bench.token);
  const who = await person();
  const { socket, heard } = connect(who, "any-voice");
  await heard("session.created");
  expect(upstream.models.at(-1)).toBe(MODEL);
  socket.send({ type: "response.create" });
  await heard("response.done");
  socket.close();
  await until("the session has ended", () => bench.app.rooms.realtime.sessionCount === 0);
  expect(await who.rows()).toMatchObject([{ model: MODEL, prompt_tokens: 100 }]);
  const { records } = await bench.rpc("requests.list", {}, who.token);
  expect(records).toMatchObject([
    {
      outcome: "ok",
      model_asked: "any-voice",
      model: MODEL,
      backend: "voice",
      attempts: 2,
      failed_attempts: [{ backend: "closed" }],
    },
  ]);
  closed.stop(true);
});

test("of a model route, a key takes only the targets that it may use", async () => {
  await bench.rpc("routes.set", { name: "one-voice", targets: [{ model: MODEL }] }, bench.token);
  const { key } = await bench.rpc(
    "keys.create",
    { name: "other", allowed_models: ["something-else"] },
    bench.token,
  );
  const upgrade = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
  };
  const refusal = await plain({ key }, "?model=one-voice", upgrade);
  expect(refusal.status).toBe(403);
  expect((await refusal.json()).error.message).toContain("one-voice");
});
