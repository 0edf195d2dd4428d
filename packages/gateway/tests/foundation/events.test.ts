import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { type HttpRequest, Reply, type StreamedReply } from "@model-gateway/wire/http";
import { z } from "zod";
import { BusEventHub } from "../../src/bus/event-hub.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { defineNotification } from "../../src/kernel/method.ts";
import { EventsTransport } from "../../src/transports/events/sse.ts";

let gateway: TestGateway;
let token: string;
beforeAll(async () => {
  gateway = await bootGateway();
  token = await gateway.signIn("ada");
});
afterAll(() => gateway.stop());

async function* lines(response: Response): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of response.body!.pipeThrough(
    new TextDecoderStream() as never,
  ) as unknown as AsyncIterable<string>) {
    const parts = (rest + chunk).split("\n\n");
    rest = parts.pop()!;
    // Ids are looked at in conformance/notifications.
    yield* parts.map((part) => part.replace(/^id: .*\n?|\nid: .*$/gm, ""));
  }
}

test("a response is pushed onto the session named by x-session-id, and to the caller too", async () => {
  const session = crypto.randomUUID();
  const events = await fetch(`${gateway.url}/api/rpc/events?session=${session}`);
  expect(events.headers.get("content-type")).toContain("text/event-stream");
  expect(events.headers.get("cache-control")).toBe("no-cache, no-transform");
  expect(events.headers.get("x-accel-buffering")).toBe("no");
  const stream = lines(events);
  expect((await stream.next()).value).toBe(": subscribed");
  const body = '{"jsonrpc":"2.0","id":9007199254740993,"method":"auth.me"}';
  const answer = await fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${token}`,
      "x-session-id": session,
    },
    body,
  });
  expect((await stream.next()).value).toBe(`data: ${await answer.text()}`);
  await stream.return(undefined);
});

test("a session is required", async () => {
  const response = await fetch(`${gateway.url}/api/rpc/events`);
  expect(response.status).toBe(400);
  expect((await response.json()).error.message).toContain("`session`");
});

const ticked = defineNotification({
  name: "test.ticked",
  summary: "Counts",
  params: z.object({ i: z.int() }),
});
const isInForce = async () => true;
const nobody = { identify: () => ({ actor: null, adminToken: false }), isInForce, mayGoOn: isInForce };
const user = (userId: string) => ({
  identify: () => ({ actor: { userId, email: "", name: "", isAdmin: false }, adminToken: false }),
  isInForce,
  mayGoOn: isInForce,
});
const revocations = { onChange() {} };

function hub(clock = new ManualClock()) {
  return { clock, events: new BusEventHub(new InProcessBus(), clock, randomIds) };
}
/** A reply as the client of a test reads it. */
function responseOf(reply: Reply | StreamedReply): Response {
  const { status } = reply.head;
  if (reply instanceof Reply) return new Response(String(reply.body), { status });
  const { source } = reply;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) =>
      source.begin({
        write: (bytes) => {
          controller.enqueue(Buffer.from(bytes as Uint8Array));
          return true;
        },
        end: () => controller.close(),
        terminate: () => controller.error(new Error("the reply was cut off")),
      }),
    cancel: () => source.left(),
  });
  return new Response(body, { status });
}

async function subscribeTo(transport: EventsTransport, session: string): Promise<Response> {
  const request: HttpRequest = {
    isHttp10: false,
    method: "GET",
    path: "/api/rpc/events",
    search: `session=${session}`,
    header: () => null,
    headersLike: () => ({}),
    body: () => Buffer.alloc(0),
    signal: new AbortController().signal,
    whenGone() {},
    vouch() {},
  };
  return responseOf(
    await transport.handle(request, { query: new URLSearchParams({ session }), requestId: "r" }),
  );
}

test("nothing emitted before the subscription is delivered, everything after it is, in order", async () => {
  const { events, clock } = hub();
  const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
  const stream = events.open({ userId: "user-1" });
  stream.emit(ticked, { i: -1 });
  // Nobody came within the second that it waits.
  clock.advance(1_000);
  const received = lines(await subscribeTo(transport, stream.sessionId));
  await received.next();
  for (let i = 0; i < 3; i++) stream.emit(ticked, { i });
  for (let i = 0; i < 3; i++) {
    expect((await received.next()).value).toBe(
      `data: {"jsonrpc":"2.0","method":"test.ticked","params":{"i":${i}}}`,
    );
  }
});

test("emission waits for a subscriber, but no longer than one second", async () => {
  const { events, clock } = hub();
  const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
  let heard = false;
  const waiting = events.open({ userId: "user-1" });
  const done = waiting.whenHeard().then(() => {
    heard = true;
  });
  clock.advance(999);
  await Bun.sleep(5);
  expect(heard).toBe(false);
  clock.advance(1);
  await done;

  const early = crypto.randomUUID();
  await subscribeTo(transport, early);
  await events.open({ userId: "user-1" }, early).whenHeard();

  const late = events.open({ userId: "user-1" });
  const attached = late.whenHeard();
  await subscribeTo(transport, late.sessionId);
  await attached;
});

test("someone else's session is not found; without a token its id is the right to it", async () => {
  const { events, clock } = hub();
  const stream = events.open({ userId: "owner" });
  const as = (authenticator: ConstructorParameters<typeof EventsTransport>[0]["authenticator"]) =>
    subscribeTo(new EventsTransport({ events, authenticator, revocations, clock }), stream.sessionId);
  expect((await as(user("stranger"))).status).toBe(404);
  expect((await as(user("owner"))).status).toBe(200);
  expect((await as(nobody)).status).toBe(200);
});

test("keep-alive comments come every 15 seconds", async () => {
  const { events, clock } = hub();
  const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
  const received = lines(await subscribeTo(transport, "quiet"));
  await received.next();
  clock.advance(15_000);
  expect((await received.next()).value).toBe(": keep-alive");
});

inOneProcess("a subscriber that does not read is cut off at a bounded buffer; the others go on", async () => {
  const session = crypto.randomUUID();
  const good = lines(await fetch(`${gateway.url}/api/rpc/events?session=${session}`));
  await good.next();
  const slow = connect(gateway.app.port, "127.0.0.1");
  slow.on("error", () => {});
  slow.write(`GET /api/rpc/events?session=${session} HTTP/1.1\r\nhost: x\r\n\r\n`);
  await new Promise((resolve) => slow.once("data", resolve));
  slow.pause();
  const metric = async () =>
    Number(/gateway_event_subscribers (\d+)/.exec(await (await fetch(`${gateway.url}/metrics`)).text())![1]);
  expect(await metric()).toBeGreaterThanOrEqual(2);
  const before = await metric();
  const pad = "x".repeat(500_000);
  for (let i = 0; i < 60 && (await metric()) === before; i++) {
    await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-session-id": session },
      body: JSON.stringify({ jsonrpc: "2.0", id: pad, method: "system.status" }),
    });
    expect((await good.next()).value).toContain('"requests_total"');
  }
  expect(await metric()).toBe(before - 1);
  slow.destroy();
});

test("a subscriber that leaves is forgotten", async () => {
  const { events, clock } = hub();
  const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
  const response = await subscribeTo(transport, "gone");
  const reader = response.body!.getReader();
  await reader.read();
  expect(transport.subscriberCount).toBe(1);
  await reader.cancel();
  expect(transport.subscriberCount).toBe(0);
});

describe("an instance that stops", () => {
  test("ends streams at once when nothing is under way", async () => {
    const { events, clock } = hub();
    const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
    const response = await subscribeTo(transport, crypto.randomUUID());
    transport.retire(() => false);
    expect(await response.text()).toBe(": subscribed\nid: 0\n\n");
    expect(transport.subscriberCount).toBe(0);
  });

  test("otherwise those on which nothing has come for 3 s, and the others when they fall silent", async () => {
    const { events, clock } = hub();
    const transport = new EventsTransport({ events, authenticator: nobody, revocations, clock });
    const stream = events.open({ userId: "user-1" });
    const [spoken, silent] = [stream.sessionId, crypto.randomUUID()];
    const responses = [await subscribeTo(transport, spoken), await subscribeTo(transport, silent)];
    transport.retire(() => true);
    for (let i = 0; i < 8; i++) {
      clock.advance(400);
      stream.emit(ticked, { i });
    }
    expect(transport.subscriberCount).toBe(1);
    expect(await responses[1]!.text()).toBe(": subscribed\nid: 0\n\n");
    clock.advance(3_500);
    expect(transport.subscriberCount).toBe(0);
    expect(await responses[0]!.text()).toEndWith('"params":{"i":7}}\n\n');
  });
});

test("what is called without signing in, or with the admin token, also reaches a signed-in reader of the session", async () => {
  const bob = await gateway.signIn("bob-reads");
  for (const authorization of [null, `Bearer ${ADMIN_TOKEN}`, `Bearer ${bob}`, null]) {
    const session = crypto.randomUUID();
    const events = await fetch(`${gateway.url}/api/rpc/events?session=${session}`, {
      headers: { authorization: `Bearer ${bob}` },
    });
    const stream = lines(events);
    expect((await stream.next()).value).toBe(": subscribed");
    const answer = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-session-id": session,
        ...(authorization && { authorization }),
      },
      body: '{"jsonrpc":"2.0","id":1,"method":"system.status"}',
    });
    expect((await stream.next()).value).toBe(`data: ${await answer.text()}`);
    await stream.return(undefined);
  }
});
