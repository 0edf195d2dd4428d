import { type Backend, BackendError, type CapabilityName, isOverloaded } from "../../backends/contract.ts";
import type { SessionOf } from "../../kernel/affinity.ts";
import { ServiceError } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import { ALL, type Circuit, type CircuitEvent, type Circuits } from "./circuit.ts";
import type { Background, Entry } from "./entry.ts";
import type { Router } from "./router.ts";

/** Weight of a new measurement in the mean time to the first byte. */
const LATENCY_SHARE = 0.2;

/** A waiting call's place in the queue. A call that has to wait again keeps its place. */
export interface QueuePlace {
  /** Keys take turns: a key's second call comes after the first call of every other key. */
  round: number;
  untilMs: number;
}

/** What a request needs of a backend. Text completions are not in the list of capabilities. */
export type Ability = CapabilityName | "text_completion";

/** Why a backend was chosen; operators see it in the list of requests. */
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
  /** The backend that the request's conversation stays with; null: none yet. */
  boundTo?: string | null;
  /** Requests of one session go to the same backend, which has their prompt in its cache. */
  session?: SessionOf;
  /** Like `provider`, but from a model route; both must match. */
  backend?: string | null;
  isTarget?: boolean;
  exclude?: readonly Route[];
  /** Circuits may be open for one payer only. */
  payer?: Pick<Payer, "userId" | "groupId" | "keyId">;
  /** The place of a call that has waited before. */
  turn?: Partial<QueuePlace>;
  isForeseen?: boolean;
  background?: Background;
}

/** How often the other instances are told that a test call is still running. */
const TEST_RENEWED_EVERY_MS = 5_000;

export interface CallFailure {
  cause: string;
  /** The backend answered, so the failure concerns the model; otherwise the connection was lost or timed out. */
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

/** One call to a chosen backend. The first ending that is reported counts. */
export class Route {
  #open = true;
  /** A backend that moves gets new circuits, which this call's outcome does not concern. */
  readonly #circuits: Circuits;
  readonly #tested: string | null;
  readonly #stopRenewing: (() => void) | null;
  readonly #startedMs: number;
  readonly reason: RouteReason;
  /** The request's conversation stays here from now on. */
  readonly rebinds: boolean;

  constructor(
    readonly entry: Entry,
    readonly model: string,
    readonly router: Router,
    readonly chosen: ChosenRoute,
  ) {
    const { reason, rebinds, tests, background } = chosen;
    if (background) entry.lines.add(background);
    this.reason = reason;
    this.rebinds = rebinds;
    this.#circuits = entry.circuits;
    this.#tested = tests?.key ?? null;
    this.#stopRenewing = tests && this.#startTest(tests);
    entry.inFlight++;
    this.#startedMs = router.choice === "latency" ? router.clock.now() : 0;
  }

  #startTest(circuit: Circuit): () => void {
    circuit.isGranted = false;
    const tell = () => this.#tell({ kind: "testing", key: circuit.key });
    tell();
    return this.router.clock.every(TEST_RENEWED_EVERY_MS, tell);
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
    this.#stopRenewing?.();
    if (this.chosen.background) this.entry.lines.delete(this.chosen.background);
    this.entry.inFlight--;
    return true;
  }
  succeeded(): void {
    if (!this.#end()) return;
    const { payer } = this.chosen;
    if (!this.#circuits.isQuiet) this.#tell({ kind: "succeeded", model: this.model, payer });
    this.router.freed();
  }
  failed({ cause, isAnswered, isUnreached = false }: CallFailure): void {
    if (!this.#end()) return;
    const model = isAnswered ? this.model : ALL;
    const { payer } = this.chosen;
    this.#tell({ kind: "failed", model, payer, cause, isUnreached, tested: this.#tested });
    this.router.freed();
  }
  /** The backend refused the call because it is full. */
  full(): void {
    if (this.#endUntested()) this.router.full(this.entry);
  }
  /** The outcome shows nothing about the backend, e.g. because the client disconnected. */
  abandoned(): void {
    if (this.#endUntested()) this.router.freed();
  }
  #endUntested(): boolean {
    if (!this.#end()) return false;
    if (this.#tested !== null) this.#tell({ kind: "due", key: this.#tested });
    return true;
  }
}

type Untimed<Event> = Event extends unknown ? Omit<Event, "atMs"> : never;

/** Statuses below 500 that are the backend's fault and not the request's. */
const BACKEND_AT_FAULT = new Set([401, 408, 429]);

/** Failures that do not show whether the backend works. */
const NOT_ABOUT_BACKEND: ReadonlySet<string> = new Set([
  "request",
  "unsupported",
  "mismatch",
  "gone",
  "too_large",
]);
/** The one status above 499 that refuses a request because of what it asks for. */
const NOT_IMPLEMENTED = 501;

/** A retry would be refused again. A conflict may be over by then. */
export function isFinal(error: unknown): boolean {
  const cause = error instanceof ServiceError ? error.cause : error;
  return cause instanceof BackendError && isRefusal(cause) && cause.status !== 409;
}

const isRefusal = ({ kind, status }: BackendError): boolean =>
  kind === "upstream" &&
  status !== undefined &&
  (status === NOT_IMPLEMENTED || (status < 500 && !BACKEND_AT_FAULT.has(status)));

/** Reports the end of a call to the circuit. If the backend refused the request itself, the backend works. */
export function reportTo(route: Route, error: unknown): void {
  if (!(error instanceof BackendError) || NOT_ABOUT_BACKEND.has(error.kind)) route.abandoned();
  else if (error.kind === "busy") route.full();
  else if (isOverloaded(error)) route.abandoned();
  else if (isRefusal(error)) route.succeeded();
  else {
    const { kind, message: cause } = error;
    route.failed({ cause, isAnswered: kind === "upstream", isUnreached: kind === "connect" });
  }
}
