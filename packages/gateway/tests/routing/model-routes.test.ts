import { afterEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import {
  completion,
  type FakeUpstream,
  startUpstream,
  wholeStream,
} from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  await bench.stop();
  for (const undo of cleanup.splice(0)) await undo();
});

/** A backend of its own with one model. */
async function addUpstream(name: string, model: string, more: object = {}): Promise<FakeUpstream> {
  const upstream = startUpstream({ models: [model] });
  cleanup.push(() => upstream.stop());
  await bench.addBackend({ name, type: "external", url: upstream.url, ...more });
  return upstream;
}
const setRoute = (params: object) => bench.rpc("routes.set", params, bench.token);
const ask = async (more: object = {}) => {
  const answer = await bench.chat({ model: "fast", ...more });
  return {
    status: answer.status,
    text: await answer.text(),
    backend: answer.headers.get("x-service-backend"),
    attempts: answer.headers.get("x-service-attempts"),
  };
};

describe("routes.*", () => {
  test("are for administrators, name bad fields, and survive a restart", async () => {
    bench = await bootInference();
    const member = await bench.signIn("bob");
    for (const method of ["routes.list", "routes.set", "routes.delete"])
      expect((await bench.call(method, { name: "x", targets: [{ model: "m" }] }, member)).error.code).toBe(
        -32007,
      );
    for (const [field, params] of [
      ["name", { name: "", targets: [{ model: "m" }] }],
      ["targets", { name: "x", targets: [] }],
      ["targets", { name: "x", targets: Array.from({ length: 17 }, () => ({ model: "m" })) }],
      ["weight", { name: "x", targets: [{ model: "m", weight: -1 }] }],
      ["order", { name: "x", targets: [{ model: "m", order: 0.5 }] }],
      ["begin_within_seconds", { name: "x", targets: [{ model: "m" }], begin_within_seconds: 0 }],
    ] as const) {
      const { error } = await bench.call("routes.set", params, bench.token);
      expect(error.code).toBe(-32602);
      expect(error.message).toContain(field);
    }
    await setRoute({ name: "fast", targets: [{ model: "m", order: 2 }], begin_within_seconds: 1.5 });
    const route = {
      name: "fast",
      targets: [
        { model: "m", backend: null, order: 2, weight: 1, backends: [{ name: "first", serving: true }] },
      ],
      begin_within_seconds: 1.5,
    };
    expect(await bench.rpc("routes.list", {}, bench.token)).toEqual([route]);
    const { dataDir } = bench;
    await bench.app.stop();
    const again = await bootGateway({ dataDir });
    const token = await again.signIn("ada");
    expect(await again.rpc("routes.list", {}, token)).toMatchObject([
      { ...route, targets: [{ model: "m", backend: null, order: 2, weight: 1 }] },
    ]);
    await again.rpc("routes.delete", { name: "fast" }, token);
    expect((await again.call("routes.delete", { name: "fast" }, token)).error.message).toContain(
      "routes.list",
    );
    await again.stop();
  });
});

test("routes.list says which backends stand behind each target, and which of them take calls", async () => {
  bench = await bootInference();
  await addUpstream("second", "gpt-4o");
  const targets = [
    { model: "m" },
    { model: "gpt-4o", backend: "SECOND" },
    { model: "gpt-4o", backend: "first" },
  ];
  await setRoute({ name: "fast", targets: [...targets, { model: "nobody-has-it" }] });
  const backends = async () => {
    const [route] = await bench.rpc<{ targets: { backends: unknown }[] }[]>("routes.list", {}, bench.token);
    return route?.targets.map((target) => target.backends);
  };
  const first = { name: "first", serving: true };
  expect(await backends()).toEqual([[first], [{ name: "second", serving: true }], [], []]);
  await bench.rpc("backends.update", { name: "second", enabled: false }, bench.token);
  expect(await backends()).toEqual([[first], [], [], []]);
});

