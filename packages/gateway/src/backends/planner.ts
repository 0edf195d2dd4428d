import type { BackendKind } from "./contract.ts";

/** Which vendor's task API a `cloud-video` backend speaks. */
export type VideoDialect = "minimax" | "dashscope" | "kling" | "seedance";

export type Plan =
  | { kind: BackendKind; dialect?: VideoDialect }
  /** A type that existed once; the message says what to use instead. */
  | { removed: string };

const video = (dialect: VideoDialect): Plan => ({ kind: "cloud-video", dialect });

const PLANS = new Map<string, Plan>([
  ["external", { kind: "external" }],
  ["local-server", { kind: "local-server" }],
  ["engine", { kind: "engine" }],
  // Without a vendor's name the dialect follows from the host.
  ["cloud-video", { kind: "cloud-video" }],
  ["cloud-realtime", { kind: "cloud-realtime" }],
  ...["llama_cpp", "vllm", "sglang", "lmstudio", "tgi", "cloud", "external_api"].map(
    (name): [string, Plan] => [name, { kind: "external" }],
  ),
  ...["ollama", "ollama-like"].map((name): [string, Plan] => [name, { kind: "local-server" }]),
  ...["candle", "native"].map((name): [string, Plan] => [name, { kind: "engine" }]),
  ...(["minimax", "dashscope", "kling", "seedance"] as const).map((name): [string, Plan] => [
    name,
    video(name),
  ]),
  [
    "comfyui",
    {
      removed:
        "The comfyui backend was removed: register a cloud-video backend, or an engine that declares the video capability",
    },
  ],
]);

/** The names that `type` may have, without the removed ones; for error messages and documents. */
export const backendTypes: readonly string[] = [...PLANS].flatMap(([name, plan]) =>
  "kind" in plan ? [name] : [],
);

/** What an operator's `type` stands for: a kind itself or an engine's name. Null when it is neither. */
export function plan(type: string): Plan | null {
  return PLANS.get(type.trim().toLowerCase()) ?? null;
}
