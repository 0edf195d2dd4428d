/** From a model id to what has to be fetched and started for it. */

import type { Estimate, GpuReport, ServingOptions } from "@model-gateway/protocol/agent.ts";
import type { AgentConfig, EngineTemplate, ModelEntry } from "../config.ts";
import { ModelEntry as ModelEntrySchema } from "../config.ts";
import { parseHubId, safeRelativePath } from "../weights/hub.ts";
import { fileNameOf, type WeightsSource } from "../weights/store.ts";
import { render, renderEnv, type TemplateVariables } from "./render.ts";

export interface EnginePlan {
  engineName: string;
  template: EngineTemplate;
  entry: ModelEntry;
  /** What to download; null when nothing has to be. */
  source: WeightsSource | null;
  readyTimeoutMs: number;
  /** Whether the engine is guarded by the key that the node makes for it. */
  usesApiKey: boolean;
}

/** Decides how a model is served. Throws an error that says what to add to the configuration. */
export function planModel(modelId: string, config: AgentConfig, options: ServingOptions = {}): EnginePlan {
  const listed = Object.hasOwn(config.models, modelId) ? config.models[modelId] : undefined;
  const entry = { ...(listed ?? ModelEntrySchema.parse({})), ...options };
  if (options.gpu_count !== undefined) delete entry.gpus;
  const engineName = entry.engine ?? engineFor(modelId, entry, config);
  const template = config.engines[engineName];
  if (!template) throw new Error(`no engine "${engineName}" is configured for ${modelId}`);
  if (!listed && !config.allow_unlisted)
    throw new Error(
      `${modelId} is not listed on this node: add [models."${modelId}"], or allow_unlisted = true`,
    );
  return {
    engineName,
    template,
    entry,
    source: sourceOf(modelId, entry, template),
    readyTimeoutMs: (entry.ready_timeout_s ?? template.ready_timeout_s) * 1000,
    usesApiKey: JSON.stringify([template, entry.args, entry.env]).includes("{api_key}"),
  };
}

/** A GGUF of the hub is for llama.cpp; an engine that takes whole repositories would get every file of it. */
function engineFor(modelId: string, entry: ModelEntry, { default_engine, engines }: AgentConfig): string {
  const { hub, url, files, path } = entry;
  const from = url || files || path ? null : parseHubId(hub ?? modelId);
  const isGguf = from !== null && (from.variant !== null || /-gguf$/i.test(from.repo));
  return isGguf && engines[default_engine]?.weights === "snapshot" ? "llama-cpp" : default_engine;
}

function sourceOf(modelId: string, entry: ModelEntry, template: EngineTemplate): WeightsSource | null {
  if (entry.path) return null;
  const files = entry.url ? [{ url: entry.url, sha256: entry.sha256 }] : entry.files;
  if (files)
    return {
      kind: "files",
      files: files.map((file) => ({
        url: file.url,
        sha256: file.sha256 ?? null,
        name: checkedName(("name" in file ? file.name : undefined) ?? fileNameOf(file.url)),
      })),
    };
  if (template.weights === "none") return null;
  const hub = parseHubId(entry.hub ?? modelId);
  if (!hub)
    throw new Error(
      `where are the weights of ${modelId}? It is no hub id (owner/name): give hub, url, files or path under [models."${modelId}"]`,
    );
  const { repo, variant } = hub;
  return {
    kind: "hub",
    repo,
    variant,
    revision: entry.revision,
    include: entry.include ?? null,
    format: template.weights,
  };
}

function checkedName(name: string): string {
  const safe = safeRelativePath(name);
  if (!safe) throw new Error(`files.name: ${JSON.stringify(name)} leaves the weights folder`);
  return safe;
}

/** The GPUs that a model is given; null leaves the choice to the engine. */
export function chooseGpus(entry: ModelEntry, gpus: GpuReport[]): number[] | null {
  if (entry.gpus) return entry.gpus;
  if (entry.gpu_count === undefined) return null;
  if (gpus.length < entry.gpu_count)
    throw new Error(`gpu_count = ${entry.gpu_count}, but this node sees ${gpus.length} GPUs`);
  const mostFreeFirst = [...gpus].sort((a, b) => (b.memory_free_mb ?? 0) - (a.memory_free_mb ?? 0));
  return mostFreeFirst
    .slice(0, entry.gpu_count)
    .map(({ index }) => index)
    .sort((a, b) => a - b);
}

export interface Launch {
  command: string[];
  env: Record<string, string>;
  afterStart: string[][];
}

/** For an engine that takes its share of a GPU whatever it needs, where nobody knows what that is. */
const GPU_SHARE_DEFAULT = 0.9;
const GPU_SHARE_MAX = 0.95;

function shareOf(estimate: Estimate | null, used: readonly GpuReport[]): number {
  const totalMb = used.reduce((sum, { memory_total_mb }) => sum + (memory_total_mb ?? 0), 0);
  if (estimate === null || totalMb === 0) return GPU_SHARE_DEFAULT;
  return Math.min(GPU_SHARE_MAX, estimate.total_mb / totalMb);
}

type Given = "model_id" | "model_path" | "port" | "bind" | "api_key" | "data_dir";

export function renderLaunch(
  plan: EnginePlan,
  {
    gpus,
    estimate = null,
    ...rest
  }: Record<Given, string> & { gpus: GpuReport[]; estimate?: Estimate | null },
): Launch {
  const { template, entry } = plan;
  const { context_tokens = 0, slots = 1 } = entry;
  const chosenGpus = chooseGpus(entry, gpus);
  const used = chosenGpus ? gpus.filter(({ index }) => chosenGpus.includes(index)) : gpus;
  const variables: TemplateVariables = {
    ...rest,
    gpus: chosenGpus?.join(",") ?? "",
    gpu_count: String(chosenGpus?.length ?? Math.max(1, gpus.length)),
    gpu_share: shareOf(estimate, used).toFixed(2),
    context_tokens: String(context_tokens),
    context_total: String(context_tokens * slots),
    slots: String(slots),
  };
  const all = (texts: string[]) => texts.map((text) => render(text, variables));
  const { context_args = [], slots_args = [] } = template;
  const limits = [...(entry.context_tokens ? context_args : []), ...(entry.slots ? slots_args : [])];
  return {
    command: all([...template.command, ...limits, ...entry.args]),
    env: {
      ...(chosenGpus ? { CUDA_VISIBLE_DEVICES: variables.gpus } : {}),
      ...renderEnv(template.env, variables),
      ...renderEnv(entry.env, variables),
    },
    afterStart: template.after_start.map(all),
  };
}