describe("a model route", () => {
  test("falls back in its order, is charged by the model that served, and says who did", async () => {
    bench = await bootInference();
    const second = await addUpstream("second", "gpt-4o");
    await setRoute({
      name: "fast",
      targets: [
        { model: "gpt-4o", order: 2 },
        { model: "m", order: 1 },
      ],
    });
    expect(await ask()).toMatchObject({ status: 200, backend: "first", attempts: "1" });
    for (const stream of [false, true])
      for (const status of [429, 500, 404, 409]) {
        bench.upstream.answer((_, reply) => reply.json({ error: "not now" }, status));
        const { text, ...answer } = await ask({ stream, messages: [{ role: "user", content: `${status}` }] });
        expect(answer).toEqual({ status: 200, backend: "second", attempts: expect.any(String) });
        expect(text).toContain(String(status));
      }
    // What is wrong with the request is told, and not tried elsewhere.
    await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
    const asked = second.requests.length;
    bench.upstream.answer((_, reply) => reply.json({ error: "bad temperature" }, 400));
    expect((await ask()).status).toBe(502);
    expect(second.requests.length).toBe(asked);
    const overflow = { error: { message: "too long", type: "exceed_context_size_error" } };
    bench.upstream.answer((_, reply) => reply.json(overflow, 400));
    expect(await ask()).toMatchObject({ status: 200, backend: "second", attempts: "2" });
    await until("usage is there", async () => (await bench.usageRows()).length === 10);
    const models = (await bench.usageRows()).map(({ model }) => model);
    expect(models.filter((model) => model === "m").length).toBe(1);
    expect(models.filter((model) => model === "gpt-4o").length).toBe(9);
  });

  test("falls back on every surface", async () => {
    bench = await bootInference();
    const second = await addUpstream("second", "m2");
    await setRoute({
      name: "fast",
      targets: [
        { model: "m", order: 1 },
        { model: "m2", order: 2 },
      ],
    });
    const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
    const text = {
      id: "cmpl-1",
      object: "text_completion",
      created: 1,
      model: "m2",
      choices: [{ index: 0, text: "ok", logprobs: null, finish_reason: "stop" }],
      usage,
    };
    const vectors = {
      object: "list",
      model: "m2",
      data: [{ object: "embedding", index: 0, embedding: [0.5] }],
      usage: { prompt_tokens: 3, total_tokens: 3 },
    };
    second.answer(({ path, json }, reply) => {
      if (path.endsWith("/embeddings")) return reply.json(vectors);
      if (path.endsWith("/chat/completions"))
        return json.stream ? reply.stream(wholeStream(["ok"])) : reply.json(completion("ok"));
      return json.stream
        ? reply.stream([`data: ${JSON.stringify(text)}\n\n`, "data: [DONE]\n\n"])
        : reply.json(text);
    });
    const messages = [{ role: "user", content: "hi" }];
    const surfaces: [string, object][] = [
      ["/v1/completions", { prompt: "hi" }],
      ["/v1/responses", { input: "hi" }],
      ["/v1/messages", { messages, max_tokens: 9 }],
      ["/api/chat", { messages }],
      ["/api/generate", { prompt: "hi" }],
      ["/api/generate", { prompt: "hi", raw: true }],
      ["/api/embed", { input: "hi" }],
      ["/v1/embeddings", { input: "hi" }],
    ];
    for (const [path, body] of surfaces) {
      for (const stream of [false, true]) {
        bench.upstream.answer((_, reply) => reply.json({ error: { message: "not now" } }, 429));
        const answer = await bench.post(path, { model: "fast", stream, ...body });
        expect({ path, stream, status: answer.status }).toEqual({ path, stream, status: 200 });
        expect(answer.headers.get("x-service-backend")).toBe("second");
        await answer.text();
      }
    }
    const rows = surfaces.length * 2;
    await until("usage is there", async () => (await bench.usageRows()).length === rows);
    for (const { model } of await bench.usageRows()) expect(model).toBe("m2");
    // Ollama's clients see the route among their models.
    const { models } = await (await fetch(`${bench.url}/api/tags`)).json();
    expect(models.map(({ name }: { name: string }) => name)).toContain("fast");
    expect((await bench.post("/api/show", { model: "fast:latest" })).status).toBe(200);
  });

  test("falls back when a target has not begun in time, streams included, but not after the first text", async () => {
    bench = await bootInference();
    await addUpstream("second", "m2");
    const targets = [
      { model: "m", order: 1 },
      { model: "m2", order: 2 },
    ];
    await setRoute({ name: "fast", targets, begin_within_seconds: 0.2 });
    await bench.rpc("billing.prices.set", { model: "m", input_usd: 1, output_usd: 1 }, bench.token);
    bench.upstream.answer(() => new Promise(() => {}));
    expect(await ask()).toMatchObject({ status: 200, backend: "second", attempts: "2" });
    // Each instance counts what it gave up, and connections reach them in turn.
    await until("what was given up is counted", async () => {
      const figures = await (await fetch(`${bench.url}/metrics`)).text();
      return /^gateway_given_up_cost_usd_total\{(worker="\d",)?model="m"\} 0\.000\d+/m.test(figures);
    });
    const reached = bench.upstream.requests.at(-1)!;
    await until("the first is no longer asked", () => reached.closedAtMs !== null);
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await new Promise(() => {});
    });
    const streamed = await ask({ stream: true });
    expect(streamed).toMatchObject({ status: 200, backend: "second", attempts: "2" });
    expect(streamed.text).toEndWith("data: [DONE]\n\n");
    await setRoute({ name: "fast", targets, begin_within_seconds: 10 });
    const { promise: hasText, resolve: release } = Promise.withResolvers<void>();
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      for (const piece of wholeStream(["one "]).slice(0, 2)) await reply.write(piece);
      await hasText;
      reply.reset();
    });
    const cut = await bench.chat({ model: "fast", stream: true });
    expect(cut.headers.get("x-service-backend")).toBe("first");
    release();
    const text = await cut.text();
    expect(text).toContain("one ");
    expect(text).toContain('"error"');
    expect(text).not.toContain("[DONE]");
  });

  test("is listed while a target can serve, with that one's backend, for clients and administrators alike", async () => {
    bench = await bootInference();
    await addUpstream("second", "m2");
    await setRoute({ name: "dead", targets: [{ model: "nobody-has-it" }] });
    await setRoute({ name: "fast", targets: [{ model: "nobody-has-it" }, { model: "m2" }] });
    const listed = async () => {
      const { data } = await (await fetch(`${bench.url}/v1/models`)).json();
      // The others are the quick start's, for which a key is still missing.
      const served = (data as Record<string, string>[]).filter(({ available }) => available);
      const owners = new Map(served.map(({ id, owned_by }) => [id, owned_by]));
      expect((await bench.backends()).models.toSorted()).toEqual([...owners.keys()].toSorted());
      return owners;
    };
    expect([...(await listed())].toSorted()).toEqual([
      ["fast", "second"],
      ["m", "first"],
      ["m2", "second"],
    ]);
    await bench.removeBackend("second");
    expect([...(await listed())]).toEqual([["m", "first"]]);
  });

  inOneProcess("shares calls by weight, and only with models that the key may use", async () => {
    bench = await bootInference();
    const second = await addUpstream("second", "m2");
    const targets = [
      { model: "m", weight: 3 },
      { model: "m2", backend: "second", weight: 1 },
    ];
    await setRoute({ name: "fast", targets });
    for (let i = 0; i < 40; i++) expect((await ask()).status).toBe(200);
    expect([bench.upstream.requests.length, second.requests.length]).toEqual([30, 10]);
    const { data } = await (await fetch(`${bench.url}/v1/models`)).json();
    expect(data.find(({ id }: { id: string }) => id === "fast")).toMatchObject({ owned_by: "first" });
    expect((await bench.backends()).models).toContain("fast");
  });
});

