import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import type { Backend, BackendConfig } from "../../src/backends/contract.ts";
import { backendKinds } from "../../src/backends/index.ts";
import { ResponseAnswer } from "../../src/backends/shared/upstream-http.ts";
import { ALL, Circuits } from "../../src/rooms/routing/circuit.ts";
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

/** Connections to it are refused, so that its circuit opens for everyone. */
const lose = (one: Entry, times = 3) => {
  const failure = { model: ALL, payer: "p", cause: "refused", isUnreached: true, tested: null };
  for (let i = 0; i < times; i++) one.circuits.apply({ ...failure, kind: "failed", atMs: clock.now() });
};

describe("circuits", () => {
  const now = 1_000_000;
  const barred = (circuits: Circuits, model: string, payer: string, atMs = now) =>
    circuits.barriers(model, payer).some((circuit) => !circuit.isDue(atMs));
  const failed = (circuits: Circuits, model: string, payer: string, atMs = now) =>
    circuits.apply({ kind: "failed", model, payer, cause: "x", isUnreached: false, tested: null, atMs });

  test("open after three consecutive failures of a payer, for that payer, for 30 seconds", () => {
    const circuits = new Circuits();
    for (let i = 0; i < 2; i++) failed(circuits, "m", "p");
    circuits.apply({ kind: "succeeded", model: "m", payer: "p", atMs: now });
    for (let i = 0; i < 2; i++) failed(circuits, "m", "p");
    expect(barred(circuits, "m", "p")).toBe(false);
    expect(failed(circuits, "m", "p")).toHaveLength(1);
    expect(barred(circuits, "m", "p")).toBe(true);
    expect(barred(circuits, "m", "q")).toBe(false);
    expect(barred(circuits, "other", "p")).toBe(false);
    expect(circuits.report(now)).toEqual({
      state: "open",
      consecutive_failures: 3,
      cause: "x",
      retry_at: new Date(now + 30_000).toISOString(),
      model: "m",
      for_all: false,
    });
    expect(barred(circuits, "m", "p", now + 29_999)).toBe(true);
    expect(barred(circuits, "m", "p", now + 30_000)).toBe(false);
    expect(barred(circuits, "m", "p", now - 3_600_000)).toBe(false);
  });

  test("open for all when a second payer meets a failure, or a probe fails", () => {
    const met = new Circuits();
    for (const payer of ["p", "p", "p", "q"]) failed(met, "m", payer);
    expect(barred(met, "m", "r")).toBe(true);
    const probed = new Circuits();
    for (let i = 0; i < 3; i++) failed(probed, "m", "p");
    for (const event of probed.probed(false, now)) probed.apply(event);
    expect(barred(probed, "m", "r")).toBe(true);
    expect(probed.report(now)).toMatchObject({ state: "open", model: "m", for_all: true });
    const between = new Circuits();
    for (let i = 0; i < 3; i++) failed(between, "m", "p");
    between.apply({ kind: "succeeded", model: "m", payer: "q", atMs: now });
    failed(between, "m", "q");
    expect([barred(between, "m", "p"), barred(between, "m", "q")]).toEqual([true, false]);
  });

  test("keep everyone from a backend of which three models fail, and for 30 seconds whatever probes say", () => {
    const circuits = new Circuits();
    for (const model of ["a", "b", "c"]) for (const payer of ["p", "q", "p"]) failed(circuits, model, payer);
    expect(barred(circuits, "d", "r")).toBe(true);
    for (let i = 0; i < 3; i++) expect(circuits.probed(true, now + 1)).toEqual([]);
    expect(circuits.report(now)).toMatchObject({ state: "open", model: null, for_all: true });
  });

  test("of lost connections may be tested after two good probes in a row", () => {
    const circuits = new Circuits();
    for (let i = 0; i < 3; i++) circuits.probed(true, now);
    for (let i = 0; i < 3; i++) failed(circuits, ALL, "p");
    const probe = (isWell: boolean) => {
      for (const event of circuits.probed(isWell, now + 1_000)) circuits.apply(event);
      return barred(circuits, "m", "p", now + 1_000);
    };
    expect([true, false, true, true].map(probe)).toEqual([true, true, true, false]);
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
    lose(b);
    expect(kindOf(() => chosen(router))).toBe("all_unhealthy");
    expect(kindOf(() => chosen(router, { model: "other" }))).toBe("model_not_found");
    expect(kindOf(() => chosen(router, { capability: "video" }))).toBe("no_video_backend");
  });

  test("sends one call at a time to a half-open backend", () => {
    const [a] = [entry("a")];
    const router = new Router([a!], clock);
    lose(a!);
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
    lose(only);
    clock.advance(30_000);
    const trial = choose();
    left.abandoned();
    expect(kindOf(choose)).toBe("all_unhealthy");
    broken.failed({ cause: "y", isAnswered: false });
    clock.advance(30_000);
    expect(kindOf(choose)).toBe("all_unhealthy");
    trial.abandoned();
    expect(choose().name).toBe("a");
  });

  test("keeps a conversation where it is, and moves it when its backend is away", () => {
    const entries = [entry("a"), entry("b", { models: ["m", "only-b"] })];
    const router = new Router(entries, clock);
    const turn = (boundTo: string | null, model = "m") => {
      const route = router.choose({ model, capability: "chat", boundTo });
      route.succeeded();
      return [route.name, route.rebinds];
    };
    expect(turn(null)).toEqual(["a", true]);
    for (let i = 0; i < 3; i++) expect(turn("a")).toEqual(["a", false]);
    expect(turn("a", "only-b")).toEqual(["b", false]);
    entries[0]!.state = "Unhealthy";
    expect(turn("a")).toEqual(["b", true]);
    expect(turn("gone")).toEqual(["b", true]);
    entries[0]!.state = "Healthy";
    lose(entries[0]!);
    expect(turn("a")).toEqual(["b", true]);
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
