/** No call keeps the event loop for long, however much it brings: every method and route gets its costliest body. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { Stalls } from "@model-gateway/testing/stalls.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, politeHandler, startUpstream } from "@model-gateway/testing/upstream.ts";
import { ADMIN_TOKEN, Instance } from "./support/cluster.ts";

/** Of processor time of the main thread: waiting for a core makes no turn longer. */
const TURN_MS_MAX = 20;
/** What `work` takes of a core that has nothing else to do; where it takes longer, so may a turn. */
const WORK_MS = 10;
const worked = JSON.stringify(
  Array.from({ length: 20_000 }, (_, at) => ({
    role: "user",
    content: `text ${at}`,
    parts: [at, null, true],
  })),
);
function work(): number {
  const before = process.threadCpuUsage();
  JSON.stringify(JSON.parse(worked));
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1_000;
}
/** How much slower this machine is just now: a core that others share takes more of its time for the same. */
const slowness = (): number => Math.max(1, Math.min(work(), work(), work()) / WORK_MS);

/** The first time code is compiled, and now and then memory is collected: only what is always long is a fault. */
const ATTEMPTS = 12;
setDefaultTimeout(240_000);
const RPC_CHARS = 1024 * 1024 - 4_096;
const REST_CHARS = 2 * 1024 * 1024;
/** Of smaller bodies one form is enough. */
const SMALL_CHARS = 64 * 1024;

interface Schema {
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  maxItems?: number;
  maxLength?: number;
  maximum?: number;
  format?: string;
  pattern?: string;
}
/** `wrong`: lists of what does not belong there. */
type Manner = "long" | "many" | "deep" | "wrong";
const MANNERS: readonly Manner[] = ["wrong", "long", "many", "deep"];
const DEPTH = 90;
const EXAMPLES: Record<string, string> = {
  email: "someone@example.com",
  uuid: "11111111-1111-4111-8111-111111111111",
  uri: "http://127.0.0.1:9/",
  "date-time": "2026-11-17T00:00:00Z",
};

/** A value that the schema accepts, as JSON of about so many characters. */
function costliest(schema: Schema, chars: number, manner: Manner): string {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return longest(choices.map((choice) => costliest(choice, chars, manner)));
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return JSON.stringify(schema.enum[0]);
  const types = [schema.type].flat();
  if (types.includes("array")) return list(schema, chars, manner);
  if (types.includes("object") || schema.properties) return object(schema, chars, manner);
  if (types.includes("string")) return JSON.stringify(text(schema, chars, manner));
  if (types.includes("integer") || types.includes("number")) return String(Math.min(schema.maximum ?? 5, 5));
  if (types.includes("boolean")) return "true";
  if (types.includes("null")) return "null";
  return anything(chars, manner);
}

const longest = (texts: string[]): string => texts.reduce((a, b) => (b.length > a.length ? b : a), "");
const filled = (piece: string, chars: number): string => {
  const count = Math.max(1, Math.floor(chars / (piece.length + 1)));
  return `${`${piece},`.repeat(count - 1)}${piece}`;
};

function anything(chars: number, manner: Manner): string {
  if (manner === "long") return JSON.stringify("x".repeat(Math.max(0, chars - 2)));
  return `[${filled(manner === "many" ? "{}" : "[".repeat(DEPTH) + "]".repeat(DEPTH), chars)}]`;
}

function text(
  { maxLength = Number.POSITIVE_INFINITY, format, pattern }: Schema,
  chars: number,
  manner: Manner,
) {
  const example = format && EXAMPLES[format];
  if (example) return example;
  if (pattern) return "a".repeat(Math.min(8, maxLength));
  return (manner === "many" ? "\n " : "x ").repeat(Math.min(maxLength, Math.max(2, chars)) / 2);
}

function list({ items = {}, maxItems }: Schema, chars: number, manner: Manner): string {
  if (manner === "wrong") return `[${filled("1", chars)}]`;
  const share = maxItems ? chars / maxItems : manner === "long" ? chars / 2 : 8;
  const item = costliest(items, Math.max(1, share), manner);
  return `[${filled(item, Math.min(chars, (maxItems ?? chars) * (item.length + 1)))}]`;
}

