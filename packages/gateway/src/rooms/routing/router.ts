import {
  type Backend,
  CAPABILITIES,
  type CapabilityName,
  type DialectName,
  type ModelInfo,
} from "../../backends/contract.ts";
import { nearestTo } from "../../kernel/affinity.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type ErrorName, fail, ServiceError } from "../../kernel/errors.ts";
import { ALL, type Circuit, type CircuitBoard } from "./circuit.ts";
import { type Background, type Entry, modelsOf } from "./entry.ts";
import type { RouteTarget } from "./model-routes.ts";
import {
  type Ability,
  payerIdOf,
  type QueuePlace,
  Route,
  type RouteReason,
  type RouteRequest,
} from "./route.ts";

const LATEST = ":latest";
/** How many calls wait for a backend with a free place, and for how long. */
const WAITING_MAX = 4_096;
const WAIT_MS_MAX = 60_000;
/** How often a backend that was full gets one more call. */
const FULL_RETRY_MS = 100;
/** How many lines of batches run on a backend whose limit is unknown. */
const IDLE_PLACES = 8;
/** How long calls wait for the first probes after a start or a registration. */
const FIRST_PROBES_MS = 5_000;
export const BUSY_RETRY_SECONDS = 1;
/** Chooses the backend with the fewest requests, or the one that answers fastest. */
export type BackendChoice = "requests" | "latency";

export class AllBusy extends ServiceError {
  constructor(model: string) {
    super("busy", `Every backend of ${model} has as many calls as it takes at once; try again`, {
      retryAfterSeconds: BUSY_RETRY_SECONDS,
    });
  }
}

interface QueuedRequest {
  request: RouteRequest;
  /** Two calls with the same text can be served by the same backends. */
  asked: string;
  key: string;
  turn: QueuePlace;
  resolve(route: Route): void;
  reject(error: unknown): void;
  cancel(): void;
}

function canDo(backend: Backend, ability: Ability): boolean {
  switch (ability) {
    case "chat":
    case "video":
    case "realtime":
    case "invoke":
      return backend[ability] !== undefined;
    case "text_completion":
      return backend.chat !== undefined && backend.post !== undefined;
    case "embeddings":
      return backend.embed !== undefined;
    default:
      return backend.post !== undefined && backend.posts?.includes(ability) === true;
  }
}

const unsupported: Record<Ability, string> = {
  chat: "the backend does not support chat",
  text_completion: "the backend does not support text completions",
  embeddings: "the backend does not support embeddings",
  video: "the backend does not support video generation",
  realtime: "the model does not support realtime sessions",
  invoke: "the backend does not support generic invocation",
  images: "the backend does not support images",
  speech: "the backend does not support speech",
  transcription: "the backend does not support transcriptions",
  rerank: "the backend does not support reranking",
  moderation: "the backend does not support moderations",
};

type Circuitry = Pick<CircuitBoard, "tell" | "claim">;
const ALONE: Circuitry = { tell: (entry, event) => void entry.circuits.apply(event), claim: null };
export interface RoutableModel extends ModelInfo {
  /** The name of the first backend that serves it. */
  owned_by: string;
  available: boolean;
}

const SHUT = "shut";

interface Candidate {
  entry: Entry;
  model: ModelInfo;
}

const canServe = ({ entry, model }: Candidate, ability: Ability): boolean =>
  canDo(entry.backend, ability) &&
  (model.capabilities?.includes(ability === "text_completion" ? "chat" : ability) ?? true);

export class Router {
  /** By requested model id; rebuilt after backends or their models change. */
  #index: Map<string, Candidate[]> | null = null;
  /** In the order in which they get a place. */
  #waiting: QueuedRequest[] = [];
  /** The round of the last request that got a place. */
  #round = 0;

  constructor(
    readonly entries: readonly Entry[],
    readonly clock: Clock,
    readonly circuitry: Circuitry = ALONE,
    readonly choice: BackendChoice = "requests",
  ) {}

  changed(): void {
    this.#index = null;
    this.freed();
  }

  /** How long a refused request may wait: its backend is busy, or may not have been probed yet. */
  waitMsFor({ model }: RouteRequest, refusal: unknown): number {
    if (refusal instanceof AllBusy) return WAIT_MS_MAX;
    const listing = this.#candidates(model).map(({ entry }) => entry);
    const mayServe = listing.length > 0 ? listing : this.entries;
    return mayServe.some(({ probedAtMs }) => probedAtMs === null) ? FIRST_PROBES_MS : 0;
  }