inOneProcess("a backend with two places gets two calls at once, and the others wait in order", async () => {
  bench = await bootInference();
  const served: string[] = [];
  let most = 0;
  let now = 0;
  const gates: (() => void)[] = [];
  const small = await addUpstream("small", "tiny", { concurrency: 2 });
  small.answer(async ({ json }, reply) => {
    most = Math.max(most, ++now);
    served.push(json.messages[0].content);
    await new Promise<void>((resolve) => gates.push(resolve));
    now--;
    await reply.json(completion("ok"));
  });
  const asked: Promise<Response>[] = [];
  for (let i = 0; i < 20; i++) {
    asked.push(bench.chat({ model: "tiny", messages: [{ role: "user", content: `${i}` }] }));
    const inside = () =>
      bench.app.rooms.inference.callsInFlight + bench.app.rooms.routing.router.waitingCount === i + 1;
    await until(`call ${i} is in`, inside);
  }
  while (served.length < 20 || gates.length > 0) {
    await until("a call is held", () => gates.length > 0);
    gates.shift()!();
    await until("the next one came", () => gates.length > 0 || served.length === 20);
  }
  const statuses = (await Promise.all(asked)).map(({ status }) => status);
  expect(statuses).toEqual(Array.from({ length: 20 }, () => 200));
  expect(served).toEqual(Array.from({ length: 20 }, (_, i) => `${i}`));
  expect(most).toBe(2);
});

inOneProcess("keys take turns among the calls that wait", async () => {
  bench = await bootInference();
  const { key: other } = await bench.rpc("keys.create", { name: "other" }, bench.token);
  const served: string[] = [];
  const gates: (() => void)[] = [];
  const small = await addUpstream("small", "tiny", { concurrency: 1 });
  small.answer(async ({ json }, reply) => {
    served.push(json.messages[0].content);
    await new Promise<void>((resolve) => gates.push(resolve));
    await reply.json(completion("ok"));
  });
  const asked: Promise<Response>[] = [];
  for (const [i, content] of ["a1", "a2", "a3", "a4", "b1", "b2"].entries()) {
    const headers = content.startsWith("b") ? { authorization: `Bearer ${other}` } : undefined;
    asked.push(bench.chat({ model: "tiny", messages: [{ role: "user", content }] }, { headers }));
    const { inference, routing } = bench.app.rooms;
    await until(`${content} is in`, () => inference.callsInFlight + routing.router.waitingCount === i + 1);
  }
  for (let i = 0; i < asked.length; i++) {
    await until("a call is held", () => gates.length > 0);
    gates.shift()!();
    await asked[["a1", "a2", "a3", "a4", "b1", "b2"].indexOf(served[i]!)];
  }
  expect(served).toEqual(["a1", "a2", "b1", "a3", "b2", "a4"]);
  for (const answer of asked) expect((await answer).status).toBe(200);
});