function object(
  { properties = {}, additionalProperties = false }: Schema,
  chars: number,
  manner: Manner,
): string {
  const entries = Object.entries(properties);
  const isOpen = additionalProperties !== false && (manner === "many" || entries.length === 0);
  const share = Math.max(1, Math.floor(chars / (entries.length + Number(isOpen))) - 32);
  const members = entries.map(
    ([name, schema]) => `${JSON.stringify(name)}:${costliest(schema, share, manner)}`,
  );
  const value = typeof additionalProperties === "object" ? costliest(additionalProperties, 8, "many") : "1";
  for (let at = 0; isOpen && at < share / (value.length + 10); at++) members.push(`"k${at}":${value}`);
  return `{${members.join()}}`;
}

const stalls = new Stalls();
let instance: Instance;
let upstream: FakeUpstream;
let token: string;
let key: string;

const post = (path: string, bearer: string, body: string, method = "POST") =>
  fetch(instance.url + path, {
    method,
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(method !== "GET" && { body }),
  });
const call = (method: string, params: string) =>
  `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`;

/** What is always long is noted. */
async function watch(tooLong: string[], what: string, ask: () => Promise<Response>): Promise<void> {
  let leastMs = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < ATTEMPTS && leastMs > TURN_MS_MAX; attempt++) {
    const { cpuMs } = await stalls.during(async () => (await ask()).arrayBuffer());
    leastMs = Math.min(leastMs, cpuMs > TURN_MS_MAX ? cpuMs / slowness() : cpuMs);
  }
  if (leastMs > TURN_MS_MAX) tooLong.push(`${what}: ${leastMs.toFixed(1)} ms`);
}

/** Different bodies of a schema, each costly in another way. */
function bodiesOf(schema: Schema, chars: number): Map<string, Manner> {
  const bodies = new Map(
    MANNERS.map((manner) => [
      costliest(schema, chars, manner).replace(/"model":"(?:[^"\\]|\\.)*"/, '"model":"m"'),
      manner,
    ]),
  );
  const sizes = [...bodies.keys()].map(({ length }) => length);
  return Math.max(...sizes) > SMALL_CHARS ? bodies : new Map([...bodies].slice(0, 1));
}

beforeAll(async () => {
  upstream = startUpstream({ models: ["m"] });
  const { preload, env } = stalls;
  instance = await new Instance({ databaseUrl: null, redisUrl: null, preload, env }).start();
  const account = { email: "ada@example.com", password: "correct horse battery" };
  token = (await instance.rpc("auth.register", account)).access_token;
  ({ key } = await instance.rpc("keys.create", { name: "k" }, token));
  const backend = { type: "external", name: "first", url: upstream.url, batches: true };
  await post("/api/admin/backends", ADMIN_TOKEN, JSON.stringify(backend));
});
afterAll(async () => {
  await instance?.remove();
  upstream?.stop();
  stalls.remove();
});

test("every method", async () => {
  const { methods } = await (await fetch(`${instance.url}/api/openrpc.json`)).json();
  const tooLong: string[] = [];
  // Those that may end the session come last.
  for (const { name, params, "x-auth": auth } of methods.toSorted(
    (a: { name: string }, b: { name: string }) =>
      Number(a.name.startsWith("auth.")) - Number(b.name.startsWith("auth.")),
  )) {
    const properties = Object.fromEntries(
      params.map((each: { name: string; schema: Schema }) => [each.name, each.schema]),
    );
    for (const [body, manner] of bodiesOf({ properties }, RPC_CHARS))
      await watch(tooLong, `${name}, ${manner}, ${body.length} characters`, () =>
        post("/api/rpc", auth === "admin_token" ? ADMIN_TOKEN : token, call(name, body)),
      );
  }
  await watch(tooLong, "rpc.discover", () => post("/api/rpc", token, call("rpc.discover", "{}")));
  expect(tooLong).toEqual([]);
});

