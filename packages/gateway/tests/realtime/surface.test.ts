import { afterAll, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";

let gateway: TestGateway;
let upstream: RealtimeUpstream;
let token: string;
beforeAll(async () => {
  gateway = await bootGateway();
  upstream = startRealtimeUpstream("dashscope");
  token = await gateway.signIn("ada");
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({
      type: "cloud-realtime",
      name: "voice",
      url: upstream.url,
      api_key: "sk",
      models: ["omni", "gpt-4o-voice"],
    }),
  });
  await until("a model is served", () => gateway.app.rooms.routing.modelCount > 0);
});
afterAll(async () => {
  await gateway.stop();
  upstream.stop();
});
test("a session through the door: start, events, usage row, transcript, stop", async () => {
  const { id: conversation_id } = await gateway.rpc("conversations.create", {}, token);
  const started = await gateway.rpc(
    "realtime.start",
    { model: "omni", conversation_id, ref_id: "demo", config: { voice: "x" } },
    token,
  );
  const { session_id, stream_session } = started;
  const events = await fetch(`${gateway.url}/api/rpc/events?session=${stream_session}`);
  const reading = (async () => {
    let text = "";
    for await (const chunk of events.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(chunk);
      if (text.includes("session.closed")) return text;
    }
    return text;
  })();
  const send = (event: unknown) => gateway.rpc("realtime.event", { session_id, event }, token);
  expect(await send({ type: "input_audio_buffer.append", audio: "AAAA" })).toEqual({ ok: true });
  await send({ type: "response.create" });
  await until("the upstream is asked to respond", () =>
    upstream.received.some(({ type }) => type === "response.create"),
  );
  await until(
    "the transcript is stored",
    async () => (await gateway.rpc("conversations.get", { conversation_id }, token)).messages.length === 1,
  );
  expect(await gateway.rpc("realtime.stop", { session_id }, token)).toEqual({ removed: true });
  const text = await reading;
  for (const type of ["session.created", "session.updated", "response.audio.delta", "response.done"])
    expect(text).toContain(type);
  const { records } = await gateway.rpc("usage.list", {}, token);
  expect(records).toHaveLength(1);
  expect(records[0]).toMatchObject({
    model: "omni",
    backend: "realtime",
    prompt_tokens: 100,
    completion_tokens: 50,
    ref_id: "demo",
  });
  const { messages } = await gateway.rpc("conversations.get", { conversation_id }, token);
  expect(messages[0]).toMatchObject({ role: "assistant", content: "hello there" });
});

test("refusals: unknown event, foreign session, model without voice, long reference", async () => {
  const { session_id } = await gateway.rpc("realtime.start", { model: "omni" }, token);
  const wrong = await gateway.call(
    "realtime.event",
    { session_id, event: { type: "session.explode" } },
    token,
  );
  expect([wrong.error.code, wrong.error.data?.fields]).toEqual([-32602, ["event.type"]]);
  const other = await gateway.signIn("grace");
  expect(
    (await gateway.call("realtime.event", { session_id, event: { type: "response.create" } }, other)).error
      .code,
  ).toBe(-32000);
  expect(await gateway.rpc("realtime.stop", { session_id }, other)).toEqual({ removed: false });
  expect(await gateway.rpc("realtime.stop", { session_id }, token)).toEqual({ removed: true });
  expect((await gateway.call("realtime.start", { model: "no-such" }, token)).error.code).toBe(-32000);
  const long = await gateway.call("realtime.start", { model: "omni", ref_id: "x".repeat(65) }, token);
  expect(long.error.data?.fields).toEqual(["ref_id"]);
});

test("with the quota used up a session needs points that can pay for it", async () => {
  const { metering } = gateway.app.rooms;
  const drained = async (name: string) => {
    const person = await gateway.signIn(name);
    const { id: userId } = await gateway.rpc("auth.me", {}, person);
    const usage = { backend: "realtime", promptTokens: 0, completionTokens: 0, estimated: false, costUsd: 2 };
    const row = { requestId: crypto.randomUUID(), model: "m", refId: null };
    metering.record({ ...row, payer: await metering.payerOf({ userId }) }, usage);
    await until(
      "the quota is spent",
      async () => (await gateway.rpc("billing.plan", {}, person)).windows.signed_in.exceeded,
    );
    return person;
  };
  /** The code of the refusal, or 0. */
  const start = async (model: string, person: string): Promise<number> =>
    (await gateway.call("realtime.start", { model }, person)).error?.code ?? 0;

  const poor = await drained("poor");
  expect([await start("gpt-4o-voice", poor), await start("omni", poor)]).toEqual([-32006, -32006]);

  const rich = await drained("rich");
  const { id: group_id } = await gateway.rpc("group.create", { name: "g" }, token);
  const email = "rich@example.com";
  await gateway.rpc("group.members.add", { group_id, email }, token);
  await gateway.rpc("group.credits.topup", { group_id, points: 100 }, token);
  await gateway.rpc("group.credits.allocate", { group_id, user_id: email, points: 100 }, token);
  expect(await start("gpt-4o-voice", rich)).toBe(0);
  // This one has no price, so points cannot pay for it.
  expect(await start("omni", rich)).toBe(-32006);
});
