/**
 * Every field of every RPC method and of every HTTP route gets every hostile value, as the service's own
 * documents list them. Whatever comes back, it is an answer to the caller's mistake, never an internal error.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { deploymentOfRun } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { createLog } from "../../src/kernel/log.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

interface JsonSchema {
  type?: string | string[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, JsonSchema>;
  required?: string[];
}

/** JSON texts, because some of them cannot be written by a serialiser. */
const HOSTILE: readonly string[] = [
  "null",
  "true",
  "0",
  "-1",
  "1.5",
  "1e400",
  "-1e400",
  "9007199254740993",
  "123456789012345678901234567890",
  '""',
  '"   "',
  '"\\u0000"',
  '"a\\u0000b"',
  '"\\ud800"',
  '"\\uffff\\u202e\\ud83d\\ude00 ﷽"',
  `"'; DROP TABLE users; --"`,
  '"../../etc/passwd"',
  '"%00%ff"',
  '"NaN"',
  '"__proto__"',
  '"constructor"',
  '"toString"',
  '"9999-12-31"',
  '"0000-01-01"',
  '"9999-12-31T23:59:59.999999999-23:59"',
  '"00000000-0000-0000-0000-000000000000"',
  '"7d444840-9dc0-41d1-b245-5ffdce74fad2"',
  '"someone@example.com"',
  '"nul\\u0000@example.com"',
  JSON.stringify("x".repeat(70_000)),
  JSON.stringify("é".repeat(64)),
  "[]",
  "[null]",
  '["a\\u0000b"]',
  // Stored as UTF-8 the two would be the same text.
  '["a\\ud800","a\\ud801"]',
  "[{}]",
  `[${"0,".repeat(2_000)}0]`,
  "{}",
  '{"__proto__":{"isAdmin":true},"constructor":{"prototype":{}}}',
  '{"a\\u0000b":"\\u0000"}',
  `${"[".repeat(90)}${"]".repeat(90)}`,
];