interface Operation {
  security: Record<string, unknown>[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

test("every route", async () => {
  const { paths } = await (await fetch(`${instance.url}/api/openapi.json`)).json();
  const tooLong: string[] = [];
  for (const [path, operations] of Object.entries<Record<string, Operation>>(paths))
    for (const [method, { security, requestBody }] of Object.entries(operations)) {
      const kind = Object.keys(security[0] ?? {})[0];
      const bearer = kind === "apiKey" ? key : kind === "adminToken" ? ADMIN_TOKEN : token;
      const schema = requestBody?.content["application/json"]?.schema ?? {};
      for (const [body, manner] of bodiesOf(schema, kind === "adminToken" ? RPC_CHARS : REST_CHARS))
        await watch(tooLong, `${method} ${path}, ${manner}, ${body.length} characters`, () =>
          post(path.replaceAll(/\{\w+\}/g, "m"), bearer, body, method.toUpperCase()),
        );
    }
  expect(tooLong).toEqual([]);
});

const MEGABYTE = 1024 * 1024;
const repeated = (piece: string, chars: number): string => piece.repeat(chars / piece.length);

test("what is stored, as much as there may be", async () => {
  const tooLong: string[] = [];
  const { id } = await instance.rpc("conversations.create", { title: "long" }, token);
  const params = { model: "m", conversation_id: id };
  const calling = `{"role":"assistant","content":"","tool_calls":[${filled('{"id":"c"}', 10_000)}]}`;
  const result = '{"role":"tool","content":"r","tool_call_id":"c"}';
  const asked = `${filled(calling, 120_000)},${filled(result, 380_000)},{"role":"user","content":"hi"}`;
  const equal = filled('{"role":"user","content":"same"}', 64_000);
  const send = (messages: string) =>
    post(
      "/api/rpc",
      token,
      call("chat.send", JSON.stringify(params).replace("}", `,"messages":[${messages}]}`)),
    );
  for (let each = 0; each < 3; each++) {
    await watch(tooLong, "many calls and results", () => send(asked));
    await watch(tooLong, "many equal messages", () => send(equal));
  }
  const read = call("conversations.get", JSON.stringify({ conversation_id: id }));
  await watch(tooLong, "reading it", () => post("/api/rpc", token, read));
  await watch(tooLong, "reading it 100 times", () =>
    post("/api/rpc", token, `[${`${read},`.repeat(99)}${read}]`),
  );
  const listed = call("conversations.list", "{}");
  await watch(tooLong, "listing them 100 times", () =>
    post("/api/rpc", token, `[${`${listed},`.repeat(99)}${listed}]`),
  );
  expect(tooLong).toEqual([]);
});

test("conversations of 30 megabytes: one message, or many", async () => {
  const tooLong: string[] = [];
  for (const [what, count, part] of [
    ["one text", 1, (size: number) => `"${repeated("x", size)}"`],
    ["texts of a megabyte", 30, (size: number) => `"${repeated("\u4e2d\\n", size / 2)}"`],
    ["images", 6, (size: number) => `[{"type":"image_url","image_url":{"url":"${repeated("A", size)}"}}]`],
    ["many parts", 100, (size: number) => `[${filled('{"type":"text","text":"a"}', size)}]`],
  ] as const) {
    const { id } = await instance.rpc("conversations.create", {}, token);
    const ask = (content: string) =>
      post(
        "/v1/chat/completions",
        key,
        `{"model":"m","conversation_id":"${id}","max_tokens":1,"messages":[{"role":"user","content":${content}}]}`,
      );
    for (let each = 0; each < count; each++)
      expect(await (await ask(part((30 * MEGABYTE) / count))).json()).toMatchObject({
        object: "chat.completion",
      });
    await watch(tooLong, `${what}: a chat`, () => ask('"hi"'));
    const read = call("conversations.get", JSON.stringify({ conversation_id: id }));
    await watch(tooLong, `${what}: reading it`, () => post("/api/rpc", token, read));
    const said = {
      model: "m",
      max_tokens: 1,
      conversation_id: id,
      messages: [{ role: "user", content: "hi" }],
    };
    await watch(tooLong, `${what}: sending`, async () => {
      const asked = upstream.requests.length;
      const response = await post("/api/rpc", token, call("chat.send", JSON.stringify(said)));
      await until("the upstream was asked", () => upstream.requests.length > asked);
      return response;
    });
  }
  expect(tooLong).toEqual([]);
});

test("bodies of 30 megabytes, forms, and answers of as many", async () => {
  const tooLong: string[] = [];
  for (const piece of ["[],", '"a",', "1,", "{},"]) {
    const body = `{"model":"m","messages":[{"role":"user","content":[${repeated(piece, 30 * MEGABYTE)}1]}]}`;
    await watch(tooLong, `many ${piece} in a chat`, () => post("/v1/chat/completions", key, body));
    await watch(tooLong, `many ${piece} in a clip`, () => post("/v1/video/generations", key, body));
  }
  const form = (path: string, parts: Record<string, string | Blob>) => {
    const body = new FormData();
    for (const [name, value] of Object.entries({ model: "m", ...parts })) body.append(name, value as string);
    const headers = { authorization: `Bearer ${key}` };
    return fetch(instance.url + path, { method: "POST", headers, body });
  };
  for (const piece of ["a", "a\u00e9", "\u4e2d"])
    await watch(tooLong, `a text of ${piece} in a form`, () =>
      form("/v1/audio/transcriptions", { prompt: repeated(piece, 9 * MEGABYTE), file: new Blob(["x"]) }),
    );
  for (const [first, piece] of [
    ["fLaC", "\u00ff\u00f8\u00c9\u0008"],
    ["OggSOpusHead", `OggS${"\u0001".repeat(22)}\u00ff`],
  ] as const)
    await watch(tooLong, `a sound of beginnings: ${first}`, () =>
      form("/v1/audio/transcriptions", {
        file: new Blob([Buffer.from(first + repeated(piece, 9 * MEGABYTE), "latin1")]),
      }),
    );
  const data = Array.from({ length: 10 }, () => ({ b64_json: "A".repeat(3 * MEGABYTE) }));
  upstream.answer((_, reply) => reply.json({ created: 1, data }));
  const draw = JSON.stringify({ model: "m", prompt: "x", n: 10 });
  await watch(tooLong, "ten images", () => post("/v1/images/generations", key, draw));
  upstream.answer(politeHandler);
  expect(tooLong).toEqual([]);
});

test("events of a voice session", async () => {
  const voice = startRealtimeUpstream("openai");
  const backend = { type: "cloud-realtime", name: "voice", url: voice.url, models: ["voice-1"] };
  await post("/api/admin/backends", ADMIN_TOKEN, JSON.stringify(backend));
  const url = `${instance.url.replace("http", "ws")}/v1/realtime?model=voice-1`;
  const tooLong: string[] = [];
  const chars = 7.9 * MEGABYTE;
  for (const [what, event] of [
    ["sound", `{"type":"input_audio_buffer.append","audio":"${repeated("A", chars)}"}`],
    ["lists", `{"type":"session.update","session":{"tools":[${repeated("[],", chars)}1]}}`],
    ["objects", `{"type":"conversation.item.create","item":{"content":[${repeated('{"a":1},', chars)}1]}}`],
    ["strings", `{"type":"conversation.item.create","item":{"content":[${repeated('"a",', chars)}1]}}`],
    [
      "texts",
      `{"type":"conversation.item.create","item":{"content":[${repeated(`"${"a1".repeat(90)}",`, chars)}1]}}`,
    ],
    [
      "long texts",
      `{"type":"conversation.item.create","item":{"content":[${repeated(`"${"a1".repeat(MEGABYTE / 4)}",`, chars)}1]}}`,
    ],
    ["numbers", `{"type":"session.update","session":{"tools":[${repeated("1,", MEGABYTE / 4)}1]}}`],
    ["brackets", repeated("[", chars)],
  ] as const) {
    // The tests' own type of a socket takes no headers.
    const socket = new WebSocket(url, { headers: { authorization: `Bearer ${key}` } } as never);
    const heard: { type: string }[] = [];
    socket.onmessage = ({ data }) => heard.push(JSON.parse(String(data)));
    const answered = (type: string) =>
      until(`${type} after ${what}`, () => heard.some((each) => each.type === type));
    await answered("session.created");
    await watch(tooLong, what, async () => {
      heard.length = 0;
      socket.send(event);
      // What is no event is refused, so that this is the last of it.
      socket.send('{"type":"last"}');
      await answered("error");
      return new Response();
    });
    socket.close();
  }
  voice.stop();
  expect(tooLong).toEqual([]);
});

test("a long chain of answers", async () => {
  const tooLong: string[] = [];
  const input = `[${filled('{"role":"user","content":[{"type":"input_text","text":"a"}]}', 240_000)}]`;
  let last: string | null = null;
  for (let turn = 0; turn < 12; turn++) {
    const previous: string = last ? `,"previous_response_id":"${last}"` : "";
    const made = await (await post("/v1/responses", key, `{"model":"m","input":${input}${previous}}`)).json();
    last = made.id ?? last;
  }
  const asked = JSON.stringify({ model: "m", input: "x", store: false, previous_response_id: last });
  await watch(tooLong, "going on from it", () => post("/v1/responses", key, asked));
  expect(tooLong).toEqual([]);
});

/** Of each kind a request that brings, or finds, as much as there may be. */
test("a batch of as many lines as there may be, in a file as large as there may be", async () => {
  const tooLong: string[] = [];
  const headers = { authorization: `Bearer ${key}` };
  const url = "/v1/chat/completions";
  const body = { model: "m", max_tokens: 5, messages: [{ role: "user", content: "x".repeat(2_900) }] };
  const lines = Array.from({ length: 10_000 }, (_, at) =>
    JSON.stringify({ custom_id: String(at), method: "POST", url, body }),
  );
  const file = new File([lines.join("\n")], "in.jsonl");
  const ask = (path: string, init?: RequestInit) => fetch(`${instance.url}/v1${path}`, { headers, ...init });
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
  let made: any;
  const answer = async (response: Response) => {
    made = await response.clone().json();
    return response;
  };
  await watch(tooLong, "uploading", async () => {
    const form = new FormData();
    form.append("purpose", "batch");
    form.append("file", file);
    return answer(await ask("/files", { method: "POST", body: form }));
  });
  const input_file_id = made.id;
  expect(made).toMatchObject({ object: "file", bytes: file.size });
  const asked = JSON.stringify({ input_file_id, endpoint: url, completion_window: "24h" });
  await watch(tooLong, "creating, with its first lines", async () => {
    if (made.object === "batch") await ask(`/batches/${made.id}/cancel`, { method: "POST" });
    return answer(
      await ask("/batches", {
        method: "POST",
        body: asked,
        headers: { ...headers, "content-type": "application/json" },
      }),
    );
  });
  expect(made).toMatchObject({ object: "batch", status: "in_progress", request_counts: { total: 10_000 } });
  await watch(tooLong, "cancelling, and writing what became of it", async () => {
    await ask(`/batches/${made.id}/cancel`, { method: "POST" });
    await until("it has ended", async () => {
      made = await (await ask(`/batches/${made.id}`)).json();
      return made.status === "cancelled";
    });
    return ask(`/files/${made.error_file_id}`);
  });
  await watch(tooLong, "reading what became of it", () => ask(`/files/${made.error_file_id}/content`));
  await watch(tooLong, "reading the file", () => ask(`/files/${input_file_id}/content`));
  await watch(tooLong, "deleting what became of it", () =>
    ask(`/files/${made.error_file_id}`, { method: "DELETE" }),
  );
  await watch(tooLong, "deleting the file", () => ask(`/files/${input_file_id}`, { method: "DELETE" }));
  expect(tooLong).toEqual([]);
});
