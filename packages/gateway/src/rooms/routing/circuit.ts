import { BoundedMap } from "../../kernel/bounded.ts";

/** Consecutive failures that open a circuit, and for how long. */
export const FAILURES_TO_OPEN = 3;
export const OPEN_MS = 30_000;
/** Models of a backend whose circuits are open before the backend's own opens. */
const MODELS_TO_OPEN = 3;
/** Good probes in a row after which a lost backend may be tested before its time is over. */
const PROBES_TO_TEST = 2;
/** A test call that was not heard of for this long ended with its process. */
const TEST_LAPSE_MS = 15_000;
const CIRCUITS_MAX = 1_000;
const CAUSE_LENGTH_MAX = 300;

/** In place of a model: the whole backend. In place of a payer: everyone. */
export const ALL = "";

/** What every instance is told, and applies in the same way. */
export type CircuitEvent = { atMs: number } & (
  | {
      kind: "failed";
      /** `ALL`: the connection was lost or timed out, which concerns the backend. */
      model: string;
      payer: string;
      cause: string;
      isUnreached: boolean;
      tested: string | null;
    }
  | { kind: "succeeded"; model: string; payer: string }
  | { kind: "probe_failed" }
  | { kind: "due"; key: string }
  /** Its test call is on the way, or still is. */
  | { kind: "testing"; key: string }
);

/** All that is known of a backend's circuits, for those who may have missed something. */
export interface Standing {
  changedMs: number;
  circuits: readonly Circuit[];
}

/** Counts failures in a row of one model or all, for one payer or all. */
export class Circuit {
  failures = 0;
  cause: string | null = null;
  openUntilMs: number | null = null;
  /** It opened because connections were lost, so that probes can tell when they are back. */
  isLost = false;
  testedUntilMs: number | null = null;
  /** Those whose calls failed, as far as that matters: one or more. */
  readonly payers: string[] = [];
  /** This process may send the test call. */
  isGranted = false;

  constructor(
    readonly key: string,
    readonly model: string,
    readonly payer: string,
  ) {}

  /** Events may arrive in another order elsewhere; the latest failure counts. */
  open(atMs: number): boolean {
    const opens = this.openUntilMs === null;
    this.openUntilMs = Math.max(this.openUntilMs ?? 0, atMs + OPEN_MS);
    return opens;
  }
  /** Further away than it was ever put: the clock was set back. */
  isDue(nowMs: number): boolean {
    const leftMs = this.openUntilMs! - nowMs;
    return (leftMs <= 0 || leftMs > OPEN_MS) && !this.isTested(nowMs);
  }
  isTested(nowMs: number): boolean {
    return this.testedUntilMs !== null && nowMs < this.testedUntilMs;
  }
}

const keyOf = (model: string, payer: string): string => `${model}\n${payer}`;

/** All circuits of one backend. There are none while calls succeed. */
export class Circuits {
  readonly #circuits = new BoundedMap<string, Circuit>(CIRCUITS_MAX);
  #goodProbes = 0;
  /** When what was heard last happened; 0: nothing was heard yet. */
  changedMs = 0;
  /** When one first opened for all, without a call having been served since. */
  awaySinceMs: number | null = null;

