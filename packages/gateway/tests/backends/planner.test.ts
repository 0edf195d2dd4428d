import { expect, test } from "bun:test";
import { sameModel } from "../../src/backends/model-names.ts";
import { backendTypes, plan } from "../../src/backends/planner.ts";

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
  expect(backendTypes).toContain("vllm");
  expect(backendTypes).not.toContain("comfyui");
});

test("a bare name stands for :latest, an explicit tag only for itself", () => {
  expect(sameModel("llama3:latest", "llama3")).toBe(true);
  expect(sameModel("llama3:latest", "llama3:latest")).toBe(true);
  expect(sameModel("gpt-x", "gpt-x")).toBe(true);
  expect(sameModel("llama3:8b", "llama3")).toBe(false);
  expect(sameModel("llama3:8b", "llama3:latest")).toBe(false);
  expect(sameModel("llama3", "llama3:latest")).toBe(false);
  expect(sameModel("host:5000/team/m:latest", "host:5000/team/m")).toBe(true);
});