test("an upstream that has too much to do has not failed, and another is asked instead", async () => {
  bench = await bootInference();
  const second = await addUpstream("second", "tiny");
  const first = await addUpstream("first", "tiny");
  second.answer((_, reply) => reply.json(completion("ok")));
  const refusals = [
    () => first.answer((_, reply) => reply.json({ error: { message: "slow down" } }, 429)),
    () =>
      first.answer((_, reply) => reply.json({ error: { message: "later" } }, 503, { "retry-after": "9" })),
    () => first.answer((_, reply) => reply.json({ error: { type: "overloaded_error", message: "x" } }, 503)),
  ];
  for (const refuse of refusals) {
    refuse();
    for (let i = 0; i < 6; i++) expect((await bench.chat({ model: "tiny" })).status).toBe(200);
  }
  const { backends } = await bench.backends();
  for (const { circuit } of backends.health)
    expect(circuit).toMatchObject({ state: "closed", consecutive_failures: 0 });
});

inOneProcess(
  "a call that has waited a minute for a place is told to come back, and the backend has not failed",
  async () => {
    const clock = new ManualClock();
    bench = await bootInference({ overrides: { clock } });
    const small = await addUpstream("small", "tiny", { concurrency: 1 });
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    small.answer(async (_, reply) => {
      await gate;
      await reply.json(completion("ok"));
    });
    const first = bench.chat({ model: "tiny" });
    await until("it is asked", () => small.requests.some(({ method }) => method === "POST"));
    const second = bench.chat({ model: "tiny" });
    await until("it waits", () => bench.app.rooms.routing.router.waitingCount === 1);
    clock.advance(60_000);
    const refused = await second;
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    expect((await refused.json()).error).toMatchObject({ type: "rate_limit_error", code: "backend_busy" });
    open();
    expect((await first).status).toBe(200);
    const { backends } = await bench.backends();
    expect(backends.health.at(-1).circuit).toMatchObject({ state: "closed", consecutive_failures: 0 });
  },
);

inOneProcess(
  "with SERVICE_BACKEND_CHOICE=latency the backend that answers sooner gets the calls",
  async () => {
    bench = await bootInference({ config: { backendChoice: "latency" } });
    const slow = await addUpstream("slow", "m");
    slow.answer(async (_, reply) => {
      await Bun.sleep(150);
      await reply.json(completion("late"));
    });
    for (let i = 0; i < 12; i++) expect((await bench.chat({})).status).toBe(200);
    expect(slow.requests.length).toBe(1);
    expect(bench.upstream.requests.length).toBe(11);
  },
);

test("an error says who was asked last, and how many were", async () => {
  bench = await bootInference();
  const second = await addUpstream("second", "gpt-4o");
  for (const upstream of [bench.upstream, second])
    upstream.answer((_, reply) => reply.json({ error: { message: "busy" } }, 500));
  await setRoute({
    name: "fast",
    targets: [
      { model: "m", order: 1 },
      { model: "gpt-4o", order: 2 },
    ],
  });
  for (const stream of [false, true])
    expect(await ask({ stream })).toMatchObject({ status: 502, backend: "second", attempts: "2" });
  // Nobody was asked.
  const refused = await bench.chat({ model: "nobody" });
  expect(refused.status).toBe(404);
  expect(refused.headers.get("x-service-backend")).toBeNull();
});

test("a group's model rules hold for the targets of a route", async () => {
  bench = await bootInference();
  await addUpstream("second", "gpt-4o");
  await setRoute({
    name: "fast",
    targets: [
      { model: "m", order: 1 },
      { model: "gpt-4o", order: 2 },
    ],
  });
  const { id: group_id } = await bench.rpc("group.create", { name: "crew" }, bench.token);
  const { key } = await bench.rpc("keys.create", { name: "g", group_id }, bench.token);
  const headers = { authorization: `Bearer ${key}` };
  const asked = async () => {
    const answer = await bench.chat({ model: "fast" }, { headers });
    await answer.text();
    return [answer.status, answer.headers.get("x-service-backend")];
  };
  const deny = (model_ids: string[]) => bench.rpc("group.models.deny", { group_id, model_ids }, bench.token);
  expect(await asked()).toEqual([200, "first"]);
  await deny(["m"]);
  expect(await asked()).toEqual([200, "second"]);
  await deny(["gpt-4o"]);
  expect(await asked()).toEqual([403, null]);
});
