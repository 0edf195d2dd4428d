import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, startUpstream } from "@model-gateway/testing/upstream.ts";
import { minimax, startMinimax } from "@model-gateway/testing/video.ts";
import { bootPair, canShare, registerBackend } from "../instances/support.ts";
import { bootInference, type InferenceBench, withInference } from "../support/inference.ts";

interface Seen {
  id: string;
  surface: string;
  outcome: string;
  status: number;
  code: string | null;
  message: string | null;
  model: string | null;
  model_asked: string | null;
  backend: string | null;
  reason: string | null;
  attempts: number;
  failed_attempts: { backend: string; message: string }[];
  first_token_ms: number | null;
  user_id: string | null;
  [field: string]: unknown;
}

const list = async (bench: InferenceBench, params: object = {}, token = bench.token): Promise<Seen[]> =>
  (await bench.rpc("requests.list", params, token)).records;
const latest = async (bench: InferenceBench, params: object = {}) => (await list(bench, params))[0]!;

onEachDatabase("request records", (fresh) => {
  const withBench = (work: (bench: InferenceBench) => Promise<void>) => withInference(fresh, work);

  test("answers of every chat surface, streamed or not, and embeddings", () =>
    withBench(async (bench) => {
      const whole = await bench.chat({});
      const requestId = whole.headers.get("x-request-id")!;
      await whole.text();
      expect(await bench.rpc("requests.get", { id: requestId }, bench.token)).toMatchObject({
        id: requestId,
        surface: "/v1/chat/completions",
        outcome: "ok",
        status: 200,
        code: null,
        message: null,
        model: "m",
        model_asked: null,
        backend: "first",
        reason: "only_backend",
        attempts: 1,
        failed_attempts: [],
        first_token_ms: null,
        prompt_tokens: 9,
        completion_tokens: 4,
        estimated: false,
        user_id: bench.userId,
        user_email: "ada@example.com",
        key_name: "test",
        project: "default",
        ref_id: null,
        client_ip: null,
      });
      await (await bench.chat({ stream: true }, { headers: { "x-service-ref": "job-7" } })).text();
      const streamed = await latest(bench);
      expect(streamed).toMatchObject({ outcome: "ok", ref_id: "job-7", completion_tokens: 4 });
      expect(streamed.first_token_ms).toBeNumber();
      await (await bench.post("/v1/embeddings", { model: "m", input: "x" })).text();
      expect(await latest(bench)).toMatchObject({
        surface: "/v1/embeddings",
        outcome: "ok",
        prompt_tokens: 1,
      });
      const messages = [{ role: "user", content: "hi" }];
      await (await bench.post("/v1/messages", { model: "m", max_tokens: 9, messages })).text();
      expect(await latest(bench)).toMatchObject({ surface: "/v1/messages", outcome: "ok" });
      await (await bench.post("/v1/responses", { model: "m", input: "hi", stream: true })).text();
      expect(await latest(bench)).toMatchObject({ surface: "/v1/responses", outcome: "ok" });
      await bench.rpc("chat.send", { model: "m", messages }, bench.token);
      await until("chat.send is answered", async () => (await latest(bench)).surface === "chat.send");
      expect(await latest(bench)).toMatchObject({ outcome: "ok", key_id: null, user_id: bench.userId });
      // Nothing of what was said.
      expect(JSON.stringify(await list(bench))).not.toContain("hi there");
    }));

  test("refusals: unknown key, unknown model, a bad body, a pace that is too fast, an unhealthy backend", () =>
    withBench(async (bench) => {
      const authorization = "Bearer service-00000000-0000-4000-8000-000000000000";
      await (await bench.chat({}, { headers: { authorization } })).text();
      expect(await latest(bench, { everyone: true })).toMatchObject({
        outcome: "refused",
        status: 401,
        code: "unauthorized",
        user_id: null,
        key_id: null,
        client_ip: "127.0.0.1",
      });
      await (await bench.chat({ model: "invented" })).text();
      expect(await latest(bench)).toMatchObject({
        status: 404,
        code: "model_not_found",
        model: null,
        model_asked: "invented",
        backend: null,
        attempts: 0,
      });
      await (await bench.post("/v1/chat/completions", "{")).text();
      expect(await latest(bench)).toMatchObject({ status: 400, outcome: "refused" });
      await bench.call("chat.send", { model: "m" }, bench.token);
      expect(await latest(bench)).toMatchObject({ surface: "chat.send", status: 400, user_id: bench.userId });
      await bench.rpc("backends.update", { name: "first", enabled: false }, bench.token).catch(() => {});
      await (await bench.chat({})).text();
      expect((await latest(bench)).outcome).not.toBe("ok");
    }));

  test("failures: the upstream's words without secrets, its status, and where the answer came from instead", () =>
    withBench(async (bench) => {
      bench.upstream.answer((_, reply) =>
        reply.json({ error: { message: "slow down, Bearer sk-very-secret-0123456789" } }, 429),
      );
      await (await bench.chat({})).text();
      const failed = await latest(bench);
      expect(failed).toMatchObject({ outcome: "failed", status: 502, code: "bad_gateway", backend: "first" });
      expect(failed.message).toContain("slow down");
      expect(JSON.stringify(failed)).not.toContain("sk-very-secret");
      expect(failed.failed_attempts).toHaveLength(1);

      const other = startUpstream({ models: ["n"] });
      try {
        await bench.addBackend({ name: "second", type: "external", url: other.url });
        await bench.rpc(
          "routes.set",
          { name: "fast", targets: [{ model: "m" }, { model: "n", order: 1 }] },
          bench.token,
        );
        bench.upstream.answer((_, reply) => reply.json({ error: { message: "broken" } }, 500));
        await (await bench.chat({ model: "fast" })).text();
        expect(await latest(bench)).toMatchObject({
          outcome: "ok",
          model: "n",
          model_asked: "fast",
          backend: "second",
          reason: "fallback",
          attempts: 2,
          failed_attempts: [{ backend: "first", model: "m" }],
        });
      } finally {
        other.stop();
      }
    }));

  test("a stream that breaks off has failed, and one that the client leaves was left", () =>
    withBench(async (bench) => {
      const heard = Promise.withResolvers<void>();
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { role: "assistant", content: "one " } }));
        await heard.promise;
        reply.reset();
      });
      const broken = (await bench.chat({ stream: true })).body!.getReader();
      await broken.read();
      heard.resolve();
      await until("it has failed", async () => (await list(bench)).length === 1);
      expect(await latest(bench)).toMatchObject({ outcome: "failed", status: 502, backend: "first" });
      expect((await latest(bench)).message).toContain("after the answer had begun");

      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { role: "assistant", content: "one " } }));
      });
      const leaving = new AbortController();
      const answer = await bench.chat({ stream: true }, { signal: leaving.signal });
      await answer.body!.getReader().read();
      leaving.abort();
      await until("it was left", async () => (await list(bench)).length === 2);
      expect(await latest(bench)).toMatchObject({ outcome: "left", status: 499, code: "client_left" });
    }));

  test("a model whose name cannot be stored as it is keeps no record out", () =>
    withBench(async (bench) => {
      const other = startUpstream({ models: ["odd\u0000name", "half\ud800name", "constructor"] });
      await bench.addBackend({ name: "odd", type: "external", url: other.url });
      const names = ["odd\u0000name", "half\ud800name", "constructor", "m"];
      for (const model of names) expect((await bench.chat({ model })).status).toBe(200);
      const models = (await list(bench)).map(({ model }) => model);
      expect(models).toEqual(["m", "constructor", expect.stringMatching(/^half.name$/), expect.any(String)]);
      const { totals } = await bench.rpc("requests.stats", {}, bench.token);
      expect(totals).toMatchObject({ requests: names.length, ok: names.length });
      other.stop();
    }));

  test("own requests for a person, everyone's for an administrator, a group's for its admins", () =>
    withBench(async (bench) => {
      const bob = await bench.signIn("bob");
      const carol = await bench.signIn("carol");
      const { id: group_id } = await bench.rpc("group.create", { name: "team" }, bob);
      await bench.rpc("group.members.add", { group_id, email: "carol@example.com" }, bob);
      const { key } = await bench.rpc("keys.create", { name: "shared", group_id }, carol);
      await (await bench.chat({}, { headers: { authorization: `Bearer ${key}` } })).text();
      await (await bench.chat({})).text();
      const [ofCarol] = await list(bench, {}, carol);
      expect(await list(bench, {}, carol)).toHaveLength(1);
      expect(await list(bench, {}, bob)).toHaveLength(0);
      expect(await list(bench, { group_id }, bob)).toMatchObject([{ id: ofCarol!.id, group_id }]);
      expect(await list(bench, { everyone: true })).toHaveLength(2);
      expect(await list(bench, {})).toHaveLength(1);
      expect((await bench.call("requests.list", { everyone: true }, bob)).error.code).toBe(-32007);
      expect((await bench.call("requests.stats", { group_id }, carol)).error.code).toBe(-32007);
      expect((await bench.call("requests.watch", { everyone: true }, bob)).error.code).toBe(-32007);
      expect(await bench.rpc("requests.get", { id: ofCarol!.id }, bob)).toMatchObject({ group_id });
      const [own] = await list(bench);
      expect((await bench.call("requests.get", { id: own!.id }, bob)).error.message).toContain(
        "no such request",
      );
      const statsBy = (by: string) => bench.rpc("requests.stats", { everyone: true, by }, bench.token);
      const namesBy = async (by: string) =>
        (await statsBy(by)).askers.map((asker: { name: string | null }) => String(asker.name)).sort();
      const { totals } = await statsBy("key");
      expect(totals).toMatchObject({ requests: 2, ok: 2, completion_tokens: 8 });
      expect(await namesBy("key")).toEqual(["shared", "test"]);
      expect(await namesBy("user")).toContain("carol@example.com");
      expect(await namesBy("group")).toEqual(["null", "team"]);
    }));

  test("a watcher is told of requests as they end, and only of those it asked for", () =>
    withBench(async (bench) => {
      const { stream_id } = await bench.rpc("requests.watch", { outcome: "refused" }, bench.token);
      const events = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}&token=${bench.token}`);
      await (await bench.chat({})).text();
      await (await bench.chat({ model: "invented" })).text();
      let text = "";
      for await (const piece of events.body as unknown as AsyncIterable<Uint8Array>) {
        text += new TextDecoder().decode(piece);
        if (text.includes("requests.ended")) break;
      }
      const { params } = JSON.parse(/data: (.*)/.exec(text)![1]!);
      expect(params).toMatchObject({ stream_id, skipped: 0, records: [{ model_asked: "invented" }] });
      const renewed = await bench.rpc("requests.watch", { stream_id }, bench.token);
      expect(renewed.stream_id).toBe(stream_id);
    }));
});

/** What a channel says, from the moment it is subscribed to. */
async function hear({ url }: { url: string }, session: string, token: string): Promise<{ text: string }> {
  const heard = { text: "" };
  const events = await fetch(`${url}/api/rpc/events?session=${session}&token=${token}`);
  void (async () => {
    for await (const piece of events.body as unknown as AsyncIterable<Uint8Array>)
      heard.text += new TextDecoder().decode(piece);
  })().catch(() => {});
  await until("it is subscribed", () => heard.text.includes("subscribed"));
  return heard;
}

test("a watcher who loses the right hears nothing more; nobody can take the places of others", async () => {
  const bench = await bootInference({ config: { registrationOpen: true } });
  try {
    const bob = await bench.signIn("bob");
    const { id: user_id } = await bench.rpc("auth.me", {}, bob);
    await bench.rpc("users.update", { user_id, is_admin: true }, bench.token);
    const watch = (token: string) => bench.rpc("requests.watch", { everyone: true }, token);
    const { stream_id } = await watch(bob);
    const his = await hear(bench, stream_id, bob);
    await (await bench.chat({})).text();
    await until("he hears of it", () => his.text.includes("requests.ended"));
    const before = his.text;
    await bench.rpc("users.update", { user_id, is_admin: false }, bench.token);
    for (let i = 0; i < 250; i++) await bench.rpc("requests.watch", {}, bob);
    const { stream_id: ours } = await watch(bench.token);
    const hers = await hear(bench, ours, bench.token);
    await (await bench.chat({})).text();
    await until("she hears of it", () => hers.text.includes("requests.ended"));
    expect(his.text.replaceAll(": keep-alive\n\n", "")).toBe(before);
    expect((await bench.call("requests.watch", { everyone: true, stream_id }, bob)).error.code).toBe(-32007);
  } finally {
    await bench.stop();
  }
});

test("creating a video and a voice session leave records", async () => {
  const bench = await bootInference();
  const film = startMinimax();
  const voice = startRealtimeUpstream("dashscope");
  try {
    const backend = { name: "hailuo", type: "minimax", url: film.url, api_key: "sk", models: ["hailuo-2"] };
    await bench.addBackend(backend);
    film.script = [minimax.success];
    await (await bench.post("/v1/video/generations", { model: "hailuo-2", prompt: "a fox" })).text();
    expect(await latest(bench)).toMatchObject({
      surface: "/v1/video/generations",
      outcome: "ok",
      model: "hailuo-2",
      backend: "hailuo",
    });
    await bench.addBackend({
      name: "voice",
      type: "cloud-realtime",
      url: voice.url,
      api_key: "sk",
      models: ["omni"],
    });
    const { session_id } = await bench.rpc("realtime.start", { model: "omni" }, bench.token);
    await bench.rpc("realtime.stop", { session_id }, bench.token);
    expect(await latest(bench)).toMatchObject({ surface: "realtime.start", outcome: "ok", backend: "voice" });
    await bench.call("realtime.start", { model: "nothing" }, bench.token);
    expect(await latest(bench)).toMatchObject({ surface: "realtime.start", status: 404 });
  } finally {
    film.stop();
    voice.stop();
    await bench.stop();
  }
});

test("a key that was sent as the name of a model is not recorded, and periods before any time are refused", async () => {
  const bench = await bootInference();
  try {
    await (await bench.chat({ model: `my ${bench.key}` })).text();
    expect(await latest(bench)).toMatchObject({ status: 404, model_asked: "my [redacted]" });
    expect(JSON.stringify(await list(bench))).not.toContain(bench.key);
    const until = "0000-01-01T00:00:00Z";
    const { error } = await bench.call("requests.stats", { until }, bench.token);
    expect(error.message).toContain("`since` must be before `until`");
  } finally {
    await bench.stop();
  }
});

test("calls of strangers leave no records", async () => {
  const bench = await bootInference();
  try {
    const call = { jsonrpc: "2.0", id: 1, method: "chat.send", params: { model: "m", messages: [] } };
    const answer = await fetch(`${bench.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(new Array(100).fill(call)),
    });
    expect(await answer.json()).toHaveLength(100);
    expect(await list(bench, { everyone: true })).toEqual([]);
    await bench.call("chat.send", { model: "m", messages: [] }, bench.token);
    expect(await list(bench, { everyone: true })).toMatchObject([
      { surface: "chat.send", outcome: "refused" },
    ]);
  } finally {
    await bench.stop();
  }
});

