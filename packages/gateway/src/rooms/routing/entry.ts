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

/** What a probe found and how long it took. */
export interface TimedProbe extends ProbeResult {
  latencyMs: number;
}

interface PastProbe extends Pick<TimedProbe, "state" | "latencyMs"> {
  atMs: number;
  detail: string | null;
}

/** A call that nobody waits for: it takes only what is idle. */
export interface Background {
  isStopped: boolean;
  /** A live call needs its place. */
  stop(): void;
  /** Nothing is sent: only the backend is wanted. */
  isDry?: boolean;
}

interface Suspicion {
  /** How often, since the backend was registered or this process began. */
  count: number;
  problem: string;
  requestId: string;
  atMs: number;
}

export interface Entry {
  /** As registered: a bridge URL stays one here, and `backend` talks to the resolved address. */
  config: BackendConfig;
  /** Its registration index: the same on every instance, and never another backend's. */
  index: number;
  backend: Backend;
  modelSources: readonly ModelSource[];
  /** Whether its row is in the database, and so every instance has it. */
  persisted: boolean;
  isAdopted: boolean;
  isOwn: boolean;
  /** It gets no request for a model that a backend which does not yield serves. */
  yields: boolean;
  state: HealthState;
  detail: string | null;
  probedAtMs: number | null;
  probes: PastProbe[];
  discovered: readonly ModelInfo[];
  circuits: Circuits;
  /** Requests sent to it, or credited so that a new backend is not flooded. */
  requests: number;
  inFlight: number;
  /** Those of them that are lines of batches. */
  lines: Set<Background>;
  /** It has refused a call because it was full: as many as it had then, and more by and by; null: it has not. */
  takes: number | null;
  /** Mean time to the first byte; null until it was measured. */
  latencyMs: number | null;
  suspicion: Suspicion | null;
  /** When it is looked at next; null while it serves, and is looked at with the others. */
  nextProbeMs: number | null;
  stopWatching: (() => void) | null;
  removed: boolean;
}

/** Fail-closed: not routable until a probe says that it is. */
export const newEntry = (
  { modelSources, isOwn }: Pick<BackendKind, "modelSources" | "isOwn">,
  {
    isAdopted = false,
    yields = false,
    ...given
  }: Pick<Entry, "config" | "index" | "backend" | "persisted"> & Partial<Pick<Entry, "isAdopted" | "yields">>,
): Entry => ({
  ...given,
  modelSources,
  isAdopted,
  isOwn: isAdopted || isOwn?.(given.config) === true,
  yields,
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
});

/** Whether it needs no probes before the next round. */
export const isServing = ({ state, circuits }: Entry, nowMs: number): boolean =>
  state === "Healthy" && !circuits.isLost(nowMs);

/** The models that an entry serves, in the order and by the precedence that its kind has. */
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
