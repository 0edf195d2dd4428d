/** What every route can count on, seen on routes that are added to a running service. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { z } from "zod";
import { createLog } from "../../src/kernel/log.ts";
import { Registry, type RoomSurface } from "../../src/kernel/registry.ts";
import { defineRoute, raw } from "../../src/kernel/route.ts";
import { surfaces } from "../../src/rooms/index.ts";

const BODY_BYTES_MAX = 64;
const SECRET = "hunter2-must-not-appear";
/** Paths of the handlers that ran, oldest first. */
const ran: string[] = [];
const logged: string[] = [];

const routes = {
  /** Its handler has no word of authentication. */
  forgetful: defineRoute({
    method: "POST",
    path: "/v1/test/echo",
    summary: "Echoes a name",
    auth: "api_key",
    body: z.object({ name: z.string().min(1) }),
    bodyBytesMax: BODY_BYTES_MAX,
    response: z.object({ name: z.string(), key_id: z.string() }),
    handler: ({ body, principal, request }) => {
      ran.push(request.path);
      return { name: body.name, key_id: principal.keyId, secret: SECRET };
    },
  }),
  bytes: defineRoute({
    method: "POST",
    path: "/v1/test/bytes",
    summary: "Counts bytes",
    auth: "api_key",
    body: raw(z.unknown()),
    bodyBytesMax: BODY_BYTES_MAX,
    response: z.object({ bytes: z.int() }),
    handler: ({ body, request }) => {
      ran.push(request.path);
      return { bytes: body.length };
    },
  }),
  broken: defineRoute({
    method: "GET",
    path: "/api/test/broken",
    summary: "Answers with something else than it declares",
    auth: "public",
    response: z.object({ count: z.int() }),
    handler: () => ({ count: SECRET as unknown as number }),
  }),
  person: defineRoute({
    method: "GET",
    path: "/api/test/{id}/person",
    summary: "Names the caller",
    auth: "jwt",
    query: z.object({ page: z.string().regex(/^\d+$/) }),
    response: z.object({ email: z.string(), id: z.string(), page: z.string() }),
    handler: ({ actor, path, query }) => ({ email: actor.email, id: path.id, page: query.page }),
  }),
  administrator: defineRoute({
    method: "GET",
    path: "/api/test/administrator",
    summary: "For administrators",
    auth: "admin",
    response: z.object({ ok: z.literal(true) }),
    handler: () => ({ ok: true as const }),
  }),
};

let gateway: TestGateway;
let person: string;
let key: { id: string; key: string };

beforeAll(async () => {
  const all = surfaces as unknown as RoomSurface[];
  all.push({ routes });
  const log = createLog({ level: "error", format: "json", write: (line) => logged.push(line) });
  gateway = await bootGateway({ overrides: { log } }).finally(() => all.pop());
  await gateway.signIn("admin");
  person = await gateway.signIn("person");
  await gateway.rpc("billing.plan.set", { user_email: "person@example.com", tier: "pro" }, ADMIN_TOKEN);
  key = await gateway.rpc("keys.create", { name: "test" }, person);
});
afterAll(() => gateway.stop());

const send = (path: string, { bearer, body }: { bearer?: string; body?: BodyInit } = {}) =>
  fetch(gateway.url + path, {
    method: body === undefined ? "GET" : "POST",
    headers: bearer ? { authorization: `Bearer ${bearer}` } : {},
    body,
  });
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
const json = async (response: Response): Promise<any> => response.json();

describe("a definition that cannot be served is refused before anything listens", () => {
  const whole = {
    method: "POST",
    path: "/v1/new",
    summary: "New",
    auth: "api_key",
    body: z.object({}),
    bodyBytesMax: 1,
    response: z.object({}),
    handler: () => ({}),
  } as const;
  const { auth: _, ...withoutAuth } = whole;
  const { bodyBytesMax: __, ...withoutLimit } = whole;

  test("without auth, and with one that does not exist", () => {
    // @ts-expect-error the compiler says it too
    expect(() => defineRoute(withoutAuth)).toThrow(
      "route POST /v1/new: `auth` must be one of public, api_key",
    );
    // @ts-expect-error the compiler says it too
    expect(() => defineRoute({ ...whole, auth: "api-key" })).toThrow("`auth` must be one of");
  });

  test("with a body of any size, or on a GET", () => {
    // @ts-expect-error the compiler says it too
    expect(() => defineRoute(withoutLimit)).toThrow("`bodyBytesMax`");
    expect(() => defineRoute({ ...whole, bodyBytesMax: 0 })).toThrow("`bodyBytesMax`");
    expect(() => defineRoute({ ...whole, method: "GET" })).toThrow("a GET has no body");
  });

  test("also when it was not made by defineRoute, or twice", () => {
    const surface = (route: unknown): RoomSurface => ({ routes: { route } });
    expect(() => new Registry([surface(withoutAuth)])).toThrow("route POST /v1/new: `auth`");
    expect(() => new Registry([surface(whole), surface({ ...whole })])).toThrow(
      "two routes are POST /v1/new",
    );
  });

  test("a method that notifies what nobody defines", () => {
    const method = {
      name: "a.b",
      params: z.object({}),
      result: z.object({}),
      notifies: ["a.c"],
      handler() {},
    };
    expect(() => new Registry([{ methods: { method } }])).toThrow("method a.b notifies a.c");
  });
});