  static from({ changedMs, circuits }: Standing): Circuits {
    const all = new Circuits();
    all.changedMs = changedMs;
    for (const told of circuits) Object.assign(all.#at(told.model, told.payer), told, { isGranted: false });
    if (all.#open.some(({ payer }) => payer === ALL)) all.awaySinceMs = changedMs;
    return all;
  }

  #at(model: string, payer: string): Circuit {
    const key = keyOf(model, payer);
    const known = this.#circuits.get(key);
    if (known) return known;
    const circuit = new Circuit(key, model, payer);
    this.#circuits.set(key, circuit);
    return circuit;
  }

  get(key: string): Circuit | undefined {
    return this.#circuits.get(key);
  }

  get #open(): Circuit[] {
    return [...this.#circuits.entries()]
      .map(([, circuit]) => circuit)
      .filter(({ openUntilMs }) => openUntilMs !== null);
  }

  /** The open circuits that this payer's call of this model has to pass, those that concern more first. */
  barriers(model: string, payer: string): readonly Circuit[] {
    if (this.#circuits.size === 0) return NONE;
    return [keyOf(ALL, ALL), keyOf(model, ALL), keyOf(ALL, payer), keyOf(model, payer)].flatMap((key) => {
      const circuit = this.#circuits.get(key);
      return circuit && circuit.openUntilMs !== null ? [circuit] : [];
    });
  }

  /** Whether calls are kept away until probes tell that it is back. */
  isLost(nowMs: number): boolean {
    return this.#open.some((circuit) => circuit.isLost && circuit.openUntilMs! > nowMs);
  }

  apply(event: CircuitEvent): Circuit[] {
    this.changedMs = event.atMs;
    switch (event.kind) {
      case "failed":
        return this.#failed(event);
      case "succeeded":
        return this.#succeeded(event);
      case "probe_failed":
        return this.#open
          .filter(({ payer }) => payer !== ALL)
          .flatMap((circuit) => this.#widen(circuit, event.atMs));
      default: {
        const circuit = this.#circuits.get(event.key);
        if (!circuit || circuit.openUntilMs === null) return [];
        if (event.kind === "testing") circuit.testedUntilMs = event.atMs + TEST_LAPSE_MS;
        else {
          circuit.openUntilMs = Math.min(circuit.openUntilMs, event.atMs);
          circuit.testedUntilMs = null;
        }
        return [];
      }
    }
  }

  #failed({ model, payer, cause, isUnreached, tested, atMs }: CircuitEvent & { kind: "failed" }): Circuit[] {
    const one = this.#at(model, payer);
    const all = this.#at(model, ALL);
    if (!all.payers.includes(payer)) all.payers.push(payer);
    for (const circuit of [one, all]) {
      circuit.failures++;
      circuit.cause = cause.slice(0, CAUSE_LENGTH_MAX);
      circuit.isLost = model === ALL;
    }
    this.#tested(tested, atMs);
    const isForAll = isUnreached || all.payers.length > 1 || all.openUntilMs !== null;
    if (isForAll && all.failures >= FAILURES_TO_OPEN) return this.#opened(all, atMs);
    return one.failures >= FAILURES_TO_OPEN ? this.#opened(one, atMs) : [];
  }

  #tested(key: string | null, atMs: number): void {
    const circuit = key === null ? undefined : this.#circuits.get(key);
    if (!circuit) return;
    circuit.testedUntilMs = null;
    circuit.open(atMs);
    this.#goodProbes = 0;
  }

  /** Opens it, and the backend's where enough of its models fail. */
  #opened(circuit: Circuit, atMs: number): Circuit[] {
    if (!circuit.open(atMs)) return [];
    const { model, payer, cause } = circuit;
    this.#goodProbes = 0;
    if (payer === ALL) this.awaySinceMs ??= atMs;
    const failing = this.#open.filter((each) => each.model !== ALL && each.payer === payer);
    if (model === ALL || failing.length < MODELS_TO_OPEN) return [circuit];
    const backend = this.#at(ALL, payer);
    backend.failures = Math.max(backend.failures, FAILURES_TO_OPEN);
    backend.cause = cause;
    backend.isLost = false;
    return [circuit, ...this.#opened(backend, atMs)];
  }

  #widen({ model, failures, cause, isLost }: Circuit, atMs: number): Circuit[] {
    const all = this.#at(model, ALL);
    Object.assign(all, { failures, cause, isLost });
    return this.#opened(all, atMs);
  }

  #succeeded({ model, payer }: { model: string; payer: string }): Circuit[] {
    if (this.#circuits.size === 0) return [];
    const passed = [keyOf(ALL, ALL), keyOf(model, ALL), keyOf(ALL, payer), keyOf(model, payer)];
    const closed = passed.flatMap((key) => this.#circuits.get(key) ?? []);
    for (const { key } of closed) this.#circuits.delete(key);
    this.awaySinceMs = null;
    return closed.filter(({ openUntilMs }) => openUntilMs !== null);
  }

  get isQuiet(): boolean {
    return this.#circuits.size === 0;
  }

  /** What a probe says about the circuits, for all instances. */
  probed(isWell: boolean, nowMs: number): CircuitEvent[] {
    this.#goodProbes = isWell ? this.#goodProbes + 1 : 0;
    const open = this.#open;
    if (!isWell) {
      const isForSome = open.some(({ payer, model }) => payer !== ALL && !this.#isOpen(model));
      return isForSome ? [{ kind: "probe_failed", atMs: nowMs }] : [];
    }
    if (this.#goodProbes < PROBES_TO_TEST) return [];
    return open
      .filter((circuit) => circuit.isLost && circuit.openUntilMs! > nowMs)
      .map(({ key }) => ({ kind: "due", key, atMs: nowMs }));
  }

  #isOpen(model: string): boolean {
    return this.#circuits.get(keyOf(model, ALL))?.openUntilMs != null;
  }

  get standing(): Standing {
    return {
      changedMs: this.changedMs,
      circuits: [...this.#circuits.entries()].map(([, circuit]) => circuit),
    };
  }
  /** Heard in another order, the same events can leave fewer open. */
  isBehind({ changedMs, circuits }: Standing): boolean {
    if (changedMs !== this.changedMs) return changedMs > this.changedMs;
    return circuits.filter(({ openUntilMs }) => openUntilMs !== null).length > this.#open.length;
  }

  /** The circuit that concerns most, an open one if there is any. */
  report(nowMs: number) {
    let shown: Circuit | null = null;
    for (const [, circuit] of this.#circuits.entries())
      if (shown === null || weightOf(circuit) > weightOf(shown)) shown = circuit;
    const until = shown?.openUntilMs ?? null;
    const halfOpen = until !== null && (shown!.isTested(nowMs) || shown!.isDue(nowMs));
    return {
      state: until === null ? ("closed" as const) : halfOpen ? ("half_open" as const) : ("open" as const),
      consecutive_failures: shown?.failures ?? 0,
      cause: shown?.cause ?? null,
      retry_at: until === null ? null : new Date(until).toISOString(),
      model: shown?.model || null,
      for_all: shown === null || shown.payer === ALL,
    };
  }
}

const NONE: readonly Circuit[] = [];

const weightOf = ({ openUntilMs, payer, model, failures }: Circuit): number =>
  (openUntilMs === null ? 0 : 8_000) +
  (payer === ALL ? 4_000 : 0) +
  (model === ALL ? 2_000 : 0) +
  Math.min(failures, 1_000);
