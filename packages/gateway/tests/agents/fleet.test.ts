/** Models that the gateway starts and ends itself, and nodes that are drained. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, wholeStream } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import {
  booksOf,
  measureBesideSwaps,
  runFleet,
  type SimulatedNode,
  simulateNode,
} from "./simulated-fleet.ts";

let bench: InferenceBench;
const cleanup: (() => unknown)[] = [];
beforeEach(async () => {
  bench = await bootInference({ overrides: { deadlines: { keepAliveMs: 50 } } });
  cleanup.push(() => bench.stop());
});
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

const rpc = (method: string, params: unknown = {}) => bench.rpc(method, params, bench.token);
const serve = (model_id: string, mode: string, more: object = {}) =>
  rpc("agents.serve", { model_id, mode, minimum_minutes: 0, ...more });

/** Nodes for models of 10 GB, with an engine that answers when it is let go. */
async function nodes(count: number, memoryMb: number, { loadMs = 300 } = {}): Promise<SimulatedNode[]> {
  const engine = startUpstream({ models: ["a", "b", "c"] });
  cleanup.push(() => engine.stop());
  engine.answer(async ({ text, json }, reply) => {
    if (text.includes("hold")) await held.promise;
    await (json.stream
      ? reply.stream(wholeStream(["done"]))
      : reply.json({
          object: "chat.completion",
          choices: [{ index: 0, message: { role: "assistant", content: "done" }, finish_reason: "stop" }],
          usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        }));
  });
  const made: SimulatedNode[] = [];
  for (let index = 0; index < count; index++) {
    const options = { admin: bench.token, name: `node-${index}`, memoryMb, loadMs, needMb: () => 10_000 };
    made.push(await simulateNode(bench, { ...options, engineUrl: engine.url }));
    cleanup.push(() => made[index]!.stop());
  }
  return made;
}
let held = Promise.withResolvers<void>();
beforeEach(() => {
  held = Promise.withResolvers<void>();
});

const messages = (content = "hi") => [{ role: "user", content }];
const ask = async (model: string, more: object = {}) => {
  const answer = await bench.chat({ model, messages: messages(), ...more });
  return { status: answer.status, text: await answer.text() };
};
const has = (node: SimulatedNode, model: string) => node.held.get(model)?.status === "ready";

test("a model on demand is listed, started by its first request, and put away when it is idle", async () => {
  const [node] = await nodes(1, 10_000);
  await serve("a", "on_demand", { idle_minutes: 1 / 60 });
  const listed = (await (await fetch(`${bench.url}/v1/models`)).json()) as {
    data: { id: string; available: boolean }[];
  };
  expect(listed.data.find(({ id }) => id === "a")).toMatchObject({ available: true });
  expect(node!.held.size).toBe(0);

  const [whole, stream] = await Promise.all([ask("a"), ask("a", { stream: true })]);
  expect(whole.status).toBe(200);
  expect(stream.status).toBe(200);
  expect(stream.text).toStartWith(": loading ");
  expect(stream.text).toMatch(/: loading \d+ %\n\n/);
  expect(stream.text).toEndWith("data: [DONE]\n\n");
  expect(node!.loaded).toEqual(["a"]);
  await until("it is put away", () => node!.held.size === 0);

  // Off: it is no more.
  await serve("a", "off");
  expect((await ask("a")).status).toBe(404);
  expect(await rpc("agents.served")).toMatchObject([{ model_id: "a", mode: "off" }]);
});

test("the least recently used makes room, but never one with requests under way", async () => {
  const [node] = (await nodes(1, 20_000, { loadMs: 10 })) as [SimulatedNode];
  for (const model of ["a", "b", "c"]) await serve(model, "on_demand");
  await ask("a");
  await ask("b");
  const long = ask("a", { messages: messages("hold") });
  await until("it runs", () => node.streamsOf("a") === 1);
  const served = await ask("c");
  expect([served.status, [...node.held.keys()].sort()]).toEqual([200, ["a", "c"]]);

  // Both are in use: whoever wants another one waits until one of them is not.
  const leaving = new AbortController();
  const other = bench
    .chat({ model: "c", messages: messages("hold") }, { signal: leaving.signal })
    .catch(() => "left");
  await until("both are asked", () => node.streamsOf("c") === 1);
  const waiting = ask("b");
  await until("it waits", () => bench.app.rooms.inference.callsInFlight === 3);
  leaving.abort();
  expect([await other, (await waiting).status]).toEqual(["left", 200]);
  expect([node.streamsOf("a"), [...node.held.keys()].sort()]).toEqual([1, ["a", "b"]]);
  held.resolve();
  expect([(await long).status, node.loaded]).toEqual([200, ["a", "b", "c", "b"]]);
  expect(node.wasOverfull).toBe(false);
});

