import { expect, test } from "bun:test";
import { backendKinds } from "../../src/backends/index.ts";
import { plan } from "../../src/backends/planner.ts";

test("a type is a kind itself or an engine's name", () => {
  for (const kind of ["external", "local-server", "engine", "cloud-video", "cloud-realtime"] as const)
    expect(plan(kind)).toEqual({ kind });
  for (const name of ["llama_cpp", "vllm", "sglang", "lmstudio", "tgi", "cloud", "external_api"])
    expect(plan(name)).toEqual({ kind: "external" });
  for (const name of ["ollama", "ollama-like"]) expect(plan(name)).toEqual({ kind: "local-server" });
  for (const name of ["candle", "native"]) expect(plan(name)).toEqual({ kind: "engine" });
  for (const dialect of ["minimax", "dashscope", "kling", "seedance"] as const)
    expect(plan(dialect)).toEqual({ kind: "cloud-video", dialect });
  expect(plan(" vLLM ")).toEqual({ kind: "external" });
});

test("the removed type says so; anything else is no type", () => {
  expect(plan("comfyui")).toEqual({ removed: expect.stringContaining("was removed") });
  for (const name of ["", "vllm2", "__proto__", "constructor", "local_server"]) expect(plan(name)).toBeNull();
});

test("no two kinds answer to the same type", () => {
  const types = [...backendKinds.values()].flatMap(({ kind, types }) => [
    kind,
    ...types.map(({ name }) => name),
  ]);
  expect(types).toContain("vllm");
  expect(types).not.toContain("comfyui");
  expect(new Set(types).size).toBe(types.length);
  for (const type of types) expect(type).toBe(type.trim().toLowerCase());
});