  /** Waits if every backend that could serve the request is full. */
  acquire(request: RouteRequest): Route | Promise<Route> {
    return this.withTurns([request], () => {
      try {
        return this.choose(request);
      } catch (error) {
        const waitMs = this.waitMsFor(request, error);
        if (waitMs === 0 || request.background) throw error;
        return this.#wait(request, waitMs, error);
      }
    });
  }

  /** While `choose` runs, the requests may be test calls of open circuits, unless another instance sends these. */
  withTurns<T>(requests: readonly RouteRequest[], choose: () => T | Promise<T>): T | Promise<T> {
    const { claim } = this.circuitry;
    const due = claim === null ? [] : requests.flatMap((request) => this.#tests(request));
    return claim === null || due.length === 0 ? choose() : this.#claimed(due, claim, choose);
  }

  #tests(request: RouteRequest): { entry: Entry; circuit: Circuit }[] {
    return this.#eligible(request).flatMap((candidate) => {
      const circuit = this.#barrier(candidate, payerIdOf(request));
      return circuit === null || circuit === SHUT ? [] : { entry: candidate.entry, circuit };
    });
  }

  async #claimed<T>(
    due: readonly { entry: Entry; circuit: Circuit }[],
    claim: NonNullable<Circuitry["claim"]>,
    choose: () => T | Promise<T>,
  ): Promise<T> {
    const claims = due.map(async ({ entry, circuit }) => ((await claim(entry, circuit)) ? circuit : []));
    const granted = (await Promise.all(claims)).flat();
    for (const circuit of granted) circuit.isGranted = true;
    try {
      return choose();
    } finally {
      for (const circuit of granted) circuit.isGranted = false;
    }
  }

  #wait(request: RouteRequest, waitMs: number, refusal: unknown): Promise<Route> {
    const nowMs = this.clock.elapsed();
    const key = request.payer?.keyId ?? payerIdOf(request);
    const last = this.#waiting.findLast((each) => each.key === key);
    const turn: QueuePlace = {
      round: Math.max(this.#round, last?.turn.round ?? 0) + 1,
      untilMs: nowMs + waitMs,
      ...request.turn,
    };
    if (request.turn && refusal instanceof AllBusy) Object.assign(request.turn, turn);
    if (turn.untilMs <= nowMs) throw refusal;
    return new Promise((resolve, reject) => {
      const cancel = this.clock.after(turn.untilMs - nowMs, () => {
        this.#waiting = this.#waiting.filter((each) => each !== waiting);
        reject(refusal);
      });
      const { model, capability, provider, backend, payer } = request;
      const asked = JSON.stringify([model, capability, provider, backend, payer?.groupId ?? payer?.userId]);
      const waiting: QueuedRequest = { request, asked, key, turn, resolve, reject, cancel };
      const at = this.#waiting.findLastIndex((each) => each.turn.round <= turn.round);
      this.#waiting.splice(at + 1, 0, waiting);
      if (this.#waiting.length <= WAITING_MAX) return;
      // The last one: the latest call of the key with the most waiting calls.
      const dropped = this.#waiting.pop()!;
      dropped.cancel();
      dropped.reject(new AllBusy(dropped.request.model));
    });
  }

  /** A backend refused a call because it is full: other calls wait until one ends, or it is tried again. */
  full(entry: Entry): void {
    for (const line of entry.lines) line.stop();
    const isKnown = entry.takes !== null;
    entry.takes = entry.inFlight;
    if (!isKnown) this.#tryMore(entry);
    this.freed();
  }

  #tryMore(entry: Entry): void {
    this.clock.after(FULL_RETRY_MS, () => {
      if (this.#waiting.length === 0 || entry.removed) entry.takes = null;
      if (entry.takes === null) return;
      entry.takes++;
      this.#tryMore(entry);
      this.freed();
    });
  }

  /** A backend may have a free place or may have become healthy: the queue is served in its order. */
  freed(): void {
    if (this.#waiting.length === 0) return;
    const before = this.#waiting;
    this.#waiting = [];
    /** Nothing has room for these, so that a long queue is not checked one by one. */
    const busy = new Set<string>();
    const still = before.filter(({ request, asked, turn, cancel, resolve, reject }) => {
      if (busy.has(asked)) return true;
      try {
        const route = this.choose(request);
        this.#round = Math.max(this.#round, turn.round);
        cancel();
        resolve(route);
      } catch (error) {
        if (error instanceof AllBusy) busy.add(asked);
        if (this.waitMsFor(request, error) > 0) return true;
        cancel();
        reject(error);
      }
      return false;
    });
    this.#waiting = [...still, ...this.#waiting];
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  canChoose(request: RouteRequest): boolean {
    return this.#find(request).best !== null;
  }

  /** The first backend that takes chats for a target of a model route. */
  serverOf({ model, backend }: RouteTarget): string | null {
    const serving = this.#eligible({ model, backend, capability: "chat" });
    return serving.find((each) => this.#barrier(each, ALL) !== SHUT)?.entry.config.name ?? null;
  }

  #candidates(model: string): readonly Candidate[] {
    this.#index ??= indexByModel(this.entries);
    return this.#index.get(model) ?? [];
  }

  /** The first backend that lists the model and does not yield, healthy or not. */
  ownerOf(model: string): string | null {
    return this.#candidates(model).find(({ entry }) => ownsModels(entry))?.entry.config.name ?? null;
  }

  backendsOf({ model: asked, backend: hint }: RouteTarget): { name: string; serving: boolean }[] {
    return this.#candidates(asked).flatMap(({ entry, model }) =>
      hint && !matchesProvider(entry, hint)
        ? []
        : {
            name: entry.config.name,
            serving: entry.state === "Healthy" && this.#barrier({ entry, model }, ALL) !== SHUT,
          },
    );
  }

  /** Chooses for work that is sent later, but counts it now, so that many at once are spread. */
  foresee(request: RouteRequest): { backend: Backend; model: string; reason: RouteReason } {
    const { best, isBusy, count } = this.#find(request, true);
    if (best === null) return this.#refuse(request, isBusy);
    best.entry.requests++;
    const reason = this.#reason(request, { isBound: false, count });
    return { backend: best.entry.backend, model: best.model.id, reason };
  }

  choose(request: RouteRequest): Route {
    const { best, tests, isBusy, count } = this.#find(request);
    if (best === null) return this.#refuse(request, isBusy);
    const { background } = request;
    if (!background) makeRoom(best.entry);
    if (!request.isForeseen && !background) best.entry.requests++;
    const isBound = best.entry.config.name === request.boundTo;
    return new Route(best.entry, best.model.id, this, {
      reason: this.#reason(request, { isBound, count }),
      payer: payerIdOf(request),
      tests,
      rebinds: this.#rebinds(request),
      background,
    });
  }

  /** A conversation moves only when its backend is away, not for a hint or a model that its backend lacks. */
  #rebinds(request: RouteRequest): boolean {
    const { model, boundTo } = request;
    if (!boundTo) return boundTo === null;
    const entry = this.entries.find(({ config }) => config.name === boundTo);
    const isThere = entry?.state === "Healthy";
    return !isThere || this.#barrier({ entry, model: { id: model } }, payerIdOf(request)) === SHUT;
  }

  #reason(
    { exclude, isTarget, provider, session }: RouteRequest,
    { isBound, count }: { isBound: boolean; count: number },
  ): RouteReason {
    if (exclude && exclude.length > 0) return "fallback";
    if (isBound) return "conversation";
    if (provider) return "provider_asked_for";
    if (isTarget) return "model_route";
    if (count === 1) return "only_backend";
    if (session?.() != null) return "session";
    return this.choice === "requests" ? "fewest_requests" : "fastest";
  }

  capabilitiesOf(model: string): CapabilityName[] {
    const candidates = this.#candidates(model);
    const does = (each: Candidate, capability: CapabilityName) =>
      canServe(each, capability) && !(capability === "video" && each.entry.backend.mayMakeVideos);
    return CAPABILITIES.filter((capability) => candidates.some((each) => does(each, capability)));
  }

  /** Whether a backend that lists the model takes the dialect's requests unchanged. */
  speaks(model: string, dialect: DialectName): boolean {
    return this.#candidates(model).some(({ entry }) => entry.backend.native?.has(dialect));
  }

  isOwn(model: string): boolean {
    return this.isListed(model) && this.#candidates(model).every(({ entry }) => entry.isOwn);
  }

  isListed(model: string): boolean {
    return this.#candidates(model).length > 0;
  }

  /** The circuit that the call would test. Null: no circuit is open; `SHUT`: the call may not be sent. */
  #barrier({ entry, model }: Candidate, payer: string): Circuit | typeof SHUT | null {
    const barriers = entry.circuits.barriers(model.id, payer);
    if (barriers.length === 0) return null;
    const nowMs = this.clock.now();
    return barriers.every((circuit) => circuit.isDue(nowMs)) ? barriers[0]! : SHUT;
  }

  /** Healthy backends that can serve the request, even with open circuits. */
  #eligible({ model, capability, provider, backend, exclude, background }: RouteRequest): Candidate[] {
    return this.#candidates(model).filter(
      (candidate) =>
        candidate.entry.state === "Healthy" &&
        (!background || takesLines(candidate.entry)) &&
        canServe(candidate, capability) &&
        !exclude?.some((route) => isSame(route, candidate)) &&
        (!provider || matchesProvider(candidate.entry, provider)) &&
        (!backend || matchesProvider(candidate.entry, backend)),
    );
  }

  /** `isForLater`: nothing is sent now, so it does not matter which instance may send a test call. */
  #find(request: RouteRequest, isForLater = false) {
    const payer = payerIdOf(request);
    let open: { candidate: Candidate; tests: Circuit | null }[] = [];
    let isBusy = false;
    for (const candidate of this.#eligible(request)) {
      const { entry } = candidate;
      const barrier = this.#barrier(candidate, payer);
      if (barrier === SHUT) continue;
      const isOthers = barrier !== null && this.circuitry.claim !== null && !barrier.isGranted;
      if (isOthers && !isForLater) continue;
      if (isFull(entry, request.background)) {
        isBusy = true;
        continue;
      }
      const isFirst = entry.config.name === request.boundTo || barrier?.isGranted;
      if (isFirst) return { best: candidate, tests: barrier, isBusy, count: open.length + 1 };
      open.push({ candidate, tests: barrier });
    }
    if (request.background && open.some(({ candidate }) => candidate.entry.isAdopted))
      open = open.filter(({ candidate }) => candidate.entry.isAdopted);
    const session = open.length > 1 ? (request.session?.() ?? null) : null;
    const chosen =
      session === null
        ? open.reduce(
            (best, each) => (this.#isBetter(each.candidate.entry, best!.candidate.entry) ? each : best),
            open[0],
          )
        : nearestTo(session, open, ({ candidate: { entry } }) => ({
            name: entry.config.name,
            inFlight: entry.inFlight,
          }));
    const { candidate: best = null, tests = null } = chosen ?? {};
    return { best, tests, isBusy, count: open.length };
  }

  #isBetter(one: Entry, other: Entry): boolean {
    if (this.choice === "requests") return one.requests < other.requests;
    const [oneMs, otherMs] = [expectedMs(one), expectedMs(other)];
    return oneMs === otherMs ? one.requests < other.requests : oneMs < otherMs;
  }

  #refuse(request: RouteRequest, isBusy: boolean): never {
    const { model, capability, provider, backend } = request;
    if (isBusy) throw new AllBusy(model);
    const refuse = (kind: ErrorName, message: string): never =>
      fail(capability === "video" ? "no_video_backend" : kind, message);
    const serving = this.#candidates(model).filter(({ entry }) =>
      [provider, backend].every((hint) => !hint || matchesProvider(entry, hint)),
    );
    if (serving.length === 0) refuse("model_not_found", `No backend available for model: ${model}`);
    if (request.background && !serving.some(({ entry }) => takesLines(entry)))
      refuse("app_error", `No backend of ${model} takes batches; an administrator can let one (\`batches\`)`);
    const isAnyHealthy = serving.some(({ entry }) => entry.state === "Healthy");
    if (isAnyHealthy && !serving.some((candidate) => canServe(candidate, capability)))
      refuse("backend_error", `${model}: ${unsupported[capability]}`);
    if (capability === "video") refuse("no_video_backend", `all backends unhealthy for model: ${model}`);
    const retryAfterSeconds = this.#secondsUntilRetry(serving, payerIdOf(request));
    return fail("all_unhealthy", `all backends unhealthy for model: ${model}`, { retryAfterSeconds });
  }

  #secondsUntilRetry(serving: readonly Candidate[], payer: string): number {
    const nowMs = this.clock.now();
    const times = serving.flatMap(({ entry, model }) => {
      const barriers = entry.state === "Healthy" ? entry.circuits.barriers(model.id, payer) : [];
      const testMs = barriers.length > 0 ? Math.max(...barriers.map((each) => each.openUntilMs!)) : null;
      return [entry.nextProbeMs, testMs].filter((timeMs) => timeMs !== null);
    });
    const firstMs = times.length > 0 ? Math.min(...times) : nowMs;
    return Math.max(1, Math.ceil((firstMs - nowMs) / 1000));
  }

  /** A backend that becomes routable is credited almost the requests of the least used one, so that it is not flooded. */
  joined(entry: Entry): void {
    const ids = new Set(modelsOf(entry).map(({ id }) => id));
    const peers = this.entries.filter(
      (other) =>
        other !== entry && other.state === "Healthy" && modelsOf(other).some(({ id }) => ids.has(id)),
    );
    if (peers.length === 0) return;
    entry.requests = Math.max(entry.requests, Math.min(...peers.map(({ requests }) => requests)) - 1);
  }

  routableModels(): RoutableModel[] {
    const models = new Map<string, RoutableModel>();
    for (const entry of this.entries) {
      if (entry.state !== "Healthy") continue;
      for (const model of modelsOf(entry)) {
        const canPass = this.#barrier({ entry, model }, ALL) !== SHUT;
        if (entry.yields && this.ownerOf(model.id) !== null) continue;
        const known = models.get(model.id);
        if (!known) models.set(model.id, { ...model, owned_by: entry.config.name, available: canPass });
        else known.available ||= canPass;
      }
    }
    return [...models.values()];
  }
}

