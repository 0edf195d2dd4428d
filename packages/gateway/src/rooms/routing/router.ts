import {
  type Backend,
  CAPABILITIES,
  type CapabilityName,
  type DialectName,
  type ModelInfo,
  type PostedCapability,
} from "../../backends/contract.ts";
import { nearestTo, type SessionOf } from "../../kernel/affinity.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type ErrorName, fail, ServiceError } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import { ALL, type Circuit, type CircuitEvent, type Circuits } from "./circuit.ts";
import { type Background, type Entry, modelsOf } from "./entry.ts";
import type { RouteTarget } from "./model-routes.ts";

const LATEST = ":latest";
/** Calls that wait for a backend with a free place, and for how long. */
const WAITING_MAX = 4_096;
const WAIT_MS_MAX = 60_000;
/** How often a backend that was full is tried with one call more. */
const FULL_RETRY_MS = 100;
/** Lines of batches on a backend of which nobody knows how much it takes. */
const IDLE_PLACES = 8;
/** After a start or a registration, calls wait this long for the first probes. */
const FIRST_PROBES_MS = 5_000;
export const BUSY_RETRY_SECONDS = 1;
/** How much a new measurement counts in the mean time to the first byte. */
const LATENCY_SHARE = 0.2;

/** How one of several equal backends is chosen: by how often each was, or by how soon each answers. */
export type BackendChoice = "requests" | "latency";

/** Every backend that could serve the request has as many calls as it takes. */
export class AllBusy extends ServiceError {
  constructor(model: string) {
    super("busy", `Every backend of ${model} has as many calls as it takes at once; try again`, {
      retryAfterSeconds: BUSY_RETRY_SECONDS,
    });
  }
}

/** Where a call stands among those that wait. One that is refused again has the place that it had. */
export interface QueuePlace {
  /** Keys take turns: the second call of one comes after the first of every other. */
  round: number;
  untilMs: number;
}

interface QueuedRequest {
  request: RouteRequest;
  /** Calls with the same find the same backends busy. */
  asked: string;
  key: string;
  turn: QueuePlace;
  resolve(route: Route): void;
  reject(error: unknown): void;
  cancel(): void;
}

/** What a request may need of a backend. Text completions have no name of their own in a list of capabilities. */
export type Ability = CapabilityName | "text_completion";

const canPost =
  (capability: PostedCapability) =>
  ({ post, posts }: Backend): boolean =>
    post !== undefined && posts?.includes(capability) === true;

const canDo = {
  chat: (backend: Backend) => backend.chat !== undefined,
  text_completion: (backend: Backend) => backend.chat !== undefined && backend.post !== undefined,
  embeddings: (backend: Backend) => backend.embed !== undefined,
  video: (backend: Backend) => backend.video !== undefined,
  realtime: (backend: Backend) => backend.realtime !== undefined,
  invoke: (backend: Backend) => backend.invoke !== undefined,
  images: canPost("images"),
  speech: canPost("speech"),
  transcription: canPost("transcription"),
  rerank: canPost("rerank"),
  moderation: canPost("moderation"),
} satisfies Record<Ability, (backend: Backend) => boolean>;

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

/** Why a backend was chosen, as an operator reads it. */
export type RouteReason =
  | "only_backend"
  | "fewest_requests"
  | "fastest"
  | "conversation"
  | "session"
  | "provider_asked_for"
  | "model_route"
  | "fallback";

export interface RouteRequest {
  model: string;
  capability: Ability;
  /** Backend name, kind or type; any case. */
  provider?: string | null;
  /** Of a conversation: the backend that it stays with; null: none yet. */
  boundTo?: string | null;
  /** The session that it belongs to, which has its prompt in the cache of the backend that served it before. */
  session?: SessionOf;
  /** As `provider`, by a model route; both have to match. */
  backend?: string | null;
  /** The model is a target of a model route. */
  isTarget?: boolean;
  exclude?: readonly Route[];
  /** Who is kept away by failures of their own; absent: nobody in particular. */
  payer?: Pick<Payer, "userId" | "groupId" | "keyId">;
  /** Of a call that has waited before. */
  turn?: Partial<QueuePlace>;
  isForeseen?: boolean;
  background?: Background;
}

