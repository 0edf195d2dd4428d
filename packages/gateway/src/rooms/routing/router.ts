import type { Backend, CapabilityName, ModelInfo } from "../../backends/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type ErrorName, fail } from "../../kernel/errors.ts";
import { type Entry, modelsOf } from "./entry.ts";

const CONVERSATIONS_PINNED_MAX = 100_000;
const LATEST = ":latest";

const capabilityOf = {
  chat: (backend: Backend) => backend.chat !== undefined,
  embeddings: (backend: Backend) => backend.embed !== undefined,
  video: (backend: Backend) => backend.video !== undefined,
  realtime: (backend: Backend) => backend.realtime !== undefined,
  invoke: (backend: Backend) => backend.invoke !== undefined,
} satisfies Record<CapabilityName, (backend: Backend) => boolean>;

const unsupported: Record<CapabilityName, string> = {
  chat: "the backend does not support chat",
  embeddings: "the backend does not support embeddings",
  video: "the backend does not support video generation",
  realtime: "the model does not support realtime sessions",
  invoke: "the backend does not support generic invocation",
};

export interface RouteRequest {
  /** After alias resolution. */
  model: string;
  capability: CapabilityName;
  /** Backend name, kind or type; any case. */
  provider?: string | null;
  conversationId?: string | null;
  /** Backends that were tried for this request already. */
  exclude?: readonly Backend[];
}

/** One chosen backend. Exactly one of the three endings is reported; later ones do nothing. */
export class Route {
  #open = true;
  readonly #isTest: boolean;

  constructor(
    readonly entry: Entry,
    /** The model id as this backend lists it. */
    readonly model: string,
    readonly clock: Clock,
  ) {
    this.#isTest = entry.circuit.enter();
  }

  get backend(): Backend {
    return this.entry.backend;
  }
  get name(): string {
    return this.entry.config.name;
  }

  #end(): boolean {
    if (!this.#open) return false;
    this.#open = false;
    if (this.#isTest) this.entry.circuit.tested();
    return true;
  }
  succeeded(): void {
    if (this.#end()) this.entry.circuit.succeeded();
  }
  failed(cause: string): void {
    if (this.#end()) this.entry.circuit.failed(cause, this.clock.now());
  }
  /** The call ended without saying anything about the backend, e.g. because the client left. */
  abandoned(): void {
    this.#end();
  }
}

/** A model that can be called now, with the name of the first backend that serves it. */
export interface RoutableModel extends ModelInfo {
  owned_by: string;
}

interface Candidate {
  entry: Entry;
  model: ModelInfo;
}

const canServe = ({ entry, model }: Candidate, capability: CapabilityName): boolean =>
  capabilityOf[capability](entry.backend) && (model.capabilities?.includes(capability) ?? true);

/** Chooses the backend of a request among the registered ones. */
export class Router {
  readonly #pins = new BoundedMap<string, Entry>(CONVERSATIONS_PINNED_MAX);
  /** By requested model id; made anew after the list or a listing changed. */
  #index: Map<string, Candidate[]> | null = null;

  constructor(
    readonly entries: readonly Entry[],
    readonly clock: Clock,
  ) {}

  /** The list of backends, or what one of them serves, has changed. */
  changed(): void {
    this.#index = null;
  }

  #candidates(model: string): readonly Candidate[] {
    this.#index ??= indexByModel(this.entries);
    return this.#index.get(model) ?? [];
  }

  choose({ model, capability, provider, conversationId, exclude }: RouteRequest): Route {
    const nowMs = this.clock.now();
    const pinned = conversationId ? this.#pins.get(conversationId) : undefined;
    let best: Candidate | null = null;
    for (const candidate of this.#candidates(model)) {
      const { entry } = candidate;
      if (entry.state !== "Healthy" || !entry.circuit.canPass(nowMs)) continue;
      if (!canServe(candidate, capability) || exclude?.includes(entry.backend)) continue;
      if (provider && !matchesProvider(entry, provider)) continue;
      if (entry === pinned) {
        best = candidate;
        break;
      }
      if (best === null || entry.requests < best.entry.requests) best = candidate;
    }
    if (best === null) return this.#refuse(model, capability, provider);
    if (conversationId && best.entry !== pinned) this.#pins.set(conversationId, best.entry);
    best.entry.requests++;
    return new Route(best.entry, best.model.id, this.clock);
  }

  /** Why nobody was chosen. */
  #refuse(model: string, capability: CapabilityName, provider?: string | null): never {
    const refuse = (kind: ErrorName, message: string): never =>
      fail(capability === "video" ? "no_video_backend" : kind, message);
    const serving = this.#candidates(model).filter(
      ({ entry }) => !provider || matchesProvider(entry, provider),
    );
    if (serving.length === 0) refuse("model_not_found", `No backend available for model: ${model}`);
    const isAnyHealthy = serving.some(({ entry }) => entry.state === "Healthy");
    if (isAnyHealthy && !serving.some((candidate) => canServe(candidate, capability)))
      refuse("backend_error", `${model}: ${unsupported[capability]}`);
    return refuse("all_unhealthy", `all backends unhealthy for model: ${model}`);
  }

  /**
   * A backend that becomes routable starts just behind the least used one of those it shares a model with: it gets
   * the next request, and not every request until it has caught up.
   */
  joined(entry: Entry): void {
    const ids = new Set(modelsOf(entry).map(({ id }) => id));
    const peers = this.entries.filter(
      (other) =>
        other !== entry && other.state === "Healthy" && modelsOf(other).some(({ id }) => ids.has(id)),
    );
    if (peers.length === 0) return;
    entry.requests = Math.max(entry.requests, Math.min(...peers.map(({ requests }) => requests)) - 1);
  }

  /** Models of healthy backends with the name of the backend that was registered first with each. */
  routableModels(): RoutableModel[] {
    const known = new Map<string, RoutableModel>();
    for (const entry of this.entries) {
      if (entry.state !== "Healthy") continue;
      for (const model of modelsOf(entry))
        if (!known.has(model.id)) known.set(model.id, { ...model, owned_by: entry.config.name });
    }
    return [...known.values()];
  }
}

const matchesProvider = ({ config }: Entry, provider: string): boolean => {
  const wanted = provider.trim().toLowerCase();
  return [config.name, config.kind, config.type].some((name) => name.toLowerCase() === wanted);
};

function indexByModel(entries: readonly Entry[]): Map<string, Candidate[]> {
  const index = new Map<string, Candidate[]>();
  const add = (requested: string, candidate: Candidate) => {
    const known = index.get(requested);
    if (!known) index.set(requested, [candidate]);
    else if (!known.some(({ entry }) => entry === candidate.entry)) known.push(candidate);
  };
  for (const entry of entries) {
    const models = modelsOf(entry);
    for (const model of models) add(model.id, { entry, model });
    // After the exact ids: a bare listing goes before the tagged one of the same backend.
    for (const model of models) {
      if (model.id.endsWith(LATEST)) add(model.id.slice(0, -LATEST.length), { entry, model });
    }
  }
  return index;
}
