/**
 * Engine templates that need no configuration. The key that guards an engine is passed in its environment
 * where the engine allows it, because arguments are visible to every user of the machine.
 */
import type { z } from "zod";
import type { EngineTemplate } from "../config.ts";

export const DEFAULT_ENGINES: Record<string, z.input<typeof EngineTemplate>> = {
  "llama-cpp": {
    command: [
      "llama-server",
      ...["--model", "{model_path}"],
      ...["--alias", "{model_id}"],
      ...["--host", "{bind}"],
      ...["--port", "{port}"],
    ],
    env: { LLAMA_API_KEY: "{api_key}" },
    weights: "gguf",
    // Its context is shared by all slots.
    context_args: ["--ctx-size", "{context_total}"],
    slots_args: ["--parallel", "{slots}"],
  },
  vllm: {
    command: [
      ...["vllm", "serve", "{model_path}"],
      ...["--served-model-name", "{model_id}"],
      ...["--host", "{bind}"],
      ...["--port", "{port}"],
      ...["--tensor-parallel-size", "{gpu_count}"],
    ],
    env: { VLLM_API_KEY: "{api_key}" },
    context_args: ["--max-model-len", "{context_tokens}"],
    slots_args: ["--max-num-seqs", "{slots}", "--gpu-memory-utilization", "{gpu_share}"],
    ready_timeout_s: 1800,
  },
  sglang: {
    command: [
      ...["python3", "-m", "sglang.launch_server"],
      ...["--model-path", "{model_path}"],
      ...["--served-model-name", "{model_id}"],
      ...["--host", "{bind}"],
      ...["--port", "{port}"],
      ...["--tp-size", "{gpu_count}"],
      ...["--api-key", "{api_key}"],
    ],
    context_args: ["--context-length", "{context_tokens}"],
    slots_args: ["--max-running-requests", "{slots}", "--mem-fraction-static", "{gpu_share}"],
    ready_timeout_s: 1800,
  },
  ollama: {
    command: ["ollama", "serve"],
    env: {
      OLLAMA_HOST: "{bind}:{port}",
      OLLAMA_MODELS: "{data_dir}/ollama",
      OLLAMA_KEEP_ALIVE: "-1",
    },
    health_path: "/api/version",
    weights: "none",
    after_start: [["ollama", "pull", "{model_id}"]],
    ready_timeout_s: 3600,
  },
};
