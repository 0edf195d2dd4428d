import { afterEach, expect, test } from "bun:test";
import { connect } from "node:net";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
afterEach(() => gateway.stop());

const ACCOUNT = { email: "ada@example.com", password: PASSWORD };

/** One call with headers of the test's choice; Bun's fetch keeps a given Host. */
async function call(method: string, params: object, headers: Record<string, string> = {}) {
  const answer = await fetch(`http://127.0.0.1:${gateway.app.port}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  return { status: answer.status, body: (await answer.json()) as any };
}

const setup = async (headers: Record<string, string> = {}) =>
  fetch(`http://127.0.0.1:${gateway.app.port}/api/setup`, { headers });

test("from this machine, under a name of this machine, the first account needs no link", async () => {
  gateway = await bootGateway({ config: { registrationOpen: null } });
  for (const host of ["localhost:1234", "app.localhost", "127.0.0.1", "[::1]:80"])
    expect(await (await setup({ host })).json()).toMatchObject({ setup_link_needed: false });
  const { body } = await call("auth.register", ACCOUNT, { host: "LOCALHOST:8080" });
  expect(body.result.user.is_admin).toBe(true);
});

test("a proxy on this machine that adds no headers is not taken for it: it speaks HTTP/1.0, or carries the visitor's Origin", async () => {
  gateway = await bootGateway({ config: { registrationOpen: null } });
  const origin = "https://models.example.com";
  expect(await (await setup({ origin })).json()).toMatchObject({ setup_link_needed: true });
  expect(await (await setup({ origin: "http://localhost:8080" })).json()).toMatchObject({
    setup_link_needed: false,
  });
  const answer = await new Promise<string>((resolve, reject) => {
    const socket = connect(gateway.app.port, "127.0.0.1");
    let text = "";
    socket.on("data", (bytes) => {
      text += bytes.toString();
    });
    socket.on("close", () => resolve(text)).on("error", reject);
    socket.write("GET /api/setup HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n");
  });
  expect(answer).toContain('"setup_link_needed":true');
});

test("under an address that other machines reach, only the bearer of the setup link gets the first account", async () => {
  gateway = await bootGateway({ config: { registrationOpen: null, host: "0.0.0.0" } });
  const { setupToken } = gateway.app.rooms.accounts;
  const elsewhere = { host: "192.0.2.7:8080" };
  expect(await (await setup()).json()).toMatchObject({ setup_link_needed: false });
  expect(await (await setup(elsewhere)).json()).toMatchObject({ first_run: true, setup_link_needed: true });
  for (const setup_token of [undefined, "", "wrong", setupToken.slice(0, -1)]) {
    const { status, body } = await call("auth.register", { ...ACCOUNT, setup_token }, elsewhere);
    expect([status, body.error.message]).toEqual([200, expect.stringContaining("setup link")]);
  }
  const first = await call("auth.register", { ...ACCOUNT, setup_token: setupToken }, elsewhere);
  expect(first.body.result.user.is_admin).toBe(true);
  // It is good once: the next account is refused with it, as without.
  const second = await call(
    "auth.register",
    { ...ACCOUNT, email: "eve@example.com", setup_token: setupToken },
    elsewhere,
  );
  expect(second.body.error.message).toContain("Registration is closed");
  expect(await (await setup(elsewhere)).json()).toMatchObject({ setup_link_needed: false });
});

test("behind a proxy, or under its public name, the first account needs the link as well", async () => {
  gateway = await bootGateway({
    config: { registrationOpen: true, publicUrl: "https://models.example.com/" },
  });
  for (const headers of [
    { host: "models.example.com" },
    { "x-forwarded-for": "203.0.113.9" },
    { forwarded: "for=203.0.113.9" },
    { via: "1.1 proxy" },
  ] as Record<string, string>[]) {
    const { body } = await call("auth.register", ACCOUNT, headers);
    expect(body.error.message).toContain("setup link");
  }
  const { setupToken } = gateway.app.rooms.accounts;
  const made = await call(
    "auth.register",
    { ...ACCOUNT, setup_token: setupToken },
    { host: "models.example.com" },
  );
  expect(made.body.result.user.is_admin).toBe(true);
  // The others need none where registration is open.
  const other = await call(
    "auth.register",
    { ...ACCOUNT, email: "grace@example.com" },
    { host: "models.example.com" },
  );
  expect(other.body.result.user.is_admin).toBe(false);
});

test("a name that is not the service's gets nothing from the methods that need no credentials", async () => {
  gateway = await bootGateway({ config: { registrationOpen: true } });
  const token = await gateway.signIn("ada");
  const headers = { host: "rebound.evil.example:8080", origin: "http://rebound.evil.example:8080" };
  for (const [method, params] of [
    ["auth.register", { ...ACCOUNT, email: "eve@example.com" }],
    ["auth.login", ACCOUNT],
    ["auth.refresh", { refresh_token: "x" }],
    ["auth.link.show", { token: "x" }],
    ["group.invite.show", { token: "x" }],
    ["system.status", {}],
    ["providers.list", {}],
    ["no.such.method", {}],
  ] as const) {
    const { status, body } = await call(method, params, headers);
    expect([method, status, body.result]).toEqual([method, 403, undefined]);
    expect(body.error.message).toContain("SERVICE_PUBLIC_URL");
  }
  expect((await setup(headers)).status).toBe(403);
  const socket = await fetch(`${gateway.url}/api/rpc`, {
    headers: {
      ...headers,
      connection: "upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    },
  });
  expect(socket.status).toBe(403);
  // Whoever has credentials was let in by name.
  const known = await call("auth.me", {}, { ...headers, authorization: `Bearer ${token}` });
  expect(known.body.result.email).toBe("ada@example.com");
});

test("the first account has no quota, also by the setup link; all others are on the free tier", async () => {
  const tierOf = async (bearer: string) => {
    const { current_tier, remaining } = await gateway.rpc("billing.plan", {}, bearer);
    return { current_tier, ...remaining };
  };
  const unlimited = { current_tier: "enterprise", cost_usd: null, tokens: null };
  const free = { current_tier: "free", cost_usd: 1, tokens: 100_000 };
  for (const elsewhere of [false, true]) {
    gateway = await bootGateway({ config: { registrationOpen: true } });
    const { setupToken } = gateway.app.rooms.accounts;
    const [params, headers] = elsewhere
      ? [{ ...ACCOUNT, setup_token: setupToken }, { via: "1.1 proxy" }]
      : [ACCOUNT, {}];
    const { access_token: owner } = (await call("auth.register", params, headers)).body.result;
    expect(await tierOf(owner)).toEqual(unlimited);

    const next = { email: "grace@example.com", password: PASSWORD };
    const registered = (await call("auth.register", { ...next, setup_token: setupToken })).body.result;
    expect(await tierOf(registered.access_token)).toEqual(free);
    // Rights alone do not take limits away: only the first administrator owns the machine.
    const made = await gateway.rpc("users.create", { email: "bob@example.com", is_admin: true }, owner);
    const { access_token } = await gateway.rpc("auth.link.accept", {
      token: made.link.token,
      password: PASSWORD,
    });
    expect(await tierOf(access_token)).toEqual(free);
    if (!elsewhere) await gateway.stop();
  }
});
