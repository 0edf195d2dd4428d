import { expect, test } from "bun:test";
import { apiBase } from "../../src/backends/dialects/base-url.ts";
import { backendKinds } from "../../src/backends/index.ts";
import { plan } from "../../src/backends/planner.ts";
import { PROVIDER_ADDRESSES } from "../../src/rooms/providers/addresses.ts";
import { OFFICIAL_PROVIDERS } from "../../src/rooms/providers/official.ts";

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
  for (const { provider_id, type, url } of PROVIDER_ADDRESSES) {
    const { kind } = plan(type) as { kind: string };
    expect({ provider_id, scheme: backendKinds.get(kind)?.schemes.includes(new URL(url).protocol) }).toEqual({
      provider_id,
      scheme: true,
    });
    expect(OFFICIAL_PROVIDERS.map(({ id }) => id)).toContain(provider_id);
  }
  const addressed = new Set(PROVIDER_ADDRESSES.map(({ provider_id }) => provider_id));
  expect(OFFICIAL_PROVIDERS.filter(({ id }) => !addressed.has(id))).toEqual([]);
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
