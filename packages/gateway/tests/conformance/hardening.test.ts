/** Secrets at rest and in passing: what was once open, tried again through the door. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk } from "@model-gateway/testing/upstream.ts";
import { exposureOf } from "../../src/app/exposure.ts";
import { readConfig } from "../../src/config.ts";
import { FAILED_TRIES_MAX } from "../../src/kernel/failed-tries.ts";
import { ANONYMOUS_CALLS_MAX } from "../../src/transports/rpc/runner.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const configOf = (env: Record<string, string>) => {
  const read = readConfig(env);
  if ("problems" in read) throw new Error(read.problems.join("; "));
  return read.config;
};

inOneProcess("files of the service are its own, whatever the umask and whatever they were", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-modes-"));
  const before = process.umask(0);
  try {
    mkdirSync(join(dataDir, "journal"), { mode: 0o777 });
    writeFileSync(join(dataDir, "gateway.sqlite"), "", { mode: 0o666 });
    chmodSync(dataDir, 0o777);
    const gateway = await bootGateway({ dataDir });
    await gateway.signIn("ada");
    const modes = readdirSync(dataDir, { recursive: true, withFileTypes: true }).map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path, (statSync(path).mode & 0o777).toString(8)] as const;
    });
    expect(modes.length).toBeGreaterThan(4);
    expect(modes.filter(([path, mode]) => mode !== (statSync(path).isDirectory() ? "700" : "600"))).toEqual(
      [],
    );
    expect((statSync(dataDir).mode & 0o777).toString(8)).toBe("700");
    await gateway.stop();
  } finally {
    process.umask(before);
    rmSync(dataDir, { recursive: true, force: true });
  }
});

test("tokens come from a file or the environment, and a short one for metrics stops the start", () => {
  expect(readConfig({ SERVICE_METRICS_TOKEN: "short" })).toEqual({
    problems: [
      "SERVICE_METRICS_TOKEN: must have at least 16 characters, or it can be guessed; openssl rand -hex 32 makes one",
    ],
  });
  const file = join(mkdtempSync(join(tmpdir(), "gateway-token-")), "token");
  writeFileSync(file, "a token from a file 0123\n");
  expect(configOf({ SERVICE_ADMIN_TOKEN_FILE: file }).adminToken).toBe("a token from a file 0123");
  const both = readConfig({ SERVICE_ADMIN_TOKEN_FILE: file, SERVICE_ADMIN_TOKEN: ADMIN_TOKEN });
  expect(both).toEqual({
    problems: ["SERVICE_ADMIN_TOKEN and SERVICE_ADMIN_TOKEN_FILE are both set; unset one"],
  });
  expect(readConfig({ SERVICE_ADMIN_TOKEN_FILE: `${file}-not` })).toHaveProperty("problems");
  expect(readConfig({ SERVICE_PORT_FILE: file })).toHaveProperty("problems");
});

test("what makes a service easy to attack is said at the start", () => {
  const safe = { isRoot: false, isSandboxed: false };
  const said = (env: Record<string, string>, around = safe) =>
    exposureOf(configOf(env), around).map(({ message }) => message);
  expect(said({})).toEqual([]);
  expect(said({ SERVICE_ADMIN_TOKEN: "short" })).toEqual([
    "SERVICE_ADMIN_TOKEN has fewer than 16 characters, so it can be guessed",
  ]);
  expect(said({}, { ...safe, isRoot: true })).toEqual(["the service runs as root without a container"]);
  expect(said({}, { ...safe, isRoot: true, isSandboxed: true })).toEqual([]);
  const wide = { SERVICE_HOST: "0.0.0.0", SERVICE_METRICS_TOKEN: "0123456789abcdef" };
  expect(said(wide)).toEqual([expect.stringContaining("without TLS, and no proxy is named")]);
  expect(said({ ...wide, SERVICE_TRUSTED_PROXIES: "10.0.0.1" })).toEqual([]);
  const proxied = { ...wide, SERVICE_TRUSTED_PROXIES: "10.0.0.1" };
  expect(said({ ...proxied, SERVICE_REGISTRATION_OPEN: "true" })).toEqual([
    "registration is open to everyone who can reach the service",
  ]);
  const opened = exposureOf({ ...configOf(proxied), registrationOpen: true }, safe);
  expect(opened).toMatchObject([{ remedy: expect.stringContaining("in the console") }]);
  expect(said({ SERVICE_HOST: "::", SERVICE_TRUSTED_PROXIES: "10.0.0.1" })).toEqual([
    expect.stringContaining("GET /metrics is open"),
  ]);
});

describe("limits by address", () => {
  let gateway: TestGateway;
  let clock: ManualClock;
  afterEach(() => gateway.stop());
  const boot = async () => {
    clock = new ManualClock();
    gateway = await bootGateway({ overrides: { clock }, config: { trustedProxies: ["127.0.0.1"] } });
  };
  const rpc = async (from: string, method: string, params: object = {}, bearer?: string) => {
    const response = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-forwarded-for": from,
        ...(bearer && { authorization: `Bearer ${bearer}` }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    return (await response.json()) as {
      result?: unknown;
      error?: { code: number; message: string; data?: object };
    };
  };

  test("an IPv6 network counts as one: refreshes, calls without signing in", async () => {
    await boot();
    const refused = async (method: string, params: object, times: number) => {
      for (let i = 0; i < times; i++) await rpc(`2001:db8:1:2::${i.toString(16)}`, method, params);
      return (await rpc("2001:db8:1:2:ffff::1", method, params)).error?.message;
    };
    expect(await refused("auth.refresh", { refresh_token: "guess" }, 120)).toContain("Too many attempts");
    expect((await rpc("2001:db8:1:3::1", "auth.refresh", { refresh_token: "x" })).error?.message).toContain(
      "unknown, expired",
    );
    expect(await refused("system.status", {}, ANONYMOUS_CALLS_MAX)).toContain(
      "Too many calls without signing in",
    );
    expect((await rpc("2001:db8:1:3::1", "system.status")).result).toBeDefined();
    const token = await gateway.signIn("ada");
    expect((await rpc("2001:db8:1:2::1", "auth.me", {}, token)).result).toBeDefined();
  });

  test("wrong tokens are refused after a while; a right one beside them never is, over HTTP, WebSocket and admin routes", async () => {
    await boot();
    const from = "203.0.113.5";
    const admin = (token: string) =>
      fetch(`${gateway.url}/api/admin/backends`, {
        headers: { authorization: `Bearer ${token}`, "x-forwarded-for": from },
      });
    /** The HTTP status before the upgrade, or the answer to one call after it. */
    const overSocket = async (token: string) => {
      const url = `${gateway.url}/api/rpc?token=${token}`;
      const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
      const { status } = await fetch(url, {
        headers: { ...upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "x-forwarded-for": from },
      });
      return status;
    };
    const ada = await gateway.signIn("ada");
    for (let i = 0; i < FAILED_TRIES_MAX; i++) expect((await admin(`guess-${i}`)).status).toBe(401);

    const refused = await admin("guess");
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeWithin(1, 61);
    expect(await refused.json()).toMatchObject({ error: { code: "rate_limit_exceeded" } });
    expect(await overSocket("guess")).toBe(429);
    expect(await rpc(from, "auth.me", {}, "guess")).toMatchObject({
      id: 1,
      error: { code: -32000, data: { retry_after: expect.any(Number) } },
    });
    const batch = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: { authorization: "Bearer guess", "x-forwarded-for": from },
      body: JSON.stringify(["one", 2].map((id) => ({ jsonrpc: "2.0", id, method: "system.status" }))),
    });
    const told = (await batch.json()) as { id: unknown; error: { message: string } }[];
    expect(told.map(({ id, error }) => [id, error.message.slice(0, 21)])).toEqual([
      ["one", "Too many wrong tokens"],
      [2, "Too many wrong tokens"],
    ]);

    expect((await admin(ADMIN_TOKEN)).status).toBe(200);
    expect((await rpc(from, "group.list", {}, ADMIN_TOKEN)).result).toBeDefined();
    expect((await rpc(from, "auth.me", {}, ada)).result).toBeDefined();
    expect(await overSocket(ada)).toBe(101);
    // Without a token it is not a try.
    expect((await rpc(from, "system.status")).result).toBeDefined();
    clock.advance(60_000);
    expect((await admin("guess")).status).toBe(401);
  });

  test("tokens that have expired, or whose session has ended, do not count as wrong", async () => {
    await boot();
    const from = "203.0.113.4";
    const ada = await gateway.rpc("auth.register", { email: "ada@example.com", password: PASSWORD });
    const ended = await gateway.rpc("auth.login", { email: "ada@example.com", password: PASSWORD });
    await gateway.rpc("auth.logout", { refresh_token: ended.refresh_token });
    const [header, payload] = ada.access_token.split(".");
    const forged = `${header}.${payload}.${"A".repeat(43)}`;
    for (let i = 0; i <= FAILED_TRIES_MAX; i++)
      expect((await rpc(from, "auth.me", {}, ended.access_token)).error?.code).toBe(-32005);
    clock.advance(16 * 60_000);
    for (let i = 0; i <= FAILED_TRIES_MAX; i++)
      expect((await rpc(from, "auth.me", {}, ada.access_token)).error?.code).toBe(-32005);
    for (let i = 0; i < FAILED_TRIES_MAX; i++)
      expect((await rpc(from, "auth.me", {}, forged)).error?.code).toBe(-32005);
    expect((await rpc(from, "auth.me", {}, forged)).error?.code).toBe(-32000);
    expect((await rpc(from, "auth.me", {}, ada.access_token)).error?.code).toBe(-32005);
  });

  test("wrong refresh tokens, links, invitations and codes lock out no right one", async () => {
    await boot();
    const from = "203.0.113.3";
    const { access_token: ada, refresh_token } = await gateway.rpc("auth.register", {
      email: "ada@example.com",
      password: PASSWORD,
    });
    const link = await gateway.rpc("users.invite", {}, ada);
    const group = await gateway.rpc("group.create", { name: "g" }, ada);
    const invitation = await gateway.rpc("group.invite.create", { group_id: group.id }, ada);
    const verifier = "a-verifier-that-the-command-line-keeps-for-itself";
    const challenge = new Bun.CryptoHasher("sha256").update(verifier).digest("base64url");
    const { code } = await gateway.rpc("auth.cli.approve", { challenge }, ada);
    for (const [method, right, wrong, times] of [
      ["auth.refresh", { refresh_token }, { refresh_token: "guess" }, 120],
      ["auth.link.show", { token: link.token }, { token: "link-guess" }, 20],
      ["group.invite.show", { token: invitation.token }, { token: "invite-guess" }, 20],
      ["auth.cli.redeem", { code, verifier }, { code: "guess", verifier }, 20],
    ] as const) {
      for (let i = 0; i < times; i++) await rpc(from, method, wrong);
      expect([method, (await rpc(from, method, wrong)).error?.message]).toEqual([
        method,
        expect.stringContaining("Too many attempts"),
      ]);
      expect([method, (await rpc(from, method, right)).error]).toEqual([method, undefined]);
    }
  });

  test("API keys cannot be guessed; a known one at the same address is not touched, and no more than the first are recorded", async () => {
    await boot();
    const admin = await gateway.signIn("ada");
    const { key } = await gateway.rpc("keys.create", { name: "k" }, admin);
    const ask = (from: string, path: string, headers: Record<string, string>) =>
      fetch(`${gateway.url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-forwarded-for": from, ...headers },
        body: JSON.stringify({ model: "m", max_tokens: 9, messages: [{ role: "user", content: "hi" }] }),
      });
    const chat = (from: string, bearer: string) =>
      ask(from, "/v1/chat/completions", { authorization: `Bearer ${bearer}` });
    for (let i = 0; i < FAILED_TRIES_MAX; i++) {
      const { status } =
        i % 2 === 0
          ? await chat("203.0.113.9", `service-${crypto.randomUUID()}`)
          : await ask("203.0.113.9", "/v1/messages", { "x-api-key": `guess-${i}` });
      expect(status).toBe(401);
    }
    for (const path of [
      "/v1/chat/completions",
      "/v1/messages",
      "/v1/responses",
      "/v1/embeddings",
      "/api/chat",
    ]) {
      const refused = await ask("203.0.113.9", path, { authorization: "Bearer service-guess" });
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get("retry-after"))).toBeWithin(1, 61);
      const isPlain = path === "/v1/chat/completions" || path === "/v1/embeddings";
      expect([path, refused.headers.get("content-type")]).toEqual([
        path,
        expect.stringContaining(isPlain ? "text/plain" : "application/json"),
      ]);
      expect(await refused.text()).toContain("Too many wrong tokens or keys");
    }
    const realtime = await fetch(`${gateway.url}/v1/realtime`, {
      headers: { "x-forwarded-for": "203.0.113.9" },
    });
    expect([realtime.status, realtime.headers.get("content-type")]).toEqual([
      429,
      "text/plain; charset=utf-8",
    ]);
    // Nothing serves the model; the key is known.
    expect((await chat("203.0.113.9", key)).status).toBe(404);
    expect((await chat("203.0.113.10", "service-guess")).status).toBe(401);
    const { records } = await gateway.rpc(
      "requests.list",
      { everyone: true, limit: 500, until: "2100-01-01T00:00:00Z" },
      admin,
    );
    const guessed = records.filter((record: { client_ip: string }) => record.client_ip === "203.0.113.9");
    expect(guessed).toHaveLength(FAILED_TRIES_MAX + 1);
    clock.advance(60_000);
    expect((await chat("203.0.113.9", "service-guess")).status).toBe(401);
  });

  test("nodes with old tokens are refused after a while, and shut out nobody at their address", async () => {
    await boot();
    const admin = await gateway.signIn("ada");
    const { token } = await gateway.rpc("agents.register", { machine_name: "n", version: "1" }, admin);
    const dial = (from: string, bearer: string) =>
      fetch(`${gateway.url}/ws/agent`, {
        headers: { authorization: `Bearer ${bearer}`, "x-forwarded-for": from },
      }).then(({ status }) => status);
    for (let i = 0; i < FAILED_TRIES_MAX; i++) expect(await dial("203.0.113.7", `guess-${i}`)).toBe(401);
    expect(await dial("203.0.113.7", "guess")).toBe(429);
    expect((await rpc("203.0.113.7", "auth.me", {}, admin)).result).toBeDefined();
    // The token is right; only the upgrade is missing.
    expect(await dial("203.0.113.7", token)).toBe(426);
    clock.advance(60_000);
    expect(await dial("203.0.113.7", "guess")).toBe(401);
  });
});

describe("sessions, keys and names", () => {
  let bench: InferenceBench;
  beforeAll(async () => {
    bench = await bootInference({ config: { metricsToken: "metrics-token-0123456789" } });
    await bench.addBackend({ name: "up", type: "external", url: bench.upstream.url });
  });
  afterAll(() => bench.stop());

  test("signing out ends the session's refresh tokens on the server", async () => {
    const login = () => bench.rpc("auth.login", { email: "ada@example.com", password: PASSWORD });
    const [mine, other] = [await login(), await login()];
    const renewed = await bench.rpc("auth.refresh", { refresh_token: mine.refresh_token });
    await bench.rpc("auth.logout", { refresh_token: renewed.refresh_token });
    expect((await bench.call("auth.refresh", { refresh_token: renewed.refresh_token })).error.code).toBe(
      -32005,
    );
    expect((await bench.call("auth.me", {}, renewed.access_token)).error.code).toBe(-32005);
    expect(await bench.rpc("auth.logout", { refresh_token: "unknown" })).toEqual({ ok: true });
    expect(await bench.rpc("auth.refresh", { refresh_token: other.refresh_token })).toHaveProperty(
      "access_token",
    );
  });

  test("/metrics asks for its token, and says nothing of users", async () => {
    const get = (bearer?: string) =>
      fetch(`${bench.url}/metrics`, { headers: bearer ? { authorization: `Bearer ${bearer}` } : {} });
    for (const bearer of [undefined, "wrong", ADMIN_TOKEN, bench.token])
      expect((await get(bearer)).status).toBe(401);
    await bench.chat({ user: "canary-user" });
    const text = await (await get("metrics-token-0123456789")).text();
    expect(text).toContain("gateway_inference_requests_total");
    const { id } = await bench.rpc("auth.me", {}, bench.token);
    for (const secret of ["ada", id, bench.key, bench.key.slice(8, 16), "canary-user"])
      expect(text).not.toContain(secret);
  });

  /** A stream that goes on until its upstream is closed. */
  const endless = () => {
    let open = 0;
    bench.upstream.answer(async (request, reply) => {
      open++;
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { content: "and on" } }));
      await until("it is closed", () => request.closedAtMs !== null);
      open--;
    });
    return () => open;
  };

  test("a revoked key's running stream ends, and so does a deactivated member's", async () => {
    const open = endless();
    const bob = await bench.signIn("bob");
    const { id: groupId } = await bench.rpc("group.create", { name: "lab" }, bench.token);
    await bench.rpc("group.members.add", { group_id: groupId, email: "bob@example.com" }, bench.token);
    await bench
      .rpc("group.credits.grant", { group_id: groupId, points: 1_000_000 }, ADMIN_TOKEN)
      .catch(() => {});
    const own = await bench.rpc("keys.create", { name: "own" }, bench.token);
    const kept = await bench.rpc("keys.create", { name: "kept" }, bench.token);
    const shared = await bench.rpc("keys.create", { name: "shared", group_id: groupId }, bob);
    const stream = async (key: string) => {
      const response = await bench.chat({ stream: true }, { headers: { authorization: `Bearer ${key}` } });
      expect(response.status).toBe(200);
      const state = { isOver: false, text: "" };
      void (async () => {
        for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>)
          state.text += new TextDecoder().decode(piece);
        state.isOver = true;
      })().catch(() => {
        state.isOver = true;
      });
      return state;
    };
    const streams = [await stream(own.key), await stream(kept.key)];
    await until("both are open", () => open() === 2);
    await bench.rpc("keys.revoke", { key_id: own.id }, bench.token);
    await until("the stream is over", () => streams[0]!.isOver);
    await until("its upstream is closed", () => open() === 1);
    expect(streams[0]!.text).toContain("was revoked");
    expect(streams[1]!.isOver).toBe(false);

    const member = await stream(shared.key);
    await until("it is open", () => open() === 2);
    const { id: bobId } = await bench.rpc("auth.me", {}, bob);
    await bench.rpc(
      "group.members.update",
      { group_id: groupId, user_id: bobId, is_active: false },
      bench.token,
    );
    await until("the member's stream is over", () => member.isOver);
    await bench.rpc("keys.revoke", { key_id: kept.id }, bench.token);
    await until("all are over", () => open() === 0);
  });

  test("adding someone to a group tells nobody's name, and an id nobody's address", async () => {
    const carol = await bench.signIn("carol");
    const dave = await bench.signIn("dave");
    const { id: daveId } = await bench.rpc("auth.me", {}, dave);
    const { id: groupId } = await bench.rpc("group.create", { name: "curious" }, carol);
    const byId = await bench.call("group.members.add", { group_id: groupId, email: daveId }, carol);
    expect(byId.error.message).toContain("No account has the email");
    expect(JSON.stringify(byId)).not.toContain("dave");
    const added = await bench.rpc(
      "group.members.add",
      { group_id: groupId, email: "dave@example.com" },
      carol,
    );
    expect([added.email, added.name]).toEqual(["dave@example.com", "dave@example.com"]);
  });

  test("key.request is heard by the key's owner alone", async () => {
    const eve = await bench.signIn("eve");
    const { id, key } = await bench.rpc("keys.create", { name: "watched" }, bench.token);
    bench.upstream.answer((_, reply) => reply.json({ error: "no" }, 400));
    const listen = async (token?: string) => {
      const leave = new AbortController();
      const response = await fetch(
        `${bench.url}/api/rpc/events?session=${id}${token ? `&token=${token}` : ""}`,
        { signal: leave.signal },
      );
      const heard = { text: "", leave: () => leave.abort() };
      void (async () => {
        for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>)
          heard.text += new TextDecoder().decode(piece);
      })().catch(() => {});
      await until("it is answered", () => heard.text !== "");
      return heard;
    };
    const nobody = await listen();
    const owner = await listen(bench.token);
    const other = await listen(eve);
    await bench.chat({}, { headers: { authorization: `Bearer ${key}` } });
    await until("the owner hears", () => owner.text.includes("key.request"));
    for (const { text } of [nobody, other]) expect(text).not.toContain("key.request");
    for (const { leave } of [nobody, owner, other]) leave();
  });
});
