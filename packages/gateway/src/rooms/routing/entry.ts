import type {
  Backend,
  BackendConfig,
  BackendKind,
  HealthState,
  ModelInfo,
  ModelSource,
  ProbeResult,
} from "../../backends/contract.ts";
import { Circuits } from "./circuit.ts";

export interface TimedProbe extends ProbeResult {
  latencyMs: number;
}

interface PastProbe extends Pick<TimedProbe, "state" | "latencyMs"> {
  atMs: number;
  detail: string | null;
}

/** A line of a batch, which only gets idle capacity. */
export interface Background {
  isStopped: boolean;
  /** Called when a live call needs its place. */
  stop(): void;
  /** Only a backend is chosen; nothing is sent. */
  isDry?: boolean;
}

interface Suspicion {
  /** Since the backend was registered, or this process started. */
  count: number;
  problem: string;
  requestId: string;
  atMs: number;
}

export interface Entry {
  /** As registered: with a bridge URL, which `backend` replaces by the tunnel's address. */
  config: BackendConfig;
  /** The registration index: the same on every instance, and never reused. */
  index: number;
  backend: Backend;
  modelSources: readonly ModelSource[];
  /** It is in the database, so every instance has it. */
  persisted: boolean;
  isAdopted: boolean;
  isOwn: boolean;
  /** It gets no requests for a model that a backend serves which does not yield. */
  yields: boolean;
  state: HealthState;
  detail: string | null;
  probedAtMs: number | null;
  probes: PastProbe[];
  discovered: readonly ModelInfo[];
  circuits: Circuits;
  /** Sent to it, or credited so that a new backend is not flooded. */
  requests: number;
  inFlight: number;
  /** The lines of batches among them. */
  lines: Set<Background>;
  /** How many calls it takes, once it has refused one because it was full; then this grows again. Null: unknown. */
  takes: number | null;
  /** Mean time to the first byte; null: not measured yet. */
  latencyMs: number | null;
  suspicion: Suspicion | null;
  /** Null while it serves, and is probed with the others. */
  nextProbeMs: number | null;
  stopWatching: (() => void) | null;
  removed: boolean;
}

/** Not routable until a probe succeeds. */
export const newEntry = (
  { modelSources, isOwn }: Pick<BackendKind, "modelSources" | "isOwn">,
  given: Pick<Entry, "config" | "index" | "backend"> & Partial<Entry>,
): Entry => ({
  modelSources,
  persisted: false,
  isAdopted: false,
  isOwn: given.isAdopted === true || isOwn?.(given.config) === true,
  yields: false,
  state: "Unhealthy",
  detail: "not probed yet",
  probedAtMs: null,
  probes: [],
  discovered: [],
  circuits: new Circuits(),
  requests: 0,
  inFlight: 0,
  lines: new Set(),
  takes: null,
  latencyMs: null,
  suspicion: null,
  nextProbeMs: null,
  stopWatching: null,
  removed: false,
  ...given,
});

export const isServing = ({ state, circuits }: Entry, nowMs: number): boolean =>
  state === "Healthy" && !circuits.isLost(nowMs);

/** Its kind determines the order of the models, and which source of a model counts. */
export function modelsOf({ config, discovered, modelSources }: Entry): ModelInfo[] {
  const lists = { static: config.models.map((id): ModelInfo => ({ id })), discovered };
  const byId = new Map<string, ModelInfo>();
  for (const model of modelSources.flatMap((source) => lists[source])) {
    const known = byId.get(model.id);
    if (!known) byId.set(model.id, model);
    else if (model.meta) byId.set(model.id, { ...known, meta: known.meta ?? model.meta });
  }
  return [...byId.values()];
}
