/** What callers who are not signed in may hold: never what a signed-in one would miss. */
import { afterEach, expect, test } from "bun:test";
import net from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { everywhere } from "@model-gateway/testing/deployment.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { networkOf } from "@model-gateway/wire/server";

/** Of each process. */
const CONNECTIONS_MAX = 60;
const SESSION = "00000000-0000-4000-8000-000000000000";
const STREAM = `GET /api/rpc/events?session=${SESSION} HTTP/1.1\r\nhost: localhost\r\n\r\n`;

let gateway: TestGateway;
const sockets: net.Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await gateway.stop();
});

interface Held {
  isOpen: boolean;
  received: string;
}

/** A connection that has sent this and waits; from another address where one is given. */
async function hold(text: string, localAddress = "127.0.0.1"): Promise<Held> {
  const { port } = new URL(gateway.url);
  const socket = net.connect({ host: "127.0.0.1", port: Number(port), localAddress });
  sockets.push(socket);
  const held: Held = { isOpen: true, received: "" };
  socket.on("data", (bytes) => {
    held.received += bytes;
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    held.isOpen = false;
  });
  await new Promise((resolve) => socket.once("connect", resolve));
  socket.write(text);
  return held;
}

const holders: [string, string][] = [
  ["event streams", STREAM],
  ["half-sent heads", "GET /v1/models HTTP/1.1\r\nhost: local"],
  ["half-sent bodies", "POST /api/rpc HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"],
  ["silence", ""],
];

test.each(holders)("62 connections with %s from one address keep nobody out", async (_, text) => {
  gateway = await bootGateway({ config: { connectionsMax: CONNECTIONS_MAX }, deployment: null });
  const token = await gateway.signIn("ada");
  const held: Held[] = [];
  for (let i = 0; i < CONNECTIONS_MAX + 2; i++) held.push(await hold(text));
  await until("most of them ended", () => held.filter(({ isOpen }) => isOpen).length <= CONNECTIONS_MAX / 4);
  for (let i = 0; i < 20; i++) {
    const response = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      // A connection of its own each time, as 20 different people have.
      headers: { "content-type": "application/json", authorization: `Bearer ${token}`, connection: "close" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" }),
    });
    expect(response.status).toBe(200);
    expect((await response.json()).result.email).toBe("ada@example.com");
  }
});

test("many addresses together have half of the connections, and those who are signed in keep theirs", async () => {
  gateway = await bootGateway({ config: { connectionsMax: CONNECTIONS_MAX }, deployment: null });
  const token = await gateway.signIn("ada");
  const mine: Held[] = [];
  for (let i = 0; i < CONNECTIONS_MAX / 2; i++) {
    const authorized = STREAM.replace("\r\n\r\n", `\r\nauthorization: Bearer ${token}\r\n\r\n`);
    const stream = await hold(authorized.replace(SESSION, `s${i}`));
    mine.push(stream);
    // Until it is known who they are, they are strangers of one address, and too many of those are closed.
    await until("it is subscribed", () => stream.received.includes(": subscribed"));
  }
  const strangers: Held[] = [];
  for (let i = 0; i < 100; i++)
    strangers.push(await hold(STREAM.replace(SESSION, `x${i}`), `127.0.1.${i + 1}`));
  await until("half are left", () => strangers.filter(({ isOpen }) => isOpen).length <= CONNECTIONS_MAX / 2);
  expect(mine.every(({ isOpen }) => isOpen)).toBe(true);
  expect((await gateway.rpc("auth.me", {}, token)).email).toBe("ada@example.com");
});

test("an event stream of someone unknown ends when nobody opens its session for a minute", async () => {
  const clock = new ManualClock();
  gateway = await bootGateway({ overrides: { clock } });
  // Then each process knows what the others know.
  clock.advance(1_000);
  const token = await gateway.signIn("ada");
  const idle = await hold(STREAM);
  const mine = await hold(
    STREAM.replace("\r\n\r\n", `\r\nauthorization: Bearer ${token}\r\n\r\n`).replace(SESSION, "mine"),
  );
  const opened = await hold(STREAM.replace(SESSION, "opened"));
  await until("all are subscribed", () =>
    [idle, mine, opened].every(({ received }) => received.includes(": subscribed")),
  );
  await fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${token}`,
      "x-session-id": "opened",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" }),
  });
  await until("it hears the call", () => opened.received.includes("ada@example.com"));
  for (let i = 0; i < 6; i++) clock.advance(15_000);
  await until("the end is written", () => idle.received.endsWith("0\r\n\r\n"));
  for (const kept of [mine, opened]) expect(kept.received).not.toEndWith("0\r\n\r\n");
});

test("x-session-id pushes into channels of the same user only", async () => {
  gateway = await bootGateway();
  const [ada, eve] = [await gateway.signIn("ada"), await gateway.signIn("eve")];
  const subscribe = (session: string, token?: string) =>
    hold(
      STREAM.replace(SESSION, session).replace(
        "\r\n\r\n",
        token ? `\r\nauthorization: Bearer ${token}\r\n\r\n` : "\r\n\r\n",
      ),
    );
  const call = (session: string, token: string | null, id: string) =>
    fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-session-id": session,
        ...(token && { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id, method: "system.status" }),
    });
  const signedIn = await subscribe("signed-in", ada);
  const opened = await subscribe("opened");
  const nobodys = await subscribe("nobodys");
  await until("all are subscribed", () =>
    [signedIn, opened, nobodys].every(({ received }) => received.includes(": subscribed")),
  );
  const first: string[] = [];
  await everywhere(async () => {
    first.push(`first-${first.length}`);
    return (await call("nobodys", null, first.at(-1)!)).ok;
  });
  await until("each knows what the others know", () => first.every((id) => nobodys.received.includes(id)));
  await call("opened", ada, "from-ada");
  await until("it is Ada's", () => opened.received.includes("from-ada"));
  for (const session of ["signed-in", "opened"]) {
    await call(session, eve, "from-eve");
    await call(session, null, "from-nobody");
    await call(session, ada, "again-from-ada");
  }
  await call("nobodys", null, "from-nobody");
  await until("nobody's channel hears nobody", () => nobodys.received.includes("from-nobody"));
  await until("Ada's hear Ada", () =>
    [signedIn, opened].every(({ received }) => received.includes("again-from-ada")),
  );
  for (const { received } of [signedIn, opened]) {
    expect(received).not.toContain("from-eve");
    expect(received).not.toContain("from-nobody");
  }
  // Eve hears nothing there, and laying claim to a channel keeps nobody out of it.
  const late = await subscribe("opened", eve);
  await until("she is subscribed", () => late.received.includes(": subscribed"));
  const heard = opened.received.length;
  await call("opened", ada, "once-more-from-ada");
  await until("the others hear it", () => opened.received.slice(heard).includes("once-more-from-ada"));
  expect(late.received).not.toContain("from-ada");
});

test.each([
  ["203.0.113.9", "203.0.113.9"],
  ["::ffff:203.0.113.9", "203.0.113.9"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:DB8:1:2::1", "2001:db8:1:2::/64"],
  ["2001:0db8:0001:0002:ffff::", "2001:db8:1:2::/64"],
  ["::1", "0:0:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
])("the network of %s is %s", (address, network) => {
  expect(networkOf(address)).toBe(network);
});
