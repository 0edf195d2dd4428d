import { expect, test } from "bun:test";
import { AUTHS, DIALECTS } from "../../src/backends/contract.ts";
import { apiBase } from "../../src/backends/dialects/dialect.ts";
import { backendKinds, plan } from "../../src/backends/index.ts";
import { PROVIDER_CARDS } from "../../src/rooms/providers/service.ts";

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

test("every provider's address is one that its kind can be registered with", () => {
  for (const { id, apis } of PROVIDER_CARDS)
    for (const { type, url, dialects = [], auth = "bearer" } of apis) {
      const { kind } = plan(type) as { kind: string };
      const isTaken = backendKinds.get(kind)?.schemes.includes(new URL(url).protocol);
      const isSpoken = dialects.every((name) => DIALECTS.includes(name)) && AUTHS.includes(auth);
      expect({ id, isTaken, isSpoken }).toEqual({ id, isTaken: true, isSpoken: true });
      if (kind === "external") expect({ id, speaks: dialects.length > 0 }).toEqual({ id, speaks: true });
    }
  const wanted =
    "openai anthropic google vertex azure bedrock mistral deepseek xai groq openrouter together fireworks cerebras moonshot zhipu minimax alibaba cohere ollama vllm llama-cpp sglang lm-studio";
  expect(PROVIDER_CARDS.map(({ id }) => id)).toEqual(expect.arrayContaining(wanted.split(" ")));
});

test("an address that names a version anywhere is taken as it is", () => {
  for (const [url, base] of [
    ["http://box:8000", "http://box:8000/v1"],
    ["http://box:8000/", "http://box:8000/v1"],
    ["https://api.z.ai/api/paas/v4", "https://api.z.ai/api/paas/v4"],
    ["https://host/v1beta/openai", "https://host/v1beta/openai"],
    ["https://host/v1beta/openai/chat/completions", "https://host/v1beta/openai"],
    ["https://host/viewer", "https://host/viewer/v1"],
  ] as const)
    expect(apiBase(url)).toBe(base);
});