/** How circuits are changed, here and elsewhere. */
export interface Circuitry {
  tell(entry: Entry, event: CircuitEvent): void;
  /** Whether this instance may send an open circuit's test call; null where there is only one. */
  claim: ((entry: Entry, circuit: Circuit) => Promise<boolean>) | null;
}
const ALONE: Circuitry = { tell: (entry, event) => void entry.circuits.apply(event), claim: null };
/** How often a test call that goes on is told again. */
const TEST_TOLD_EVERY_MS = 5_000;

export interface CallFailure {
  cause: string;
  /** It was answered, so the failure concerns the model; otherwise the connection was lost or timed out. */
  isAnswered: boolean;
  isUnreached?: boolean;
}

export const payerIdOf = ({ payer }: Pick<RouteRequest, "payer">): string =>
  payer?.groupId ?? payer?.userId ?? "nobody";

interface ChosenRoute {
  reason: RouteReason;
  payer: string;
  tests: Circuit | null;
  rebinds: boolean;
  background?: Background;
}

/** One chosen backend. Exactly one of the three endings is reported; later ones do nothing. */
export class Route {
  #open = true;
  /** A backend that moves gets new circuits, of which this call knows nothing. */
  readonly #circuits: Circuits;
  readonly #tested: string | null;
  readonly #stopTelling: () => void;
  readonly #payer: string;
  readonly #startedMs: number;
  readonly #background: Background | undefined;

  constructor(
    readonly entry: Entry,
    readonly model: string,
    readonly router: Router,
    { reason, payer, tests, rebinds, background }: ChosenRoute,
  ) {
    this.#background = background;
    if (background) entry.lines.add(background);
    this.reason = reason;
    this.rebinds = rebinds;
    this.#payer = payer;
    this.#circuits = entry.circuits;
    this.#tested = tests?.key ?? null;
    this.#stopTelling = tests === null ? () => {} : this.#tellOfTest(tests);
    entry.inFlight++;
    this.#startedMs = router.choice === "latency" ? router.clock.now() : 0;
  }
  readonly reason: RouteReason;
  /** The request's conversation stays here from now on. */
  readonly rebinds: boolean;

