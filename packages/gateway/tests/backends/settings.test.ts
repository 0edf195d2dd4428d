import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { createPublicKey, createVerify, generateKeyPairSync } from "node:crypto";
import {
  completion,
  type FakeUpstream,
  politeHandler,
  startUpstream,
} from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

/** How a server is spoken to, as its operator set it. */
let bench: InferenceBench;
let server: FakeUpstream;
beforeAll(async () => {
  bench = await bootInference();
  server = startUpstream({ models: ["s1"] });
});
beforeEach(() => {
  server.requests.length = 0;
  server.answer(politeHandler);
});
afterAll(async () => {
  server.stop();
  await bench.stop();
});

const list = async () => (await bench.rpc("backends.list", {}, bench.token)).backends;
const named = async (name: string) => (await list()).find((each: { name: string }) => each.name === name);
const add = (body: object) => bench.addBackend({ type: "external", name: "set", url: server.url, ...body });
const sent = () => server.requests.at(-1)!;
const keysSent = () => server.requests.map(({ headers }) => headers.authorization);

test("several keys are used in turn, a session stays with one, and a refused one is set aside and shown", async () => {
  await add({ api_key: "sk-first-1111, sk-second-2222" });
  const [first, second] = ["Bearer sk-first-1111", "Bearer sk-second-2222"];
  const say = (content: string) => bench.chat({ model: "s1", messages: [{ role: "user", content }] });
  for (let i = 0; i < 12; i++) expect((await say(`question ${i}`)).status).toBe(200);
  expect(new Set(keysSent())).toEqual(new Set([first, second]));

  server.requests.length = 0;
  const headers = { "x-session-id": "agent-7" };
  for (let i = 0; i < 4; i++) await bench.chat({ model: "s1" }, { headers });
  expect(new Set(keysSent()).size).toBe(1);

  server.answer((request, reply) =>
    request.headers.authorization === first
      ? reply.json({ error: { message: "revoked: sk-first-1111" } }, 401)
      : politeHandler(request, reply),
  );
  for (let i = 0; i < 12; i++) expect((await say(`question ${i}`)).status).toBe(200);
  expect((await named("set")).refused_keys).toMatchObject([{ ends_with: "1111" }]);
  server.requests.length = 0;
  for (let i = 0; i < 12; i++) await say(`question ${i}`);
  expect(new Set(keysSent())).toEqual(new Set([second]));

  // When every key is refused, the client is told so, without them.
  server.answer((_, reply) => reply.json({ error: { message: "revoked: sk-second-2222" } }, 401));
  const refused = await (await bench.chat({ model: "s1" })).text();
  expect(refused).toContain("upstream 401");
  expect(refused).not.toContain("sk-second");
  expect(JSON.stringify(await list())).not.toContain("sk-second");
});

test("a key that may not list models is used for chats all the same", async () => {
  const narrow = "Bearer sk-narrow-3333";
  server.listing((request, reply) =>
    request.headers.authorization === narrow
      ? reply.json({ error: { message: "Missing scopes: api.model.read" } }, 403)
      : reply.json({ data: [{ id: "s1" }] }),
  );
  await add({ api_key: "sk-narrow-3333, sk-wide-4444" });
  for (let i = 0; i < 2; i++) await bench.rpc("backends.probe", { name: "set" }, bench.token);
  expect(await named("set")).toMatchObject({ state: "Healthy", refused_keys: [] });
  server.requests.length = 0;
  for (let i = 0; i < 2; i++) await bench.chat({ model: "s1" });
  expect(keysSent()).toContain(narrow);
});

