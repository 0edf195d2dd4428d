/** However a request ends, it leaves one record and no call under way. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import type { UpstreamHandler } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference({
    // Streams are begun before their first piece has come, and fail after that.
    overrides: { deadlines: { firstByteMs: 400, idleMs: 400, keepAliveMs: 60 } },
  });
});
afterAll(() => bench.stop());

const messages = [{ role: "user", content: "hi" }];
const SURFACES: Readonly<Record<string, object>> = {
  "/v1/chat/completions": { messages },
  "/v1/chat/completions streamed": { messages, stream: true },
  "/v1/messages streamed": { messages, max_tokens: 9, stream: true },
  "/v1/responses": { input: "hi" },
  "/v1/responses streamed": { input: "hi", stream: true },
  "/v1/completions streamed": { prompt: "hi", stream: true },
  "/v1/embeddings": { input: "hi" },
  "/v1/audio/speech": { input: "hi", voice: "alloy" },
  "/v1/images/generations": { prompt: "a fjord", stream: true },
  "chat.send": { messages },
};

const forever = () => new Promise<void>(() => {});
const SOUND = { "content-type": "audio/mpeg" };
const EVENTS = { "content-type": "text/event-stream" };
/** What the upstream does, with the head that suits the path. */
const headFor = (path: string) => (path.endsWith("/speech") ? SOUND : EVENTS);
const PIECE = 'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n';
const ENDINGS: Readonly<Record<string, UpstreamHandler>> = {
  "refuses it": (_, reply) => reply.json({ error: { message: "no" } }, 400),
  "answers with a page": async (_, reply) => {
    reply.head(200, { "content-type": "text/html" });
    await reply.write("<html>");
    await reply.end();
  },
  "answers with an empty object": (_, reply) => reply.json({}),
  "closes the connection": (_, reply) => reply.reset(),
  "closes it after the head": ({ path }, reply) => {
    reply.head(200, headFor(path));
    reply.close();
  },
  "ends the body before it began": async ({ path }, reply) => {
    reply.head(200, headFor(path));
    await reply.end();
  },
  "breaks off": async ({ path }, reply) => {
    reply.head(200, headFor(path));
    await reply.write(PIECE);
    reply.reset();
  },
  "says nothing": forever,
  "says nothing after the head": async ({ path }, reply) => {
    reply.head(200, headFor(path));
    await forever();
  },
  "says nothing after a while": async ({ path }, reply) => {
    reply.head(200, headFor(path));
    await reply.write(PIECE);
    await forever();
  },
};

const recorded = async (): Promise<{ id: string; surface: string; outcome: string }[]> =>
  (await bench.rpc("requests.list", { limit: 500 }, bench.token)).records;

async function ask(surface: string, signal?: AbortSignal): Promise<void> {
  const [path = ""] = surface.split(" ");
  const body = { model: "m", ...SURFACES[surface] };
  if (path === "chat.send") {
    const { stream_id } = await bench.rpc(path, body, bench.token);
    const stop = () => void bench.rpc("chat.stop", { stream_id }, bench.token);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop);
    return;
  }
  await bench
    .post(path, body, { signal })
    .then((answer) => answer.arrayBuffer())
    .catch(() => {});
}

const over = () => until("no call is left", () => bench.app.rooms.inference.callsInFlight === 0);

for (const [name, handler] of Object.entries(ENDINGS)) {
  test(`the upstream ${name}`, async () => {
    for (const surface of Object.keys(SURFACES)) {
      // Its circuit is closed again.
      await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
      bench.upstream.answer(handler);
      const before = (await recorded()).length;
      await ask(surface);
      await over();
      // A chat over notifications answers first.
      if (surface === "chat.send")
        await until("it is recorded", async () => (await recorded()).length > before);
      const records = await recorded();
      expect([surface, records.length - before]).toEqual([surface, 1]);
      expect([surface, records[0]!.surface]).toEqual([surface, surface.split(" ")[0]!]);
      expect([surface, records[0]!.outcome]).not.toEqual([surface, "ok"]);
    }
  });
}

for (const [name, handler] of Object.entries(ENDINGS).filter(([name]) => name.startsWith("says nothing"))) {
  test(`the client leaves while the upstream ${name}`, async () => {
    for (const surface of Object.keys(SURFACES)) {
      await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
      bench.upstream.answer(handler);
      const before = (await recorded()).length;
      const sent = bench.upstream.requests.length;
      const leaving = new AbortController();
      const asked = ask(surface, leaving.signal);
      await until("the upstream has it", () => bench.upstream.requests.length > sent);
      leaving.abort();
      await asked;
      await over();
      await until("it is recorded", async () => (await recorded()).length > before);
      const records = await recorded();
      expect([surface, records.length - before]).toEqual([surface, 1]);
      expect([surface, records[0]!.outcome]).toEqual([surface, "left"]);
    }
  });
}
