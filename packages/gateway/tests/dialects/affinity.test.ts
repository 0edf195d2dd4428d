import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { completion, type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { AgentPool } from "../../src/backends/agent-node/index.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let upstreams: FakeUpstream[];
beforeAll(async () => {
  bench = await bootInference();
  upstreams = [bench.upstream, startUpstream(), startUpstream()];
  for (const [i, { url }] of upstreams.entries())
    if (i > 0) await bench.addBackend({ type: "external", name: `more-${i}`, url });
});
afterAll(async () => {
  for (const upstream of upstreams) upstream.stop();
  await bench.stop();
});

/** Which of the backends served these requests. */
async function servedBy(ask: () => Promise<Response>, times = 4): Promise<number[]> {
  const before = upstreams.map(({ requests }) => requests.length);
  for (let i = 0; i < times; i++) expect((await ask()).status).toBe(200);
  return upstreams.flatMap(({ requests }, i) => (requests.length > before[i]! ? [i] : []));
}

test("requests of one session go to one backend, and sessions are spread", async () => {
  const found = new Set<number>();
  for (let i = 0; i < 24; i++) {
    const by = await servedBy(() => bench.chat({}, { headers: { "x-claude-code-session-id": `s-${i}` } }));
    expect(by).toHaveLength(1);
    found.add(by[0]!);
  }
  expect(found.size).toBe(3);
});

test("a session may be named in the body, too", async () => {
  for (const fields of [
    { prompt_cache_key: "k" },
    { metadata: { user_id: "u" } },
    { client_metadata: { session_id: "c" } },
  ])
    expect(await servedBy(() => bench.chat(fields))).toHaveLength(1);
});

test("without a sign the backend with the fewest requests is next", async () => {
  expect(await servedBy(() => bench.chat({}), 120)).toHaveLength(3);
});

test("a session that another API's body names is known although chats cannot carry it", async () => {
  const message = { model: "m", max_tokens: 9, messages: [{ role: "user", content: "hi" }] };
  const response = { model: "m", store: false, input: "hi" };
  for (const [path, body] of [
    ["/v1/messages", { ...message, metadata: { user_id: '{"session_id":"a"}' } }],
    ["/v1/responses", { ...response, client_metadata: { session_id: "b" } }],
    ["/v1/responses", { ...response, prompt_cache_key: "c" }],
  ] as const)
    expect(await servedBy(() => bench.post(path, body))).toHaveLength(1);
});

test("what goes on from a stored response goes where the first one was answered", async () => {
  let previous_response_id: string | null = null;
  const next = async () => {
    const answer = await bench.post("/v1/responses", { model: "m", input: "hi", previous_response_id });
    previous_response_id = ((await answer.clone().json()) as { id: string }).id;
    return answer;
  };
  expect(await servedBy(next, 12)).toHaveLength(1);
});

/** A session in its third turn begins as it did in its first; the cache's mark has moved on. */
const turns = (path: string, name: string): Record<string, unknown>[] => {
  const text = { type: "text", text: name };
  const marked = { ...text, cache_control: { type: "ephemeral" } };
  const said = [{ role: "assistant", content: "hi" }];
  const [first, later] = [[marked], [text]].map((content) => ({ role: "user", content }));
  const system = { role: "system", content: "Be brief" };
  if (path === "/v1/messages")
    return [[first], [later, ...said, first]].map((messages) => ({
      system: "Be brief",
      max_tokens: 9,
      messages,
    }));
  if (path === "/v1/responses") {
    const user = { role: "user", content: name };
    return [[user], [user, ...said, user]].map((input) => ({ instructions: "Be brief", input }));
  }
  return [
    [system, first],
    [system, later, ...said, first],
  ].map((messages) => ({ messages }));
};

test.each(["/v1/chat/completions", "/v1/messages", "/v1/responses"])(
  "a session that nothing names is known by how its prompt begins: %s",
  async (path) => {
    const found = new Set<number>();
    for (let i = 0; i < 16; i++) {
      const by = new Set<number>();
      for (const fields of turns(path, `question ${i}`))
        for (const at of await servedBy(() => bench.post(path, { model: "m", ...fields }), 2)) by.add(at);
      expect(by.size).toBe(1);
      for (const at of by) found.add(at);
    }
    expect(found.size).toBe(3);
  },
);

test("a session whose beginning is very long is known by the ends of its texts", async () => {
  const long = (name: string) => ({ role: "system", content: name + "é".repeat(400_000) });
  const found = new Set<number>();
  for (let i = 0; i < 12; i++) {
    const opening = [long(`Rules ${i}. `), { role: "user", content: "hi" }];
    let said: object[] = [];
    const by = await servedBy(() => {
      const messages = [...opening, ...said];
      said = [...said, { role: "assistant", content: "yes" }, { role: "user", content: "go on" }];
      return bench.chat({ messages });
    }, 2);
    expect(by).toHaveLength(1);
    found.add(by[0]!);
  }
  expect(found.size).toBeGreaterThan(1);
});

test("a session yields when its backend is busier than another by more than 16 calls", async () => {
  const ask = () => bench.chat({ prompt_cache_key: "busy" });
  const [home] = await servedBy(ask, 1);
  const before = upstreams[home!]!.requests.length;
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  upstreams[home!]!.answer(async (_, reply) => {
    await opened;
    await reply.json(completion("ok"));
  });
  const waiting = Array.from({ length: 17 }, ask);
  await until("they wait", () => upstreams[home!]!.requests.length === before + 17);
  expect(await servedBy(ask, 1)).not.toContain(home!);
  open();
  for (const { status } of await Promise.all(waiting)) expect(status).toBe(200);
  expect(await servedBy(ask, 1)).toEqual([home!]);
});

test("a session keeps to one target of a model route, and targets share the sessions by weight", async () => {
  const targets = [
    { model: "m", backend: "more-1", weight: 9 },
    { model: "m", backend: "more-2", weight: 1 },
  ];
  await bench.rpc("routes.set", { name: "shared", targets }, bench.token);
  const found = [0, 0, 0];
  for (let i = 0; i < 40; i++) {
    const by = await servedBy(() => bench.chat({ model: "shared", prompt_cache_key: `r-${i}` }), 2);
    expect(by).toHaveLength(1);
    found[by[0]!]!++;
  }
  expect(found[1]).toBeGreaterThan(25);
  expect(found[2]).toBeGreaterThan(0);
});

test("a session stays with its node among those that serve one model", async () => {
  const asked: string[] = [];
  const pool = new AgentPool({
    dialsLoopback: false,
    modelId: "m",
    deps: {
      clock: systemClock,
      log: silentLog,
      openOrigin: null,
      fetch: async (url: string) => {
        asked.push(new URL(url).host);
        return Response.json(completion("ok"));
      },
    } as never,
  });
  const { signal } = new AbortController();
  for (const agentId of ["1", "2", "3"])
    await pool.set({
      ...{ agentId, host: `10.0.0.${agentId}`, port: 80, apiKey: null, direct: true, tunnel: null },
      ended: signal,
      isLast: false,
    });
  // Each was asked whether it makes videos.
  asked.length = 0;
  const ask = async (session: string) => {
    const body = { bytes: () => "{}", object: () => ({}) };
    const call = { model: "m", requestId: "r", body, signal, stream: false, whenAborted() {} };
    await pool.backend.chat!({ ...call, session: () => session });
  };
  // Few enough that none is busier by the margin: nobody reads these answers.
  for (let i = 0; i < 5; i++) for (let time = 0; time < 3; time++) await ask(`n-${i}`);
  for (let i = 0; i < 5; i++) expect(new Set(asked.slice(3 * i, 3 * i + 3)).size).toBe(1);
  expect(new Set(asked).size).toBeGreaterThan(1);
});

test("a session moves when its backend goes, and others stay", async () => {
  const ask = (i: number) => () => bench.chat({}, { headers: { "session-id": `t-${i}` } });
  const before: number[] = [];
  for (let i = 0; i < 12; i++) before.push((await servedBy(ask(i), 1))[0]!);
  await bench.removeBackend("more-2");
  for (let i = 0; i < 12; i++) {
    const [now] = await servedBy(ask(i), 1);
    if (before[i] !== 2) expect(now).toBe(before[i]!);
    else expect(now).not.toBe(2);
  }
});