  #tellOfTest(circuit: Circuit): () => void {
    circuit.isGranted = false;
    const tell = () => this.#tell({ kind: "testing", key: circuit.key });
    tell();
    return this.router.clock.every(TEST_TOLD_EVERY_MS, tell);
  }

  #tell(event: Untimed<CircuitEvent>): void {
    if (this.#circuits !== this.entry.circuits) return;
    this.router.circuitry.tell(this.entry, { ...event, atMs: this.router.clock.now() } as CircuitEvent);
  }

  begun(): void {
    if (this.router.choice !== "latency") return;
    const { entry } = this;
    const tookMs = this.router.clock.now() - this.#startedMs;
    entry.latencyMs =
      entry.latencyMs === null ? tookMs : entry.latencyMs + (tookMs - entry.latencyMs) * LATENCY_SHARE;
  }

  get backend(): Backend {
    return this.entry.backend;
  }
  get name(): string {
    return this.entry.config.name;
  }
  get isOwn(): boolean {
    return this.entry.isOwn;
  }

  #end(): boolean {
    if (!this.#open) return false;
    this.#open = false;
    this.#stopTelling();
    if (this.#background) this.entry.lines.delete(this.#background);
    this.entry.inFlight--;
    return true;
  }
  succeeded(): void {
    if (!this.#end()) return;
    if (!this.#circuits.isQuiet) this.#tell({ kind: "succeeded", model: this.model, payer: this.#payer });
    this.router.freed();
  }
  failed({ cause, isAnswered, isUnreached = false }: CallFailure): void {
    if (!this.#end()) return;
    const model = isAnswered ? this.model : ALL;
    const [payer, tested] = [this.#payer, this.#tested];
    this.#tell({ kind: "failed", model, payer, cause, isUnreached, tested });
    this.router.freed();
  }
  /** The backend took nothing of the call, because it has as many as it can take. */
  full(): void {
    if (!this.#end()) return;
    if (this.#tested !== null) this.#tell({ kind: "due", key: this.#tested });
    this.router.full(this.entry);
  }
  /** The call ended without saying anything about the backend, e.g. because the client left. */
  abandoned(): void {
    if (!this.#end()) return;
    if (this.#tested !== null) this.#tell({ kind: "due", key: this.#tested });
    this.router.freed();
  }
}

type Untimed<Event> = Event extends unknown ? Omit<Event, "atMs"> : never;

/** A model of a healthy backend, with the name of the first one that serves it. */
export interface RoutableModel extends ModelInfo {
  owned_by: string;
  available: boolean;
}

/** Calls are kept away by an open circuit. */
const SHUT = "shut";

interface Candidate {
  entry: Entry;
  model: ModelInfo;
}

const canServe = ({ entry, model }: Candidate, ability: Ability): boolean =>
  canDo[ability](entry.backend) &&
  (model.capabilities?.includes(ability === "text_completion" ? "chat" : ability) ?? true);

export class Router {
  /** By requested model id; rebuilt after the list or a listing changed. */
  #index: Map<string, Candidate[]> | null = null;
  /** In the order in which they get a place. */
  #waiting: QueuedRequest[] = [];
  /** Of the last one that got a place. */
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

  /** The backend of a request, as soon as one that could serve it has a free place. */
  acquire(request: RouteRequest): Route | Promise<Route> {
    return this.withTurns([request], () => this.#acquire(request));
  }

  /** Chooses for these requests, any of which may be the test call of an open circuit if no other instance sends it. */
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

  #acquire(request: RouteRequest): Route | Promise<Route> {
    try {
      return this.choose(request);
    } catch (error) {
      const waitMs = this.waitMsFor(request, error);
      if (waitMs === 0 || request.background) throw error;
      return this.#wait(request, waitMs, error);
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
      // The latest call of the key that has most of them waiting.
      const dropped = this.#waiting.pop()!;
      dropped.cancel();
      dropped.reject(new AllBusy(dropped.request.model));
    });
  }

  /** A call was refused because the backend is full: others wait until it has ended one, or may have room. */
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

  /** A backend may have a free place, or be known now: those who wait get it in their order. */
  freed(): void {
    if (this.#waiting.length === 0) return;
    const still: QueuedRequest[] = [];
    const before = this.#waiting;
    this.#waiting = [];
    /** What nobody has room for now: the rest of a long line need not be asked one by one. */
    const busy = new Set<string>();
    for (const waiting of before) {
      const { asked } = waiting;
      if (busy.has(asked)) {
        still.push(waiting);
        continue;
      }
      try {
        const route = this.choose(waiting.request);
        this.#round = Math.max(this.#round, waiting.turn.round);
        waiting.cancel();
        waiting.resolve(route);
      } catch (error) {
        if (error instanceof AllBusy) busy.add(asked);
        if (this.waitMsFor(waiting.request, error) > 0) still.push(waiting);
        else {
          waiting.cancel();
          waiting.reject(error);
        }
      }
    }
    this.#waiting = [...still, ...this.#waiting];
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  canChoose(request: RouteRequest): boolean {
    return this.#find(request).best !== null;
  }

  /** The first backend that takes chats with a target of a model route; null: none. */
  serverOf({ model, backend }: RouteTarget): string | null {
    const serving = this.#eligible({ model, backend, capability: "chat" });
    return serving.find((each) => this.#barrier(each, ALL) !== SHUT)?.entry.config.name ?? null;
  }

  #candidates(model: string): readonly Candidate[] {
    this.#index ??= indexByModel(this.entries);
    return this.#index.get(model) ?? [];
  }

  /** The first registered backend that has the model to itself, whatever its health. */
  ownerOf(model: string): string | null {
    return this.#candidates(model).find(({ entry }) => ownsModels(entry))?.entry.config.name ?? null;
  }

  /** The backends that stand behind a target of a model route, and whether each takes calls now. */
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

  /** What would be chosen, for work that is sent later; it counts now, so that many at once are spread. */
  foresee(request: RouteRequest): { backend: Backend; model: string; reason: RouteReason } {
    const { best, isBusy, count } = this.#find(request, true);
    if (best === null && isBusy) throw new AllBusy(request.model);
    if (best === null) return this.#refuse(request);
    best.entry.requests++;
    return {
      backend: best.entry.backend,
      model: best.model.id,
      reason: this.#reason(request, { isBound: false, count }),
    };
  }

  choose(request: RouteRequest): Route {
    const { best, tests, isBusy, count } = this.#find(request);
    if (best === null && isBusy) throw new AllBusy(request.model);
    if (best === null) return this.#refuse(request);
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

  /** A conversation moves when its backend is away; not for a hint, or for a turn with a model that it does not have. */
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

  /** Whether a backend that lists the model takes requests in the dialect as they are. */
  speaks(model: string, dialect: DialectName): boolean {
    return this.#candidates(model).some(({ entry }) => entry.backend.native?.has(dialect));
  }

  isOwn(model: string): boolean {
    return this.isListed(model) && this.#candidates(model).every(({ entry }) => entry.isOwn);
  }

  isListed(model: string): boolean {
    return this.#candidates(model).length > 0;
  }

  /** The circuit that such a call would test; null: it may be sent; `SHUT`: it may not. */
  #barrier({ entry, model }: Candidate, payer: string): Circuit | typeof SHUT | null {
    const barriers = entry.circuits.barriers(model.id, payer);
    if (barriers.length === 0) return null;
    const nowMs = this.clock.now();
    return barriers.every((circuit) => circuit.isDue(nowMs)) ? barriers[0]! : SHUT;
  }

  /** Healthy backends that can serve the request, whatever their circuits say. */
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

  /** A test call is for one instance, unless nothing is sent now. */
  #find(request: RouteRequest, isForLater = false) {
    const payer = payerIdOf(request);
    let open: { candidate: Candidate; tests: Circuit | null }[] = [];
    let isBusy = false;
    for (const candidate of this.#eligible(request)) {
      const { entry } = candidate;
      const barrier = this.#barrier(candidate, payer);
      const isOthers = barrier !== null && barrier !== SHUT && this.circuitry.claim && !barrier.isGranted;
      if (barrier === SHUT || (isOthers && !isForLater)) continue;
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

  #refuse(request: RouteRequest): never {
    const { model, capability, provider, backend } = request;
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

  /** Until the first of them is probed, or tested by a call. */
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

  /** A backend that becomes routable starts just behind the least used one, so that it is not flooded. */
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

/** Nodes, and what the operator allows. */
const takesLines = ({ isAdopted, config }: Entry): boolean => isAdopted || config.batches === true;

const placesOf = ({ takes, config }: Entry): number =>
  Math.min(takes ?? Number.POSITIVE_INFINITY, config.concurrency || Number.POSITIVE_INFINITY);

/** Lines of batches that give way. Not those at a vendor: it bills what was sent, stopped or not. */
const givingWay = ({ isOwn, lines }: Entry): ReadonlySet<Background> => (isOwn ? lines : NONE);
const NONE: ReadonlySet<Background> = new Set();

/** Lines of batches take no more than what is idle. */
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

/** How long a call more would wait, by how soon it answers and how much it has to do. One never measured is asked first. */
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
  for (const [requested, candidates] of index)
    if (candidates.some(({ entry }) => ownsModels(entry)))
      index.set(
        requested,
        candidates.filter(({ entry }) => !entry.yields),
      );
  return index;
}
