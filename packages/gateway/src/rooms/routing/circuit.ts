import type { RefusedKey } from "../../backends/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Counter } from "../../observe/metrics.ts";
import type { Needs } from "../foundation.ts";
import type { Entry } from "./entry.ts";

export const FAILURES_TO_OPEN = 3;
export const OPEN_MS = 30_000;
/** With this many open circuits of its models, the backend's own circuit opens. */
const MODELS_TO_OPEN = 3;
/** After this many good probes in a row, a lost backend is tested before its circuit's time is over. */
const PROBES_TO_TEST = 2;
/** A test call without a sign of life for this long counts as ended: its process died. */
const TEST_LAPSE_MS = 15_000;
const CIRCUITS_MAX = 1_000;
const CAUSE_LENGTH_MAX = 300;

/** As a model: the whole backend. As a payer: everyone. */
export const ALL = "";

/** Sent to every instance, which all apply it in the same way. */
export type CircuitEvent = { atMs: number } & (
  | {
      kind: "failed";
      /** `ALL`: the connection was lost or timed out, which concerns the whole backend. */
      model: string;
      payer: string;
      cause: string;
      isUnreached: boolean;
      tested: string | null;
    }
  | { kind: "succeeded"; model: string; payer: string }
  | { kind: "probe_failed" }
  | { kind: "due"; key: string }
  /** Its test call is running. */
  | { kind: "testing"; key: string }
);

/** A backend's circuits, for instances that may have missed events. */
interface Standing {
  changedMs: number;
  circuits: readonly Circuit[];
}

/** Counts consecutive failures of one model or of all, for one payer or for all. */
export class Circuit {
  failures = 0;
  cause: string | null = null;
  openUntilMs: number | null = null;
  /** It opened because connections were lost, so probes can find out when the backend is back. */
  isLost = false;
  testedUntilMs: number | null = null;
  /** Payers whose calls failed; whether these are one or several makes a difference. */
  readonly payers: string[] = [];
  /** This process may send the test call. */
  isGranted = false;

  constructor(
    readonly key: string,
    readonly model: string,
    readonly payer: string,
  ) {}

  /** Other instances may get events in another order, so the latest failure counts. */
  open(atMs: number): boolean {
    const opens = this.openUntilMs === null;
    this.openUntilMs = Math.max(this.openUntilMs ?? 0, atMs + OPEN_MS);
    return opens;
  }
  isDue(nowMs: number): boolean {
    // More time left than it ever gets means that the clock was set back.
    const leftMs = this.openUntilMs! - nowMs;
    return (leftMs <= 0 || leftMs > OPEN_MS) && !this.isTested(nowMs);
  }
  isTested(nowMs: number): boolean {
    return this.testedUntilMs !== null && nowMs < this.testedUntilMs;
  }
}

const keyOf = (model: string, payer: string): string => `${model}\n${payer}`;

/** The circuits of one backend. There are none while calls succeed. */
export class Circuits {
  readonly #circuits = new BoundedMap<string, Circuit>(CIRCUITS_MAX);
  #goodProbes = 0;
  /** Time of the latest event; 0: none yet. */
  changedMs = 0;
  /** When the first circuit opened for all payers, if no call has succeeded since. */
  awaySinceMs: number | null = null;