const takesLines = ({ isAdopted, config }: Entry): boolean => isAdopted || config.batches === true;

const placesOf = ({ takes, config }: Entry): number =>
  Math.min(takes ?? Number.POSITIVE_INFINITY, config.concurrency || Number.POSITIVE_INFINITY);

/** Lines of batches that are stopped for live calls. Not at a vendor, which bills stopped requests too. */
const givingWay = ({ isOwn, lines }: Entry): ReadonlySet<Background> => (isOwn ? lines : NONE);
const NONE: ReadonlySet<Background> = new Set();

function isFull(entry: Entry, background: Background | undefined): boolean {
  const places = placesOf(entry);
  if (!background) return entry.inFlight - givingWay(entry).size >= places;
  return !background.isDry && entry.inFlight >= (Number.isFinite(places) ? places : IDLE_PLACES);
}

function makeRoom(entry: Entry): void {
  let over = entry.inFlight + 1 - placesOf(entry);
  for (const line of givingWay(entry)) {
    if (over-- <= 0) return;
    if (!line.isStopped) line.stop();
  }
}

const isSame = (route: Route, { entry, model }: Candidate): boolean =>
  route.entry === entry && route.model === model.id;

/** How long one more call would take. A backend without a measurement goes first. */
const expectedMs = ({ latencyMs, inFlight }: Entry): number =>
  latencyMs === null ? 0 : latencyMs * (inFlight + 1);

const matchesProvider = ({ config }: Entry, provider: string): boolean => {
  const wanted = provider.trim().toLowerCase();
  return [config.name, config.kind, config.type].some((name) => name.toLowerCase() === wanted);
};

const ownsModels = ({ yields, config }: Entry): boolean => !yields && config.enabled !== false;

function indexByModel(entries: readonly Entry[]): Map<string, Candidate[]> {
  const index = new Map<string, Candidate[]>();
  const add = (requested: string, candidate: Candidate) => {
    const known = index.getOrInsertComputed(requested, () => []);
    if (!known.some(({ entry }) => entry === candidate.entry)) known.push(candidate);
  };
  for (const entry of entries) {
    const models = modelsOf(entry);
    for (const model of models) add(model.id, { entry, model });
    // After the exact ids: of one backend, `name` goes before `name:latest`.
    for (const model of models) {
      if (model.id.endsWith(LATEST)) add(model.id.slice(0, -LATEST.length), { entry, model });
    }
  }
  for (const [requested, candidates] of index) {
    const isOwned = candidates.some(({ entry }) => ownsModels(entry));
    if (isOwned)
      index.set(
        requested,
        candidates.filter(({ entry }) => !entry.yields),
      );
  }
  return index;
}