test("a whole answer waits for a minute, then its client is told to come back; who leaves owes nothing", async () => {
  const clock = new ManualClock();
  const own = await bootInference({ overrides: { clock } });
  cleanup.push(() => own.stop());
  await own.rpc("agents.serve", { model_id: "a", mode: "on_demand" }, own.token);
  const waiting = () => own.app.rooms.inference.callsInFlight === 1;
  const leaving = new AbortController();
  const left = own.chat({ model: "a" }, { signal: leaving.signal }).catch(() => "left");
  await until("it waits", waiting);
  leaving.abort();
  expect(await left).toBe("left");
  await until("it is over", () => !waiting());
  const late = own.chat({ model: "a" });
  await until("it waits", waiting);
  clock.advance(60_000);
  const answer = await late;
  expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "10"]);
  expect(await answer.json()).toMatchObject({ error: { message: "a is being loaded; try again" } });
  expect(await own.usageRows()).toEqual([]);
});

test("a model that is always on has as many replicas as asked for, and moves before its node is drained", async () => {
  const [one, two] = (await nodes(2, 10_000)) as [SimulatedNode, SimulatedNode];
  await serve("a", "always");
  await until("one has it", () => has(one, "a") || has(two, "a"));
  const [first, second] = has(one, "a") ? [one, two] : [two, one];
  const long = ask("a", { messages: messages("hold"), stream: true });
  await until("it is asked", () => first.streamsOf("a") === 1);
  await rpc("agents.drain", { agent_id: first.agentId });
  await until("the other has it", () => has(second, "a"));
  const draining = async () => (await rpc("agents.status", { agent_id: first.agentId })).draining;
  await until("it gets nothing new", async () => (await draining()) === "empty");
  expect((await ask("a")).status).toBe(200);
  held.resolve();
  expect((await long).text).toEndWith("data: [DONE]\n\n");
  await rpc("agents.drain", { agent_id: first.agentId, draining: false });
  expect(await draining()).toBeUndefined();

  // A node that stops says so itself, and hears when it may.
  const answer = await second.raw.call("agent.drain", {});
  expect(answer.result).toEqual({ ok: true });
  expect((await ask("a")).status).toBe(200);
});

test("a node that leaves with requests under way opens no circuit: when it is back, its model answers", async () => {
  const [node] = (await nodes(1, 10_000)) as [SimulatedNode];
  await serve("a", "always");
  await until("it has it", () => has(node, "a"));
  const broken = Array.from({ length: 4 }, () => ask("a", { messages: messages("hold") }));
  await until("they are asked", () => node.streamsOf("a") === 4);
  await node.suffer("cut", 0);
  for (const { status, text } of await Promise.all(broken)) {
    expect(status).toBe(502);
    expect(text).toContain("the connection to the node ended");
  }
  expect((await ask("a")).status).toBe(200);
});

test("500 clients with sessions, 20 models on 8 nodes that hold a part of them: nobody gets an error", async () => {
  const seen = await runFleet(bench, bench.token, {
    ...{ nodes: 8, models: 20, clients: 500, requestsEach: 1 },
    ...{ minimumMs: 500, loadMs: 50 },
  });
  expect(Object.keys(seen.outcomes).filter((each) => each !== "answered" && each !== "429")).toEqual([]);
  expect(seen.outcomes.answered).toBeGreaterThan(0);
  expect(Math.max(...seen.loads)).toBeLessThanOrEqual(seen.loadsMax);
  expect(Math.min(...seen.loads)).toBeGreaterThan(0);
  expect(seen.isOverfull).toBe(false);
});

test("nodes are killed, cut off and frozen meanwhile: nothing is lost, booked twice or left running", async () => {
  const seen = await runFleet(bench, bench.token, {
    ...{ nodes: 4, models: 8, clients: 60, requestsEach: 8, minimumMs: 300, loadMs: 50 },
    // However slow the machine is: with faults without end it would get nowhere between them.
    faults: { kinds: ["kill", "cut", "freeze"], everyMs: 50, awayMs: 200, times: 30 },
  });
  const { answered = 0, ...others } = seen.outcomes;
  // Everyone has an answer, or is told: what was under way on a node that went has ended, the model is away, or it is full.
  const isTold = (each: string) => /^429$|the connection to the node ended/.test(each);
  expect(Object.keys(others).filter((each) => !isTold(each))).toEqual([]);
  expect(Object.values(seen.outcomes).reduce((sum, each) => sum + each, 0)).toBe(480);
  expect(Object.keys(seen.faults).length).toBeGreaterThan(0);
  expect(answered).toBeGreaterThan(0);
  const books = await booksOf(bench);
  expect(books.problems).toEqual([]);
  // Nothing is charged that no engine was asked, and each only once.
  expect(books.charged).toBeGreaterThanOrEqual(answered);
  expect(books.charged).toBeLessThanOrEqual(seen.engineAsked);
}, 180_000);

test("a warm request takes as long while models are swapped beside it", async () => {
  const seen = await measureBesideSwaps(bench, bench.token, { rounds: 1, roundMs: 3_000, clients: 2 });
  expect(seen.swaps).toBeGreaterThan(0);
  expect(Math.min(seen.requests.without, seen.requests.beside)).toBeGreaterThan(20);
  // The figure itself is `npm run fleet -- --warm`: on a busy machine it would say nothing.
  expect(seen.ratio).toBeGreaterThan(0);
});
