import { describe, expect, test } from "bun:test";
import type { GpuReport } from "@model-gateway/protocol/agent.ts";
import { parseConfig } from "../src/config.ts";
import { planModel, renderLaunch } from "../src/engines/plan.ts";
import { estimateOf, roomMb, shapeOfConfig, shapeOfGguf } from "../src/fit/estimate.ts";
import { parseProcessCsv } from "../src/gpu.ts";

const QWEN3_8B = {
  ...{ num_hidden_layers: 36, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128 },
  ...{ hidden_size: 4096, max_position_embeddings: 40_960 },
};

/** The beginning of a GGUF file, with the tokenizer's words cut off. */
function gguf(values: Record<string, number | string | number[]>): Uint8Array {
  const parts: Buffer[] = [];
  const u32 = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    parts.push(bytes);
  };
  const u64 = (value: number) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    parts.push(bytes);
  };
  const text = (value: string) => {
    u64(Buffer.byteLength(value));
    parts.push(Buffer.from(value));
  };
  parts.push(Buffer.from("GGUF"));
  u32(3);
  u64(291);
  u64(Object.keys(values).length + 1);
  for (const [name, value] of Object.entries(values)) {
    text(name);
    u32(typeof value === "string" ? 8 : Array.isArray(value) ? 9 : 4);
    if (typeof value === "string") text(value);
    else if (Array.isArray(value)) {
      u32(4);
      u64(value.length);
      for (const each of value) u32(each);
    } else u32(value);
  }
  text("tokenizer.ggml.tokens");
  u32(9);
  u32(8);
  u64(150_000);
  text("a");
  return Buffer.concat(parts);
}

describe("bytes of cache per token", () => {
  test.each([
    ["grouped heads", QWEN3_8B, 2 * 36 * 8 * 128 * 2, 40_960],
    ["no head_dim", { ...QWEN3_8B, head_dim: undefined }, 2 * 36 * 8 * 128 * 2, 40_960],
    ["one level down", { vision_config: {}, text_config: QWEN3_8B }, 2 * 36 * 8 * 128 * 2, 40_960],
    [
      "latent attention",
      { ...QWEN3_8B, num_hidden_layers: 61, kv_lora_rank: 512, qk_rope_head_dim: 64 },
      61 * 576 * 2,
      40_960,
    ],
  ])("%s", (_, config, cacheBytesPerToken, contextTokensMax) => {
    expect(shapeOfConfig(config)).toEqual({ cacheBytesPerToken, contextTokensMax });
  });

  test("a config that does not say, or is none, is not guessed at", () => {
    for (const config of [{}, [], null, "x", { num_hidden_layers: "many" }, { num_hidden_layers: 3 }])
      expect(shapeOfConfig(config)).toBeNull();
  });

  test("a GGUF's own metadata, as far as its beginning goes", () => {
    const llama = {
      "general.architecture": "llama",
      "llama.block_count": 32,
      "llama.context_length": 131_072,
      "llama.embedding_length": 4096,
      "llama.attention.head_count": 32,
      "llama.attention.head_count_kv": 8,
    };
    const whole = { cacheBytesPerToken: 32 * 8 * 256 * 2, contextTokensMax: 131_072 };
    expect(shapeOfGguf(gguf(llama))).toEqual(whole);
    const perLayer = { ...llama, "llama.attention.head_count_kv": [8, 8, 0, 8] };
    expect(shapeOfGguf(gguf(perLayer))?.cacheBytesPerToken).toBe(24 * 256 * 2);
    expect(shapeOfGguf(gguf(llama).subarray(0, 90))).toBeNull();
    expect(shapeOfGguf(Buffer.from("not a GGUF"))).toBeNull();
  });
});

/** As their makers publish them on the hub. */
const PUBLISHED = {
  "Llama-3.1-8B": {
    ...{ num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, hidden_size: 4096 },
    max_position_embeddings: 131_072,
  },
  "Qwen2.5-7B": {
    ...{ num_hidden_layers: 28, num_attention_heads: 28, num_key_value_heads: 4, hidden_size: 3584 },
    // It has a window, which it does not use.
    ...{ max_position_embeddings: 32_768, sliding_window: 131_072, use_sliding_window: false },
  },
  "Mixtral-8x7B": {
    ...{ num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, hidden_size: 4096 },
    ...{ max_position_embeddings: 32_768, num_local_experts: 8, sliding_window: null },
  },
  "gpt-oss-20b": {
    ...{ num_hidden_layers: 24, num_attention_heads: 64, num_key_value_heads: 8, head_dim: 64 },
    ...{ hidden_size: 2880, max_position_embeddings: 131_072, sliding_window: 128 },
    layer_types: Array.from({ length: 24 }, (_, i) => (i % 2 ? "full_attention" : "sliding_attention")),
  },
  "Qwen3.5-27B": {
    text_config: {
      ...{ num_hidden_layers: 64, num_attention_heads: 24, num_key_value_heads: 4, head_dim: 256 },
      ...{ hidden_size: 5120, full_attention_interval: 4 },
      layer_types: Array.from({ length: 64 }, (_, i) => (i % 4 === 3 ? "full" : "linear")).map(
        (kind) => `${kind}_attention`,
      ),
    },
  },
};

