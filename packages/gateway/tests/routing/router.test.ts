import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import type { Backend, BackendConfig } from "../../src/backends/contract.ts";
import { backendKinds } from "../../src/backends/index.ts";
import { ResponseAnswer } from "../../src/backends/shared/response-answer.ts";
import { Circuit } from "../../src/rooms/routing/circuit.ts";
import { type Entry, newEntry } from "../../src/rooms/routing/entry.ts";
import { recoveryPauseMs } from "../../src/rooms/routing/health.ts";
import { Router } from "../../src/rooms/routing/router.ts";

const clock = new ManualClock();

function entry(name: string, config: Partial<BackendConfig> = {}, backend: Partial<Backend> = {}): Entry {
  const complete: BackendConfig = {
    name,
    kind: "external",
    type: "external",
    url: "http://127.0.0.1",
    apiKey: null,
    models: ["m"],
    ...config,
  };
  const made = newEntry(backendKinds.get(complete.kind)!, {
    config: complete,
    backend: {
      config: complete,
      chat: async () => new ResponseAnswer(new Response(), AbortSignal.timeout(1_000)),
      probe: async () => ({ state: "Healthy", models: [] }),
      close() {},
      ...backend,
    },
    index: 0,
    persisted: false,
  });
  made.state = "Healthy";
  return made;
}

const chosen = (router: Router, request: Partial<Parameters<Router["choose"]>[0]> = {}) => {
  const route = router.choose({ model: "m", capability: "chat", ...request });
  route.succeeded();
  return route.name;
};
const kindOf = (act: () => unknown): string => {
  try {
    act();
    return "none";
  } catch (error) {
    return (error as { kind: string }).kind;
  }
};

describe("the circuit", () => {
  const now = 1_000_000;

  test("opens after three consecutive failures, for 30 seconds", () => {
    const circuit = new Circuit();
    circuit.failed("a", now);
    circuit.failed("b", now);
    circuit.succeeded();
    for (const cause of ["c", "d"]) circuit.failed(cause, now);
    expect(circuit.canPass(now)).toBe(true);
    circuit.failed("e", now);
    expect(circuit.canPass(now)).toBe(false);
    expect(circuit.report(now)).toEqual({
      state: "open",
      consecutive_failures: 3,
      cause: "e",
      retry_at: new Date(now + 30_000).toISOString(),
    });
    expect(circuit.canPass(now + 29_999)).toBe(false);
    expect(circuit.canPass(now + 30_000)).toBe(true);
  });

  test("lets exactly one test call through, whose outcome decides", () => {
    const circuit = new Circuit();
    for (let i = 0; i < 3; i++) circuit.failed("x", now);
    const later = now + 30_000;
    expect(circuit.enter()).toBe(true);
    expect(circuit.canPass(later)).toBe(false);
    expect(circuit.report(later).state).toBe("half_open");
    circuit.tested();
    circuit.failed("again", later);
    expect(circuit.canPass(later + 29_999)).toBe(false);
    circuit.enter();
    circuit.tested();
    circuit.succeeded();
    expect(circuit.canPass(later)).toBe(true);
    expect(circuit.report(later).state).toBe("closed");
  });

  test("does not stay open for as long as the clock was set back", () => {
    const circuit = new Circuit();
    for (let i = 0; i < 3; i++) circuit.failed("x", now);
    expect(circuit.canPass(now - 1)).toBe(true);
    expect(circuit.report(now - 3_600_000).state).toBe("half_open");
  });

  test("gives the test to the next caller when the first one left", () => {
    const circuit = new Circuit();
    for (let i = 0; i < 3; i++) circuit.failed("x", now);
    const later = now + 30_000;
    circuit.enter();
    circuit.tested();
    expect(circuit.canPass(later)).toBe(true);
  });
});