test("the way of the key, headers, and fields to set or drop are what the server sees, in every dialect", async () => {
  const settings = {
    api_key: "sk-azure-like",
    auth: "api-key",
    headers: { "x-project": "secret-project-7" },
    set: { service_tier: "flex" },
    drop: ["seed", "metadata"],
    id_prefix: "models/",
  };
  await add(settings);
  await bench.chat({ model: "s1", seed: 7, user: "u" });
  expect(sent().headers).toMatchObject({ "api-key": "sk-azure-like", "x-project": "secret-project-7" });
  expect(sent().headers.authorization).toBeUndefined();
  expect(sent().json).toMatchObject({ model: "models/s1", service_tier: "flex", user: "u" });
  expect(sent().json.seed).toBeUndefined();
  const shown = await named("set");
  expect(shown).toMatchObject({ auth: "api-key", header_names: ["x-project"], drop: ["seed", "metadata"] });
  expect(JSON.stringify(shown)).not.toContain("secret-project-7");

  await add({ ...settings, dialects: ["messages"], auth: null });
  server.answer((_, reply) =>
    reply.json({
      type: "message",
      content: [{ type: "text", text: "hi" }],
      stop_reason: "end_turn",
      usage: {},
    }),
  );
  await bench.chat({ model: "s1", seed: 7 });
  expect(sent().headers["x-api-key"]).toBe("sk-azure-like");
  expect(sent().json).toMatchObject({ model: "models/s1", service_tier: "flex" });
  const native = {
    model: "s1",
    max_tokens: 9,
    metadata: { user_id: "u" },
    messages: [{ role: "user", content: "hi" }],
  };
  expect((await bench.post("/v1/messages", native)).status).toBe(200);
  expect(sent().headers["x-project"]).toBe("secret-project-7");
  expect(sent().json).toMatchObject({ model: "models/s1", service_tier: "flex" });
  expect(sent().json.metadata).toBeUndefined();
  // The settings are stored sealed, and stay when something else is changed.
  const { db } = bench.app.rooms.usage.store;
  expect(JSON.stringify(await db.all("SELECT * FROM backend_configs"))).not.toContain("secret-project-7");
  await bench.rpc("backends.update", { name: "set", models: ["s2"] }, bench.token);
  expect((await named("set")).header_names).toEqual(["x-project"]);
});

test("settings that would break a request, its price or another kind are refused by name", async () => {
  const refusal = async (fields: object) =>
    (await (await bench.admin("POST", "/backends", { url: server.url, type: "external", ...fields })).json())
      .error.message;
  expect(await refusal({ set: { model: "x" } })).toContain("set.model");
  expect(await refusal({ set: { max_tokens: 1 } })).toContain("set.max_tokens");
  expect(await refusal({ drop: ["stream"] })).toContain("drop.0");
  expect(await refusal({ headers: { "content-length": "1" } })).toContain("headers.content-length");
  expect(await refusal({ headers: { "x-a": "1\r\nx-b: 2" } })).toContain("headers.x-a");
  expect(await refusal({ url: "https://{resource}.openai.azure.com/openai/v1" })).toContain("{resource}");
  expect(await refusal({ auth: "basic" })).toContain("auth");
  expect(await refusal({ type: "ollama", auth: "bearer" })).toContain(
    "`auth`: a backend of type local-server",
  );
});

test("the field that limits an answer is the one that is set", async () => {
  await add({ limit_field: "max_completion_tokens" });
  await bench.rpc("billing.prices.set", { model: "s1", input_usd: 1, output_usd: 1_000 }, bench.token);
  const { key } = await bench.rpc("keys.create", { name: "poor", monthly_budget_usd: 1 }, bench.token);
  const answer = await bench.chat({ model: "s1" }, { headers: { authorization: `Bearer ${key}` } });
  expect(answer.headers.get("x-service-max-tokens")).not.toBeNull();
  expect(sent().json.max_completion_tokens).toBeGreaterThan(0);
  expect(sent().json.max_tokens).toBeUndefined();
});

test("what all keys are refused for sets none of them aside: it may be one user's prompt", async () => {
  await add({ api_key: "sk-first-1111, sk-second-2222" });
  const say = (content: string) => bench.chat({ model: "s1", messages: [{ role: "user", content }] });
  server.answer((request, reply) =>
    request.text.includes("flagged")
      ? reply.json({ error: { message: "your input was flagged" } }, 403)
      : politeHandler(request, reply),
  );
  expect((await say("flagged")).status).toBe(502);
  expect((await named("set")).refused_keys).toEqual([]);
  server.requests.length = 0;
  for (let i = 0; i < 12; i++) await say(`question ${i}`);
  expect(new Set(keysSent()).size).toBe(2);
});