  static from({ changedMs, circuits }: Standing): Circuits {
    const all = new Circuits();
    all.changedMs = changedMs;
    for (const each of circuits) Object.assign(all.#at(each.model, each.payer), each, { isGranted: false });
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
    return [...this.#circuits.values()].filter(({ openUntilMs }) => openUntilMs !== null);
  }

  /** The circuits that concern such a call, the widest first. */
  #of(model: string, payer: string): Circuit[] {
    const keys = [keyOf(ALL, ALL), keyOf(model, ALL), keyOf(ALL, payer), keyOf(model, payer)];
    return keys.flatMap((key) => this.#circuits.get(key) ?? []);
  }

  barriers(model: string, payer: string): readonly Circuit[] {
    if (this.#circuits.size === 0) return NONE;
    return this.#of(model, payer).filter(({ openUntilMs }) => openUntilMs !== null);
  }

  /** Whether calls are kept away until probes find that it is back. */
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
          .flatMap((circuit) => this.#openForAll(circuit, event.atMs));
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

  /** Opens it, and the backend's circuit if enough of its models fail. */
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

  #openForAll({ model, failures, cause, isLost }: Circuit, atMs: number): Circuit[] {
    return this.#opened(Object.assign(this.#at(model, ALL), { failures, cause, isLost }), atMs);
  }

  #succeeded({ model, payer }: { model: string; payer: string }): Circuit[] {
    if (this.#circuits.size === 0) return [];
    const closed = this.#of(model, payer);
    for (const { key } of closed) this.#circuits.delete(key);
    this.awaySinceMs = null;
    return closed.filter(({ openUntilMs }) => openUntilMs !== null);
  }

  get isQuiet(): boolean {
    return this.#circuits.size === 0;
  }

  /** The events that follow from a probe. */
  probed(isWell: boolean, nowMs: number): CircuitEvent[] {
    this.#goodProbes = isWell ? this.#goodProbes + 1 : 0;
    const open = this.#open;
    if (!isWell) {
      const isOpenForAll = (model: string) => this.#circuits.get(keyOf(model, ALL))?.openUntilMs != null;
      const isForSome = open.some(({ payer, model }) => payer !== ALL && !isOpenForAll(model));
      return isForSome ? [{ kind: "probe_failed", atMs: nowMs }] : [];
    }
    if (this.#goodProbes < PROBES_TO_TEST) return [];
    return open
      .filter((circuit) => circuit.isLost && circuit.openUntilMs! > nowMs)
      .map(({ key }) => ({ kind: "due", key, atMs: nowMs }));
  }

  get standing(): Standing {
    return { changedMs: this.changedMs, circuits: [...this.#circuits.values()] };
  }
  /** The same events in another order can leave fewer circuits open. */
  isBehind({ changedMs, circuits }: Standing): boolean {
    if (changedMs !== this.changedMs) return changedMs > this.changedMs;
    return circuits.filter(({ openUntilMs }) => openUntilMs !== null).length > this.#open.length;
  }

  /** Shows the widest circuit, an open one if there is any. */
  report(nowMs: number) {
    let shown: Circuit | null = null;
    for (const circuit of this.#circuits.values())
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

const TOPIC = "circuits";
/** How often circuits that are not quiet are sent again, for instances that missed events or got them in another order. */
const RESENT_MS = 5_000;

interface CircuitNews {
  from: string;
  /** Absent: all. */
  backend?: string;
  /** A message without an event, standing or keys asks for them. */
  event?: CircuitEvent;
  standing?: Standing;
  keys?: RefusedKey[];
}

interface BoardOptions extends Needs<"bus" | "clock" | "log" | "metrics"> {
  entries: readonly Entry[];
  /** Whether every instance reaches the backend the same way. */
  isCommon(entry: Entry): boolean;
  /** True for only one of the instances that ask for the same name within a second. */
  takeTurn(name: string): Promise<boolean>;
  mayBeLost(entry: Entry): void;
}

/** Keeps circuits and refused keys the same on every instance. */
export class CircuitBoard {
  /** Whether this instance may send an open circuit's test call; null: it is the only instance. */
  readonly claim: ((entry: Entry, circuit: Circuit) => Promise<boolean>) | null;
  readonly #me = crypto.randomUUID();
  readonly #changes: Counter;
  readonly close: () => void;

  constructor(readonly options: BoardOptions) {
    const { bus, clock, metrics, isCommon, takeTurn } = options;
    this.claim = bus.shared
      ? async (entry, { key }) => !isCommon(entry) || takeTurn(`circuit:${entry.config.name}:${key}`)
      : null;
    this.#changes = metrics.counter(
      "gateway_backend_circuit_changes_total",
      "Circuits of backends that opened (calls are kept away) or closed (calls are sent again)",
    );
    bus.subscribe(TOPIC, (message) => this.#receive(JSON.parse(message) as CircuitNews));
    bus.onGap(() => this.ask());
    this.close = bus.shared
      ? clock.every(RESENT_MS, () => this.#sendAll(({ circuits }) => !circuits.isQuiet))
      : () => {};
  }

  /** Asks the other instances for their circuits; when it asks about all backends, this instance sends its own too. */
  ask(backend?: string): void {
    this.#publish({ from: this.#me, backend });
  }

  #publish(news: CircuitNews): void {
    this.options.bus.publish(TOPIC, JSON.stringify(news));
  }

  tell(entry: Entry, event: CircuitEvent): void {
    if (event.kind === "succeeded" && entry.circuits.isQuiet) return;
    const backend = entry.config.name;
    if (this.options.isCommon(entry)) this.#publish({ from: this.#me, backend, event });
    else this.#apply(entry, event, true);
  }

  sendKeys(entry: Entry): void {
    const keys = entry.backend.keys?.refused() ?? [];
    if (keys.length > 0 && this.options.isCommon(entry))
      this.#publish({ from: this.#me, backend: entry.config.name, keys });
  }

  /** The backend was registered here, so earlier failures no longer count. */
  renew(entry: Entry): void {
    entry.circuits = Circuits.from({ changedMs: this.options.clock.now(), circuits: [] });
    this.#sendStanding(entry);
  }

  #sendStanding({ config, circuits: { standing } }: Entry): void {
    if (standing.changedMs > 0) this.#publish({ from: this.#me, backend: config.name, standing });
  }

  #sendAll(isSent = (_: Entry): boolean => true): void {
    for (const entry of this.options.entries) {
      if (!this.options.isCommon(entry) || !isSent(entry)) continue;
      this.#sendStanding(entry);
      this.sendKeys(entry);
    }
  }

  #receive({ from, backend, event, standing, keys }: CircuitNews): void {
    const isOwn = from === this.#me;
    if (backend === undefined) this.#sendAll();
    const entry = this.options.entries.find(({ config }) => config.name === backend);
    if (!entry || !this.options.isCommon(entry)) return;
    if (keys) entry.backend.keys?.setAside(keys);
    else if (event) this.#apply(entry, event, isOwn);
    else if (isOwn) return;
    else if (standing && entry.circuits.isBehind(standing)) {
      entry.circuits = Circuits.from(standing);
      this.options.mayBeLost(entry);
    } else if (!standing || entry.circuits.changedMs > standing.changedMs) this.#sendStanding(entry);
  }

  #apply(entry: Entry, event: CircuitEvent, isOwn: boolean): void {
    const changed = entry.circuits.apply(event);
    if (event.kind !== "succeeded") this.options.mayBeLost(entry);
    if (!isOwn) return;
    for (const circuit of changed) this.#note(entry, circuit, event.kind === "succeeded" ? "closed" : "open");
  }

  /** Only the instance whose call it was logs and counts. */
  #note({ config: { name: backend } }: Entry, { model, payer, cause }: Circuit, to: "open" | "closed"): void {
    const { log } = this.options;
    const scope = { backend, ...(model !== ALL && { model }), ...(payer !== ALL && { payer }) };
    this.#changes.add(1, { backend, to });
    if (to === "closed") log.info("a backend's circuit closed", scope);
    else log.warn("a backend's circuit opened", { ...scope, cause, for_seconds: OPEN_MS / 1000 });
  }
}