describe("the router", () => {
  test("takes the least used candidate, the first registered among equals", () => {
    const router = new Router([entry("a"), entry("b"), entry("c")], clock);
    expect(Array.from({ length: 6 }, () => chosen(router))).toEqual(["a", "b", "c", "a", "b", "c"]);
  });

  test("gives a newcomer the next request, and then its share", () => {
    const entries = [entry("old"), entry("of another model", { models: ["other"] })];
    const router = new Router(entries, clock);
    for (let i = 0; i < 100; i++) chosen(router);
    const young = entry("young");
    entries.push(young);
    router.joined(young);
    router.changed();
    const next = Array.from({ length: 6 }, () => chosen(router));
    expect(next).toEqual(["young", "old", "young", "old", "young", "old"]);
  });

  test("filters by provider: name, kind or type, in any case", () => {
    const router = new Router(
      [entry("Alpha"), entry("beta", { kind: "engine", type: "candle" }), entry("gamma", { type: "vllm" })],
      clock,
    );
    expect(chosen(router, { provider: "ALPHA" })).toBe("Alpha");
    expect(chosen(router, { provider: "Engine" })).toBe("beta");
    expect(chosen(router, { provider: " vllm " })).toBe("gamma");
    expect(kindOf(() => chosen(router, { provider: "delta" }))).toBe("model_not_found");
  });

  test("passes over the unhealthy and the open, and tells unknown from unhealthy", () => {
    const [a, b] = [entry("a"), entry("b")];
    const router = new Router([a, b], clock);
    a.state = "Degraded";
    expect([chosen(router), chosen(router)]).toEqual(["b", "b"]);
    for (let i = 0; i < 3; i++) b.circuit.failed("x", clock.now());
    expect(kindOf(() => chosen(router))).toBe("all_unhealthy");
    expect(kindOf(() => chosen(router, { model: "other" }))).toBe("model_not_found");
    expect(kindOf(() => chosen(router, { capability: "video" }))).toBe("no_video_backend");
  });

  test("sends one call at a time to a half-open backend", () => {
    const [a] = [entry("a")];
    const router = new Router([a!], clock);
    for (let i = 0; i < 3; i++) a!.circuit.failed("x", clock.now());
    clock.advance(30_000);
    const trial = router.choose({ model: "m", capability: "chat" });
    expect(kindOf(() => chosen(router))).toBe("all_unhealthy");
    trial.succeeded();
    expect(chosen(router)).toBe("a");
  });

  test("sends no second one when calls from before the circuit opened end meanwhile", () => {
    const only = entry("a");
    const router = new Router([only], clock);
    const choose = () => router.choose({ model: "m", capability: "chat" });
    const [left, broken] = [choose(), choose()];
    for (let i = 0; i < 3; i++) only.circuit.failed("x", clock.now());
    clock.advance(30_000);
    const trial = choose();
    left.abandoned();
    expect(kindOf(choose)).toBe("all_unhealthy");
    broken.failed({ cause: "y" });
    clock.advance(30_000);
    expect(kindOf(choose)).toBe("all_unhealthy");
    trial.abandoned();
    expect(choose().name).toBe("a");
  });

  test("pins a conversation, and binds it anew when its backend is gone", () => {
    const entries = [entry("a"), entry("b")];
    const router = new Router(entries, clock);
    const conversationId = "c1";
    const first = chosen(router, { conversationId });
    for (let i = 0; i < 5; i++) expect(chosen(router, { conversationId })).toBe(first);
    const pinned = entries.find(({ config }) => config.name === first)!;
    pinned.state = "Unhealthy";
    const second = chosen(router, { conversationId });
    expect(second).not.toBe(first);
    pinned.state = "Healthy";
    expect(chosen(router, { conversationId })).toBe(second);
    entries.splice(
      entries.findIndex(({ config }) => config.name === second),
      1,
    );
    router.changed();
    expect(chosen(router, { conversationId })).toBe(first);
  });

  test("matches a bare name with :latest, and a tag only with itself", () => {
    const router = new Router(
      [entry("a", { models: ["x:latest", "x:7b", "y", "host:5000/team/m:latest"] })],
      clock,
    );
    const model = (name: string) => router.choose({ model: name, capability: "chat" }).model;
    expect(model("x")).toBe("x:latest");
    expect(model("x:7b")).toBe("x:7b");
    expect(kindOf(() => model("y:latest"))).toBe("model_not_found");
    expect(model("host:5000/team/m")).toBe("host:5000/team/m:latest");
    expect(kindOf(() => model("x:13b"))).toBe("model_not_found");
  });

  test("asks for the capability of the backend and of the model", () => {
    const speaking = entry("a", { kind: "engine", models: [] });
    speaking.discovered = [
      { id: "m", capabilities: ["chat"] },
      { id: "v", capabilities: ["embeddings"] },
    ];
    const router = new Router([speaking], clock);
    expect(chosen(router)).toBe("a");
    expect(kindOf(() => chosen(router, { model: "v" }))).toBe("backend_error");
    expect(kindOf(() => chosen(router, { capability: "embeddings" }))).toBe("backend_error");
  });

  test("orders models by the precedence of the kind", () => {
    const of = (kind: BackendConfig["kind"]) => {
      const one = entry(kind, { kind, models: ["s"] });
      one.discovered = [{ id: "d" }, { id: "s" }];
      return new Router([one], clock).routableModels().map(({ id }) => id);
    };
    expect(of("external")).toEqual(["s", "d"]);
    expect(of("engine")).toEqual(["d", "s"]);
    expect(of("local-server")).toEqual(["d", "s"]);
    expect(of("cloud-video")).toEqual(["s"]);
  });
});

test("probes of a backend that is away follow each other within two seconds for ten minutes", () => {
  const pauses = [0, 5_000, 30_000, 300_000, 599_999].map(recoveryPauseMs);
  expect(pauses).toEqual([500, 500, 1_500, 1_500, 1_500]);
  expect(recoveryPauseMs(600_000)).toBe(10_000);
});