test("with 0 days nothing is recorded", async () => {
  const bench = await bootInference({ config: { requestRecordsDays: 0 } });
  try {
    await (await bench.chat({})).text();
    expect(await list(bench)).toEqual([]);
  } finally {
    await bench.stop();
  }
});

test.skipIf(!canShare)("a watcher on one instance sees what ends on the other", async () => {
  const pair = await bootPair();
  const upstream = startUpstream();
  try {
    const { a, b } = pair;
    const token = await a.signIn("ada");
    await registerBackend(a, { name: "first", type: "external", url: upstream.url });
    await until("b routes", () => b.app.rooms.routing.modelCount > 0);
    const { key } = await a.rpc("keys.create", { name: "k" }, token);
    const { stream_id } = await a.rpc("requests.watch", { everyone: true }, token);
    const events = await fetch(`${a.url}/api/rpc/events?session=${stream_id}&token=${token}`);
    const chat = () =>
      fetch(`${b.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] }),
      }).then((answer) => answer.text());
    await chat();
    let text = "";
    for await (const piece of events.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(piece);
      if (text.includes("requests.ended")) break;
    }
    await fetch(`${a.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] }),
    }).then((answer) => answer.text());
    // Each instance writes its own; both read all of them once they are written.
    await until("both are listed", async () => {
      const { records } = await b.rpc("requests.list", { everyone: true }, token);
      return records.length === 2;
    });
    const counted = () => b.rpc("requests.stats", { everyone: true }, token);
    await until("both are counted", async () => (await counted()).totals.requests === 2);
  } finally {
    upstream.stop();
    await pair.stop();
  }
});
