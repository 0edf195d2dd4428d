/** An upstream that repeats the key it was sent, in every place and encoding: no client ever sees it. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, completion, type UpstreamHandler } from "@model-gateway/testing/upstream.ts";
import { minimax, startMinimax } from "@model-gateway/testing/video.ts";
import { createLog } from "../../src/kernel/log.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const KEY = "sk-Canary+9/8_7-6543210abcdef";
const hex = (text: string) => Buffer.from(text).toString("hex");
const base64 = (text: string) => Buffer.from(text).toString("base64");

/** How an upstream may write it. The second text must not be shown either. */
const ECHOES: Record<string, string> = {
  plain: KEY,
  "as a header": `authorization: Bearer ${KEY}`,
  "in upper case": KEY.toUpperCase(),
  "with line breaks": `${KEY.slice(0, 10)}\n${KEY.slice(10)}`,
  base64: base64(KEY),
  "base64 of the header": base64(`Bearer ${KEY}`),
  "base64 of basic credentials": `Basic ${base64(`user:${KEY}`)}`,
  "base64 for addresses": Buffer.from(`x${KEY}`).toString("base64url"),
  "base64 inside of a word": `token=${base64(`ab${KEY}`)}`,
  "base64 of base64": base64(base64(KEY)),
  hex: hex(KEY),
  "hex in upper case": hex(KEY).toUpperCase(),
  "percent signs": encodeURIComponent(KEY),
  "percent signs everywhere": hex(KEY).replace(/../g, "%$&"),
  "unicode escapes": [...KEY].map((c) => `\\u00${hex(c)}`).join(""),
  "HTML entities": [...KEY].map((c) => `&#${c.charCodeAt(0)};`).join(""),
  "base64 in lines": base64(`${"credentials of the request: ".repeat(2)}${KEY}`).replace(/.{76}/g, "$&\r\n"),
  "a dump of bytes": `<Buffer ${hex(KEY).replace(/..(?=.)/g, "$& ")}>`,
  "hex with colons": hex(KEY).replace(/..(?=.)/g, "$&:"),
  "bytes as numbers": JSON.stringify(Buffer.from(KEY)),
  "escaped slashes": KEY.replaceAll("/", "\\/"),
  "octal escapes": [...KEY].map((c) => `\\${c.charCodeAt(0).toString(8)}`).join(""),
  "quoted-printable": hex(KEY).toUpperCase().replace(/../g, "=$&"),
  "at the edge of what is kept": `${"x".repeat(4_096 - 12)}${KEY}`,
};

let bench: InferenceBench;
/** One for each echo: failures of a stream may be counted up to 2 s later, when the next one is asked. */
let provider = "";
const lines: string[] = [];
const film = startMinimax();
const voice = startRealtimeUpstream("openai");
beforeAll(async () => {
  const log = createLog({ level: "debug", format: "json", write: (line) => lines.push(line) });
  bench = await bootInference({ overrides: { log } });
  for (const [type, url, model] of [
    ["minimax", film.url, "film"],
    ["cloud-realtime", voice.url, "voice"],
  ])
    await bench.addBackend({ name: type, type, url, api_key: KEY, models: [model] });
});
afterAll(async () => {
  await bench.stop();
  film.stop();
  voice.stop();
});

/** Answers once with success first: a backend that fails three times in a row is left alone. */
async function answering(handler: UpstreamHandler): Promise<void> {
  bench.upstream.answer((_, reply) => reply.json(completion("fine")));
  expect((await bench.chat({ provider })).status).toBe(200);
  bench.upstream.answer(handler);
}

const ask = async (body: object) => (await bench.chat({ provider, ...body })).text();

const WORK_PATHS = [
  "audio/speech",
  "audio/transcriptions",
  "completions",
  "embeddings",
  "images/generations",
  "messages",
  "moderations",
  "rerank",
  "responses",
];
const WORK_BODY = { input: "hi", query: "hi", documents: ["a"], max_tokens: 5 };

async function workOf(path: string): Promise<string> {
  const fields = { model: "m", provider };
  const messages = [{ role: "user", content: "hi" }];
  const stream = /images|responses|messages|^completions/.test(path);
  const more = path === "responses" ? {} : { prompt: "hi", messages };
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  form.set("file", new Blob(["sound"]), "a.ogg");
  const answer =
    path === "audio/transcriptions"
      ? await fetch(`${bench.url}/v1/${path}`, {
          method: "POST",
          headers: { authorization: `Bearer ${bench.key}` },
          body: form,
        })
      : await bench.post(`/v1/${path}`, { ...fields, ...WORK_BODY, ...more, stream });
  return `${answer.status} ${await answer.text().catch(String)}`;
}

async function failedFilm(id: string): Promise<string> {
  let text = "";
  await until("the job has failed", async () => {
    const headers = { authorization: `Bearer ${bench.key}` };
    text += await (await fetch(`${bench.url}/v1/video/generations/${id}`, { headers })).text();
    return text.includes("failed");
  });
  return text;
}