test("a service account's key file is exchanged for a token, once for many requests", async () => {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const assertions: string[] = [];
  // Shorter than the time that tokens are renewed before their end.
  const expires_in = 60;
  const google = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const form = new URLSearchParams(await request.text());
      assertions.push(form.get("assertion")!);
      expect(form.get("grant_type")).toBe("urn:ietf:params:oauth:grant-type:jwt-bearer");
      return Response.json({ access_token: "ya29.token-of-an-hour", expires_in });
    },
  });
  const token_uri = `http://127.0.0.1:${google.port}/token`;
  const pem = privateKey.export({ type: "pkcs8", format: "pem" });
  const file = {
    type: "service_account",
    client_email: "gw@p.iam.gserviceaccount.com",
    private_key: pem,
    token_uri,
  };
  await add({ api_key: JSON.stringify(file, null, 2) });
  for (let i = 0; i < 3; i++) expect((await bench.chat({ model: "s1" })).status).toBe(200);
  expect(new Set(keysSent())).toEqual(new Set(["Bearer ya29.token-of-an-hour"]));
  expect(assertions).toHaveLength(1);
  const [head, claims, signature] = assertions[0]!.split(".") as [string, string, string];
  const key = createPublicKey(publicKey.export({ type: "spki", format: "pem" }) as string);
  const isSigned = createVerify("RSA-SHA256").update(`${head}.${claims}`).verify(key, signature, "base64url");
  expect(isSigned).toBe(true);
  const { iss, aud, scope, iat, exp } = JSON.parse(Buffer.from(claims, "base64url").toString());
  expect({ iss, aud, seconds: exp - iat }).toEqual({ iss: file.client_email, aud: token_uri, seconds: 3600 });
  expect(scope).toContain("cloud-platform");

  // A token that is refused is not used again.
  server.answer((_, reply) => reply.json({ error: { message: "expired: ya29.token-of-an-hour" } }, 401));
  const refused = await (await bench.chat({ model: "s1" })).text();
  expect(refused).not.toContain("ya29");
  server.answer(politeHandler);
  await bench.chat({ model: "s1" });
  expect(assertions).toHaveLength(2);
  // It is a secret as long as its backend.
  await bench.removeBackend("set");
  await add({ name: "other" });
  server.answer((_, reply) => reply.json({ error: { message: "expired: ya29.token-of-an-hour" } }, 401));
  expect(await (await bench.chat({ model: "s1" })).text()).toContain("ya29.token-of-an-hour");
  await bench.removeBackend("other");
  google.stop(true);
});

test("a listing that the key may not see says nothing about chats; a key that may not chat is unhealthy", async () => {
  let isKeyKnown = true;
  const chats = (request: { json: { messages?: unknown[] } }) => request.json.messages?.length ?? 0;
  server.listing((_, reply) => reply.json({ error: { message: "no listing for you" } }, 403));
  server.answer((request, reply) => {
    if (!isKeyKnown) return reply.json({ error: { message: "revoked" } }, 401);
    if (chats(request) === 0) return reply.json({ error: { message: "messages: required" } }, 400);
    return reply.json(completion("hello"));
  });
  await add({ api_key: "sk-narrow", models: ["models/s1"] });
  expect(await named("set")).toMatchObject({ state: "Healthy", last_error: null, model_ids: ["s1"] });
  // Either form of an id works, and the plain one is listed.
  for (const model of ["s1", "models/s1"]) expect((await bench.chat({ model })).status).toBe(200);
  expect(sent().json.model).toBe("s1");
  const listed = await (await fetch(`${bench.url}/v1/models`)).json();
  const ids = listed.data.map(({ id }: { id: string }) => id);
  expect([ids.includes("s1"), ids.includes("models/s1")]).toEqual([true, false]);
  isKeyKnown = false;
  await bench.rpc("backends.probe", { name: "set" }, bench.token);
  expect(await named("set")).toMatchObject({ state: "Unhealthy" });
  expect((await named("set")).last_error).toContain("403");
});