test.each([
  // 128 KiB a token.
  ["Llama-3.1-8B", {}, 16_384],
  ["Llama-3.1-8B", { context_tokens: 8_192, slots: 4 }, 4_096],
  // 56 KiB a token.
  ["Qwen2.5-7B", {}, 1_792],
  // 128 KiB: its experts share the cache.
  ["Mixtral-8x7B", {}, 4_096],
  // 24 KiB in the half of its layers that see all of it, and 128 tokens in the others: 3,072 MiB and 3.
  ["gpt-oss-20b", {}, 3_075],
  ["gpt-oss-20b", { context_tokens: 100 }, 5],
  // 64 KiB in a quarter of its layers.
  ["Qwen3.5-27B", { context_tokens: 65_536 }, 4_096],
] as const)("the cache of %s with %p, by hand", (model, serving, cache_mb) => {
  const shape = shapeOfConfig(PUBLISHED[model]);
  expect(estimateOf({ weightsBytes: 0, shape }, serving).cache_mb).toBe(cache_mb);
});

test("an estimate has its parts; an unknown cache counts as nothing", () => {
  const shape = shapeOfConfig(QWEN3_8B);
  const weightsBytes = 16_384 * 1024 * 1024;
  expect(estimateOf({ weightsBytes, shape }, { context_tokens: 8_192, slots: 4 })).toEqual({
    ...{ weights_mb: 16_384, cache_mb: 4_608, overhead_mb: 600 + 820, total_mb: 22_412 },
    ...{ context_tokens: 8_192, slots: 4 },
  });
  expect(estimateOf({ weightsBytes, shape }, { gpu_count: 2 })).toMatchObject({
    ...{ cache_mb: 5_760, overhead_mb: 1_200 + 820, context_tokens: 40_960, slots: 1 },
  });
  expect(estimateOf({ weightsBytes, shape: null }, {})).toMatchObject({ cache_mb: null, total_mb: 17_804 });
});

test("a model split over GPUs has as much of each as the fullest one allows", () => {
  const gpu = (index: number, memory_free_mb: number | null) =>
    ({ index, memory_free_mb, memory_total_mb: null, memory_used_mb: null }) as GpuReport;
  const gpus = [gpu(0, 10), gpu(1, 90), gpu(2, null), gpu(3, 50)];
  expect(roomMb(gpus, {})).toBe(150);
  expect(roomMb(gpus, { gpu_count: 1 })).toBe(90);
  expect(roomMb(gpus, { gpu_count: 2 })).toBe(100);
  expect(roomMb(gpus, { gpu_count: 4 })).toBe(0);
  expect(roomMb(gpus, { gpus: [0, 3] })).toBe(20);
  expect(roomMb([], {})).toBeNull();
  expect(roomMb([gpu(0, null)], { gpu_count: 1 })).toBeNull();
});

test("context, slots and share of the GPUs reach the engine where they are given", () => {
  const given = {
    ...{ model_id: "m", model_path: "/w", port: "1", bind: "b", api_key: "k", data_dir: "/d" },
    gpus: [0, 1].map((index) => ({ index, memory_total_mb: 80_000, memory_free_mb: 80_000 }) as GpuReport),
  };
  const estimate = estimateOf({ weightsBytes: 0, shape: null }, {});
  const plan = planModel("acme/m", parseConfig("", "test"), {
    gpu_count: 1,
    context_tokens: 4_096,
    slots: 8,
  });
  const { command, env } = renderLaunch(plan, { ...given, estimate: { ...estimate, total_mb: 20_000 } });
  expect(command.slice(-6).join(" ")).toBe(
    "--max-model-len 4096 --max-num-seqs 8 --gpu-memory-utilization 0.25",
  );
  expect(env.CUDA_VISIBLE_DEVICES).toBe("0");
  const llama = parseConfig('[models.m]\nengine = "llama-cpp"\nurl = "http://h/m.gguf"\nslots = 2', "test");
  const options = planModel("m", llama, { context_tokens: 4_096 });
  expect(renderLaunch(options, given).command.slice(-4)).toEqual(["--ctx-size", "8192", "--parallel", "2"]);
});

test("what processes hold, summed over GPUs; the driver's words for nothing are none", () => {
  const csv =
    "4242, 1024\n4242, 2048\n17, [N/A]\n[Insufficient Permissions], 5\nNo running processes found\n";
  expect(parseProcessCsv(csv)).toEqual(new Map([[4242, 3072]]));
});