/** Everything that a client can get to see of one echo; `isEverywhere`: on surfaces that share what was tried before, too. */
async function seenOf(echo: string, isEverywhere: boolean): Promise<string[]> {
  const { upstream, rpc, call, token } = bench;
  const seen: string[] = [];
  const error = { message: `Incorrect key: ${echo}`, code: echo, type: echo };
  await answering((_, reply) => reply.json({ error }, 401));
  seen.push(await ask({}), await ask({ stream: true }));
  await answering((_, reply) => reply.json({ detail: echo }, 422));
  seen.push(await ask({}));
  // Inside a 200: as the whole answer, as the first event, and in the middle.
  await answering((_, reply) => reply.json({ error }));
  seen.push(await ask({}));
  await answering((_, reply) => reply.stream([`data: ${JSON.stringify({ error })}\n\n`]));
  seen.push(await ask({ stream: true }));
  await answering((_, reply) =>
    reply.stream([chunk({ delta: { content: "Hello" } }), `data: ${JSON.stringify({ error })}\n\n`]),
  );
  seen.push(await ask({ stream: true }));
  const sent = await call(
    "chat.send",
    { model: "m", provider, messages: [{ role: "user", content: "hi" }], stream: false },
    token,
  );
  seen.push(JSON.stringify(sent));

  // Work that passes as it is, and APIs with a form of their own.
  const event = (value: object) => `event: error\ndata: ${JSON.stringify(value)}\n\n`;
  const begins = 'data: {"type":"transcript.text.delta","delta":"he"}\n\n';
  for (const handler of [
    (_, reply) => reply.json({ error }),
    (_, reply) => reply.json({ error }, 400),
    (_, reply) => reply.stream([event({ error })]),
    (_, reply) => reply.stream([begins, ...(event({ type: "error", error }).match(/.{1,40}/gs) ?? [])]),
    (_, reply) => reply.stream([begins, `event: error\ndata: ${echo.replace(/\s+/g, " ")}`]),
  ] as UpstreamHandler[])
    for (const path of isEverywhere ? WORK_PATHS : []) {
      await answering(handler);
      seen.push(`${path} ${await workOf(path)}`);
    }

  film.onSubmit = minimax.refused(1008, echo);
  const refused = await bench.post("/v1/video/generations", { model: "film", prompt: "a fox" });
  const { id } = (await refused.json()) as { id?: string };
  if (id) seen.push(await failedFilm(id));
  film.onSubmit = null;

  const { session_id, stream_session } = await rpc("realtime.start", { model: "voice" }, token);
  const events = await fetch(`${bench.url}/api/rpc/events?session=${stream_session}`);
  voice.emit({ type: "error", error });
  voice.emit({ type: "session.updated", session: { key: echo } });
  voice.emit({ type: "response.done", response: { status: "failed", status_details: { error } } });
  voice.closeAll(4000, echo.slice(0, 100));
  let text = "";
  for await (const piece of events.body as unknown as AsyncIterable<Uint8Array>) {
    text += new TextDecoder().decode(piece);
    if (text.includes("session.closed")) break;
  }
  seen.push(text);
  await call("realtime.stop", { session_id }, token);

  upstream.listing(({ path }, reply) =>
    path.startsWith("/probed")
      ? reply.json({ error: `bad key ${echo}` }, 401)
      : reply.json({ data: [{ id: "m" }] }),
  );
  const added = await bench.admin("POST", "/backends", {
    name: "probed",
    type: "external",
    url: `${upstream.url}/probed`,
    api_key: KEY,
  });
  seen.push(await added.text());
  await until("it is probed", async () => !JSON.stringify(await bench.backends()).includes("not probed yet"));
  seen.push(JSON.stringify(await bench.backends()), JSON.stringify(await rpc("system.activity", {}, token)));
  return seen;
}

const EVERYWHERE: ReadonlySet<string> = new Set(["plain", "base64 in lines", "at the edge of what is kept"]);

test.each(Object.entries(ECHOES))("written %s", async (name, echo) => {
  provider = `keyed-${Object.keys(ECHOES).indexOf(name)}`;
  await bench.addBackend({ name: provider, type: "external", url: bench.upstream.url, api_key: KEY });
  lines.length = 0;
  const seen = await seenOf(echo, EVERYWHERE.has(name));
  expect(seen.length).toBeGreaterThanOrEqual(EVERYWHERE.has(name) ? 50 : 12);
  expect(seen.filter((text) => text.includes("all backends unhealthy"))).toEqual([]);
  expectHidden(echo, seen);
});

/** A good part of it would do as well. */
function expectHidden(echo: string, seen: readonly string[]): void {
  for (const part of [echo, echo.slice(-20), KEY, KEY.slice(0, 11)]) {
    expect(seen.filter((text) => text.includes(JSON.stringify(part).slice(1, -1)))).toEqual([]);
    expect(lines.filter((line) => line.includes(JSON.stringify(part).slice(1, -1)))).toEqual([]);
  }
}

test("in any of these ways, where a clip fails while it is made", async () => {
  lines.length = 0;
  const echoes = Object.values(ECHOES);
  film.script = echoes.map((echo) =>
    minimax.status("Fail", { base_resp: { status_code: 1, status_msg: echo } }),
  );
  const made = echoes.map(async () => {
    const answer = await bench.post("/v1/video/generations", { model: "film", prompt: "a fox" });
    return failedFilm(((await answer.json()) as { id: string }).id);
  });
  const seen = await Promise.all(made);
  expect(film.script).toHaveLength(1);
  for (const echo of echoes) expectHidden(echo, seen);
});
