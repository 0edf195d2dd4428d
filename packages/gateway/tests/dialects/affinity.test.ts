import { afterAll, beforeAll, expect, test } from "bun:test";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
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