describe("auth", () => {
  test("a handler that forgets about it is not reached without a key", async () => {
    ran.length = 0;
    for (const bearer of [undefined, "service-00000000-0000-4000-8000-000000000000", person, ADMIN_TOKEN]) {
      const refused = await send("/v1/test/echo", { bearer, body: '{"name":"n"}' });
      expect([refused.status, refused.headers.get("www-authenticate"), await refused.text()]).toEqual([
        401,
        "Bearer",
        "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n",
      ]);
    }
    expect(ran).toEqual([]);
    const answer = await send("/v1/test/echo", { bearer: key.key, body: '{"name":"n"}' });
    expect([answer.status, await answer.json()]).toEqual([200, { name: "n", key_id: key.id }]);
    expect(ran).toEqual(["/v1/test/echo"]);
  });

  test("people and administrators", async () => {
    const whoAmI = (bearer?: string) => send("/api/test/7/person?page=2", { bearer });
    for (const bearer of [undefined, key.key, ADMIN_TOKEN]) {
      const refused = await whoAmI(bearer);
      expect([refused.status, (await json(refused)).error.code]).toEqual([401, "unauthorized"]);
    }
    expect(await json(await whoAmI(person))).toEqual({ email: "person@example.com", id: "7", page: "2" });
    const refused = await send("/api/test/administrator", { bearer: person });
    expect([refused.status, (await json(refused)).error.code]).toEqual([403, "admin_required"]);
    const admin = await gateway.signIn("admin");
    expect(await json(await send("/api/test/administrator", { bearer: admin }))).toEqual({ ok: true });
  });
});

describe("what comes in", () => {
  test("a body over the limit is refused before the handler, however it is sent, and after the key", async () => {
    ran.length = 0;
    const large = "x".repeat(BODY_BYTES_MAX + 1);
    const chunks = () => new Blob([large]).stream();
    for (const path of ["/v1/test/echo", "/v1/test/bytes"]) {
      for (const body of [large, chunks()]) {
        const refused = await send(path, { bearer: key.key, body });
        expect([refused.status, (await json(refused)).error.code]).toEqual([413, "body_too_large"]);
      }
      expect((await send(path, { body: large })).status).toBe(401);
    }
    expect(ran).toEqual([]);
    const whole = await send("/v1/test/bytes", { bearer: key.key, body: "x".repeat(BODY_BYTES_MAX) });
    expect(await json(whole)).toEqual({ bytes: BODY_BYTES_MAX });
  });

  test("a body or query that does not match names its field, and does not reach the handler", async () => {
    ran.length = 0;
    for (const body of ["", "{}", '{"name":""}', '{"name":7}', '{"name":"a\\u0000b"}']) {
      const refused = await send("/v1/test/echo", { bearer: key.key, body });
      const { error } = await json(refused);
      expect([refused.status, error.code]).toEqual([400, "missing_fields"]);
      expect(error.message).toContain("`name`");
    }
    const broken = await send("/v1/test/echo", { bearer: key.key, body: '{"name":' });
    expect([broken.status, (await json(broken)).error.code]).toEqual([400, "parse_error"]);
    for (const search of ["", "?page=", "?page=two"]) {
      const refused = await send(`/api/test/7/person${search}`, { bearer: person });
      expect([refused.status, (await json(refused)).error.message]).toEqual([
        400,
        expect.stringContaining("`page`"),
      ]);
    }
    expect(ran).toEqual([]);
  });
});

describe("what goes out", () => {
  test("a field that is not declared is dropped", async () => {
    const answer = await send("/v1/test/echo", { bearer: key.key, body: '{"name":"n"}' });
    expect(await answer.text()).not.toContain(SECRET);
  });

  test("an answer that breaks its schema is a 500 that says nothing of it, and the log says where", async () => {
    const answer = await send("/api/test/broken");
    const text = await answer.text();
    expect([answer.status, JSON.parse(text).error.code]).toEqual([500, "internal_error"]);
    expect(text).not.toContain(SECRET);
    const line = logged.find((each) => each.includes("route failed"));
    expect(line).toContain(answer.headers.get("x-request-id")!);
    expect(line).toContain("/api/test/broken");
    expect(line).toContain("count");
    expect(line).not.toContain(SECRET);
  });
});

test("the documents list the notifications, each with a schema", async () => {
  const document = await json(await send("/api/openrpc.json"));
  const page = await (await send("/api/reference.md")).text();
  const names = document["x-notifications"].map(({ name }: { name: string }) => name);
  expect(names.sort()).toEqual([
    "backends.progress",
    "chat.stream",
    "key.request",
    "models.progress",
    "realtime.event",
    "requests.ended",
    "video.done",
    "video.failed",
    "video.progress",
  ]);
  for (const { name, params } of document["x-notifications"]) {
    expect(Boolean(params.properties ?? params.anyOf)).toBe(true);
    expect(page).toContain(`### ${name}\n`);
  }
});
