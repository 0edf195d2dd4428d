import { afterAll, beforeAll, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { createClient, type Fetch, memoryTokens, RPC_CODE, RpcError } from "../src/index.ts";

const ACCESS_TOKEN_LIFE_MS = 15 * 60_000;
let clock: ManualClock;
let gateway: TestGateway;
beforeAll(async () => {
  clock = new ManualClock(Date.now());
  gateway = await bootGateway({ overrides: { clock } });
});
afterAll(() => gateway.stop());

let people = 0;
const person = () => ({ email: `client${people++}@example.com`, password: PASSWORD });

/** A fetch that counts the calls of each method. */
function counting() {
  const counts = new Map<string, number>();
  const fetch: Fetch = (url, init) => {
    if (typeof init?.body === "string") {
      const { method } = JSON.parse(init.body) as { method: string };
      counts.set(method, (counts.get(method) ?? 0) + 1);
    }
    return globalThis.fetch(url, init);
  };
  return { fetch, of: (method: string) => counts.get(method) ?? 0 };
}

for (const transport of ["http", "websocket"] as const) {
  test(`signs up and manages keys over ${transport}`, async () => {
    const client = createClient({ baseUrl: `${gateway.url}/`, transport });
    const session = await client.signUp({ ...person(), name: "Ada" });
    expect(session.user.name).toBe("Ada");
    const key = await client.call("keys.create", { name: "laptop" });
    expect(key.key).toStartWith("service-");
    expect((await client.call("keys.list")).map(({ id }) => id)).toEqual([key.id]);
    await client.call("keys.revoke", { key_id: key.id });
    expect((await client.call("keys.list"))[0]?.active).toBe(false);
    client.close();
  });

  test(`answers many calls at once over ${transport}, each with its own`, async () => {
    const client = createClient({ baseUrl: gateway.url, transport });
    await client.signUp(person());
    const names = Array.from({ length: 100 }, (_, i) => `conversation ${i}`);
    const made = await Promise.all(names.map((title) => client.call("conversations.create", { title })));
    expect(made.map(({ title }) => title)).toEqual(names);
    client.close();
  });

  test(`an expired access token is renewed once for all calls over ${transport}`, async () => {
    const counted = counting();
    const client = createClient({ baseUrl: gateway.url, transport, fetch: counted.fetch });
    const before = await client.signUp(person());
    clock.advance(ACCESS_TOKEN_LIFE_MS + 1000);
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => client.call("auth.me")));
    expect(new Set(answers.map(({ email }) => email))).toEqual(new Set([before.user.email]));
    if (transport === "http") expect(counted.of("auth.refresh")).toBe(1);
    expect(client.session?.refreshToken).not.toBe(before.refreshToken);
    client.close();
  });
}

test("two clients on one store do not spend the same refresh token twice", async () => {
  const tokens = memoryTokens();
  let turn: Promise<unknown> = Promise.resolve();
  tokens.exclusive = (work) => {
    const mine = turn.then(work);
    turn = mine.catch(() => {});
    return mine;
  };
  const first = createClient({ baseUrl: gateway.url, tokens });
  const second = createClient({ baseUrl: gateway.url, tokens });
  await first.signUp(person());
  await second.ready();
  clock.advance(ACCESS_TOKEN_LIFE_MS + 1000);
  await Promise.all([first.call("auth.me"), second.call("auth.me")]);
  expect(first.session?.accessToken).toBe(second.session!.accessToken);
  clock.advance(ACCESS_TOKEN_LIFE_MS + 1000);
  await second.call("auth.me");
});

test("a refresh token that no longer works signs the client out and says so", async () => {
  const client = createClient({ baseUrl: gateway.url });
  const session = await client.signUp(person());
  await createClient({ baseUrl: gateway.url }).call("auth.refresh", { refresh_token: session.refreshToken });
  const seen: (string | null)[] = [];
  client.onSession((now) => seen.push(now?.user.email ?? null));
  clock.advance(ACCESS_TOKEN_LIFE_MS + 1000);
  const failure = await client.call("auth.me").catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(RpcError);
  expect((failure as RpcError).code).toBe(RPC_CODE.authentication);
  expect(seen).toEqual([null]);
  expect(client.session).toBeNull();
});

test("errors carry method, code and the server's words", async () => {
  const client = createClient({ baseUrl: gateway.url });
  await client.signUp(person());
  const failure = (await client.callUnknown("no.such").catch((error: unknown) => error)) as RpcError;
  expect([failure.code, failure.method]).toEqual([RPC_CODE.methodNotFound, "no.such"]);
  const invalid = (await client
    .call("keys.create", {} as never)
    .catch((error: unknown) => error)) as RpcError;
  expect(invalid.code).toBe(RPC_CODE.invalidParams);
  expect(invalid.message).toContain("name");
  const unreachable = createClient({ baseUrl: "http://127.0.0.1:1" });
  expect(unreachable.call("system.status")).rejects.toThrow("could not be reached");
});