const BODIES: readonly (string | Uint8Array<ArrayBuffer>)[] = [
  "",
  " ",
  "null",
  "[]",
  "[[]]",
  "1",
  '"text"',
  "{",
  '{"a":1,}',
  "{'a':1}",
  '{"a":1}{"b":2}',
  "\ufeff{}",
  '{"__proto__":null}',
  `${"[".repeat(200_000)}${"]".repeat(200_000)}`,
  `{"model":"m","messages":${"[".repeat(100_000)}${"]".repeat(100_000)}}`,
  `{"model":"m","messages":[{"role":"user","content":"hi"}],"extra":${'{"a":'.repeat(50_000)}1${"}".repeat(50_000)}}`,
  `{"a":"${"x".repeat(2 * 1024 * 1024)}"}`,
  new Uint8Array([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
  new Uint8Array([0x7b, 0x22, 0x6d, 0x22, 0x3a, 0x22, 0xc3, 0x28, 0x22, 0x7d]),
  new Uint8Array([0, 0, 0]),
];

/** Fields beyond the required ones, where a route looks deeper only with them. */
const BASES: Readonly<Record<string, Record<string, unknown>>> = {
  "/api/admin/usage/query": { include_records: true, group_by: "day" },
};
/** Fields that the gateway does not read: `extra` that is no object is ignored, and the rest is the upstream's. */
const PASSED_ON = /^\S+ (extra|dimensions|messages|top_n|response_format)$|^\/v1\/(messages|responses)/;

const typesOf = (schema: JsonSchema): string[] => {
  if (schema.anyOf) return schema.anyOf.flatMap(typesOf);
  if (schema.const !== undefined) return [typeof schema.const];
  return [schema.type ?? "any"].flat();
};

const jsonTypeOf = (value: unknown): string =>
  value === null ? "null" : Array.isArray(value) ? "array" : typeof value;

/** Whether a value cannot be what the schema asks for, by its JSON type alone. */
function isWrongType(schema: JsonSchema, json: string): boolean {
  const types = typesOf(schema);
  const type = jsonTypeOf(JSON.parse(json));
  return !types.includes("any") && !types.includes(type) && !(type === "number" && types.includes("integer"));
}

interface Case {
  field: string;
  /** JSON of the field's whole value. */
  json: string;
  isWrong: boolean;
}

/** Every hostile value in the field itself, and in each field of the object, or of the objects, that it holds. */
function casesOf(field: string, schema: JsonSchema): Case[] {
  const own = HOSTILE.map((json) => ({ field, json, isWrong: isWrongType(schema, json) }));
  const inner = schema.items?.properties ?? schema.properties ?? {};
  const nested = Object.keys(inner).flatMap((name) =>
    HOSTILE.map((json) => {
      const object = withField(INNER, name, json);
      return { field, json: schema.items ? `[${object}]` : object, isWrong: isWrongType(inner[name]!, json) };
    }),
  );
  return [...own, ...nested];
}

/** Good values of the fields of such objects: messages, images and events. */
const INNER = {
  role: "user",
  content: "hi",
  mime_type: "image/png",
  data_base64: "iVBORw0KGgo=",
  type: "session.stop",
};

const withField = (base: Record<string, unknown>, field: string, json: string): string => {
  const { [field]: _, ...rest } = base;
  const others = Object.entries(rest).map(
    ([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`,
  );
  return `{${[...others, `${JSON.stringify(field)}:${json}`].join(",")}}`;
};

onEachDatabase("hostile input", (fresh, kind) => {
  /** What is of the wrong type never comes as far as the database: with one of them it is tried. */
  const isTried = ({ isWrong }: Case) => !isWrong || kind === "sqlite" || deploymentOfRun === "instances";
  let database: TestDatabase;
  let bench: InferenceBench;
  let problems: string[];
  /** Good values of fields by name, so that the one hostile field is the only mistake. */
  let good: Record<string, unknown>;

  beforeAll(async () => {
    database = await fresh();
    problems = [];
    const log = createLog({ level: "error", format: "json", write: (line) => problems.push(line) });
    const { dataDir, databaseUrl } = database.options;
    bench = await bootInference({ config: { dataDir, databaseUrl }, overrides: { log } });
    const { id: groupId } = await bench.rpc("group.create", { name: "lab" }, bench.token);
    await bench.rpc("group.credits.topup", { group_id: groupId, points: 1_000 }, bench.token);
    const { id: conversationId } = await bench.rpc("conversations.create", {}, bench.token);
    const { agent_id } = await bench.rpc(
      "agents.register",
      { machine_name: "node", version: "1" },
      bench.token,
    );
    good = {
      group_id: groupId,
      conversation_id: conversationId,
      agent_id,
      model: "m",
      model_id: "m",
      model_ids: ["m"],
      messages: [{ role: "user", content: "hi" }],
      contents: [{ role: "user", parts: [{ text: "hi" }] }],
      input: "hi",
      max_tokens: 5,
      name: "a name",
      machine_name: "node",
      version: "1",
      email: "ada@example.com",
      user_email: "ada@example.com",
      user_id: "ada@example.com",
      tier: "enterprise",
      password: "correct horse battery",
      points: 1,
      count: 1,
      provider_id: "mine",
      id: "8e0f7f0e-6a3c-4c56-9f33-3c4f1d4b1a11",
      method: "sensor.ingest",
      event: { type: "response.create" },
      session_id: crypto.randomUUID(),
      key_id: crypto.randomUUID(),
      job_id: crypto.randomUUID(),
      node_id: "n1",
      token: "t",
      refresh_token: "t",
      challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
      code: "c",
      verifier: "dBjftJeZ4CVP-mBx92K27uhbUJU1p1r_wW1gFWFOEjXk",
      prompt: "a cat",
      query: "cats",
      documents: ["a cat"],
      message_id: crypto.randomUUID(),
      alias: "nick",
      target: "m",
      targets: [{ model: "m" }],
      title: "a title",
      server: "vllm",
      index: 99,
      current_password: "not the password",
      new_password: "another password",
      link_id: groupId,
      invitation_id: groupId,
      input_usd: 1,
      output_usd: 1,
      monthly_usd_quota: 1,
      monthly_token_quota: 100_000,
      rpm: 10,
      since: "2026-10-01",
      mode: "off",
      until: "2026-10-02",
      by: "model",
      days: 1,
      value: "30",
      input_file_id: groupId,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    };
  });
  afterAll(async () => {
    await bench.stop();
    await database.drop();
  });

  const document = async (name: string) => (await fetch(`${bench.url}/api/${name}.json`)).json();
  /** Good values of the required fields; legacy names are given only when they are what is tried. */
  const baseOf = (required: readonly string[]) =>
    Object.fromEntries(required.map((name) => [name, good[name]]));

  test("of every field of every method is refused by name", async () => {
    interface Param {
      name: string;
      required: boolean;
      schema: JsonSchema;
    }
    const { methods } = (await document("openrpc")) as {
      methods: { name: string; "x-auth": string; params: Param[] }[];
    };
    const refused: string[] = [];
    let calls = 0;
    for (const { name: method, params, "x-auth": auth } of methods) {
      const bearer = auth === "admin_token" ? ADMIN_TOKEN : bench.token;
      const base = baseOf(params.filter(({ required }) => required).map(({ name }) => name));
      // Null in a field that may be left out is nothing wrong.
      const cases = params
        .flatMap(({ name, schema, required }) => casesOf(name, schema).map((each) => ({ ...each, required })))
        .map((each) => ({ ...each, isWrong: each.isWrong && (each.required || each.json !== "null") }))
        .filter(isTried);
      for (let i = 0; i < cases.length; i += 5) {
        const batch = cases.slice(i, i + 5);
        const texts = batch.map(
          ({ field, json }, id) =>
            `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${withField(base, field, json)}}`,
        );
        const response = await fetch(`${bench.url}/api/rpc`, {
          method: "POST",
          headers: { authorization: `Bearer ${bearer}` },
          body: `[${texts.join(",")}]`,
        });
        const answers = (await response.json()) as { error?: { code: number; message: string } }[];
        expect(answers.length, `${method} ${response.status}`).toBe(batch.length);
        calls += answers.length;
        answers.forEach(({ error }, k) => {
          const { field, json, isWrong } = batch[k]!;
          const isFault = error?.code === -32603;
          const isUnnamed = isWrong && (error?.code !== -32602 || !error.message.includes(field));
          if (isFault || isUnnamed)
            refused.push(`${method} ${field}=${json.slice(0, 60)}: ${JSON.stringify(error)?.slice(0, 200)}`);
        });
      }
    }
    expect(refused).toEqual([]);
    expect(problems).toEqual([]);
    expect(calls).toBeGreaterThan(3_000);
  }, 300_000);

  const send = async (
    method: string,
    path: string,
    { body, bearer }: { body?: BodyInit; bearer: string },
  ) => {
    const response = await fetch(`${bench.url}${path.replace("{call}", "m:generateContent")}`, {
      method,
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
      body,
    });
    const id = response.headers.get("x-request-id");
    return { status: response.status, text: await response.text(), id };
  };

  test("of every field of every route is a 4xx that names it", async () => {
    interface Operation {
      security: Record<string, unknown>[];
      requestBody?: { content: Record<string, { schema: JsonSchema }> };
    }
    const { paths } = (await document("openapi")) as { paths: Record<string, Record<string, Operation>> };
    const wrong: string[] = [];
    const check = (what: string, { status, text, id }: Awaited<ReturnType<typeof send>>, ok: boolean) => {
      // Two of the contract's answers above 499 are about the request: there is no such backend or tunnel.
      const isFault = status >= 500 && !/"(no_backend|bridge_unreachable)"/.test(text);
      if (isFault || !ok || !id) wrong.push(`${what}: ${status} ${text.slice(0, 200)}`);
    };
    // The inference routes go first: the admin ones may remove the backend.
    for (const path of Object.keys(paths).sort().reverse()) {
      for (const [method, { requestBody, security }] of Object.entries(paths[path]!)) {
        const schema = requestBody?.content["application/json"]?.schema;
        if (!schema) continue;
        const verb = method.toUpperCase();
        const wants = (name: string) => security.some((scheme) => name in scheme);
        // A key of its own for each route: the tier's limit is a thousand requests a minute.
        const { key } = await bench.rpc("keys.create", { name: path }, bench.token);
        const bearer = wants("adminToken") ? ADMIN_TOKEN : wants("accessToken") ? bench.token : key;
        const base = { ...baseOf(schema.required ?? []), ...BASES[path] };
        for (const [field, fieldSchema] of Object.entries(schema.properties ?? {})) {
          for (const { json, isWrong } of casesOf(field, fieldSchema).filter(isTried)) {
            const answer = await send(verb, path, { body: withField(base, field, json), bearer });
            const isRefused = answer.status === 400 && answer.text.includes(field);
            const isFree = json === "null" || PASSED_ON.test(`${path} ${field}`);
            check(`${verb} ${path} ${field}=${json.slice(0, 60)}`, answer, isFree || isRefused || !isWrong);
          }
        }
        for (const body of BODIES) {
          const answer = await send(verb, path, { body, bearer });
          check(`${verb} ${path} body ${String(body).slice(0, 40)}`, answer, true);
        }
      }
    }
    expect(wrong).toEqual([]);
    expect(problems).toEqual([]);
  }, 300_000);

  test("in paths, queries and headers is refused too", async () => {
    const authorization = `Bearer ${bench.key}`;
    const texts = [
      "%00",
      "%ff",
      "..%2f..%2fetc",
      "%F0%9F%98%80",
      "a".repeat(4_000),
      "'%20OR%201=1--",
      "{id}",
    ];
    for (const text of texts) {
      const polled = await fetch(`${bench.url}/v1/video/generations/${text}`, { headers: { authorization } });
      expect({ text, status: polled.status }).toEqual({ text, status: 400 });
      expect(await polled.json()).toMatchObject({ error: { code: "bad_id" } });
      const events = await fetch(
        `${bench.url}/api/rpc/events?session=${"s".repeat(65)}${text}&token=${text}`,
      );
      expect({ text, status: events.status }).toEqual({ text, status: 400 });
      const admin = await fetch(`${bench.url}/api/admin/${text}`, { headers: { authorization: text } });
      expect([401, 404]).toContain(admin.status);
    }
    for (const credentials of [
      "Bearer",
      "Bearer  ",
      "bearer service-",
      "Basic YTpi",
      `Bearer ${"x".repeat(9_000)}`,
    ]) {
      const answer = await fetch(`${bench.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: credentials },
        body: "{}",
      });
      expect({ credentials, status: answer.status }).toEqual({ credentials, status: 401 });
      expect(answer.headers.get("content-type")).toStartWith("text/plain");
    }
    const pushed = await fetch(`${bench.url}/api/rpc`, {
      method: "POST",
      headers: { "x-session-id": "x".repeat(5_000), authorization: "Bearer \u00ff\u00fe" },
      body: '{"jsonrpc":"2.0","id":1,"method":"system.status"}',
    });
    expect(pushed.status).toBe(200);
    expect(problems).toEqual([]);
  });

  test("in a conversation is kept as far as a database can", async () => {
    const { id } = await bench.rpc("conversations.create", {}, bench.token);
    await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
    const answer = await bench.chat({
      conversation_id: id,
      messages: [{ role: "user", content: "a\u0000b \ud800" }],
    });
    expect(answer.status).toBe(200);
    // The model is told what the client said; only the books leave it out.
    expect(bench.upstream.requests.at(-1)!.text).toContain("a\\u0000b");
    const { messages } = await bench.rpc("conversations.get", { conversation_id: id }, bench.token);
    expect(messages.map(({ role }: { role: string }) => role)).toEqual(["user", "assistant"]);
    for (const { content } of messages) expect(content.startsWith("ab")).toBe(true);
    expect(problems).toEqual([]);
  });
});
