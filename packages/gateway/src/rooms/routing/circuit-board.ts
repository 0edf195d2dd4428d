import type { RefusedKey } from "../../backends/contract.ts";
import type { Counter } from "../../observe/metrics.ts";
import type { Needs } from "../foundation.ts";
import { ALL, type Circuit, type CircuitEvent, Circuits, OPEN_MS, type Standing } from "./circuit.ts";
import type { Entry } from "./entry.ts";
import type { Circuitry } from "./router.ts";

const TOPIC = "circuits";
/** How often all are told how circuits stand that failures have changed: whoever missed something, or heard it in another order, learns of it. */
const RETOLD_MS = 5_000;

interface CircuitNews {
  from: string;
  /** Absent: all. */
  backend?: string;
  /** None of these: an instance that knows nothing wants to know how the circuits stand. */
  event?: CircuitEvent;
  standing?: Standing;
  keys?: RefusedKey[];
}

interface BoardOptions extends Needs<"bus" | "clock" | "log" | "metrics"> {
  entries: readonly Entry[];
  /** Whether every instance reaches the backend the same way. */
  isCommon(entry: Entry): boolean;
  /** True for one of all instances that ask for the same name in the same second. */
  takeTurn(name: string): Promise<boolean>;
  mayBeLost(entry: Entry): void;
}

/** Keeps circuits and refused keys the same on every instance: whatever one of them learns, all apply. */
export class CircuitBoard implements Circuitry {
  readonly claim: Circuitry["claim"];
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
    bus.subscribe(TOPIC, (message) => this.#heard(JSON.parse(message) as CircuitNews));
    bus.onGap(() => this.ask());
    this.close = bus.shared
      ? clock.every(RETOLD_MS, () => this.#tellAll(({ circuits }) => !circuits.isQuiet))
      : () => {};
  }

  /** Asks the others how the circuits stand; of all of them, it tells what it knows itself. */
  ask(backend?: string): void {
    this.#publish({ from: this.#me, backend });
  }

  #publish(told: CircuitNews): void {
    this.options.bus.publish(TOPIC, JSON.stringify(told));
  }

  tell(entry: Entry, event: CircuitEvent): void {
    if (event.kind === "succeeded" && entry.circuits.isQuiet) return;
    const backend = entry.config.name;
    if (this.options.isCommon(entry)) this.#publish({ from: this.#me, backend, event });
    else this.#apply(entry, event, true);
  }

  tellKeys(entry: Entry): void {
    const keys = entry.backend.keys?.refused() ?? [];
    if (keys.length > 0 && this.options.isCommon(entry))
      this.#publish({ from: this.#me, backend: entry.config.name, keys });
  }

  /** It was registered here, perhaps in place of one that had failed. */
  renew(entry: Entry): void {
    entry.circuits = Circuits.from({ changedMs: this.options.clock.now(), circuits: [] });
    this.#tellStanding(entry);
  }

  #tellStanding({ config, circuits: { standing } }: Entry): void {
    if (standing.changedMs > 0) this.#publish({ from: this.#me, backend: config.name, standing });
  }

  #tellAll(isTold = (_: Entry): boolean => true): void {
    for (const entry of this.options.entries.filter((each) => this.options.isCommon(each) && isTold(each))) {
      this.#tellStanding(entry);
      this.tellKeys(entry);
    }
  }

  #heard({ from, backend, event, standing, keys }: CircuitNews): void {
    const isOwn = from === this.#me;
    if (backend === undefined) this.#tellAll();
    const entry = this.options.entries.find(({ config }) => config.name === backend);
    if (!entry || !this.options.isCommon(entry)) return;
    if (keys) entry.backend.keys?.setAside(keys);
    else if (event) this.#apply(entry, event, isOwn);
    else if (isOwn) return;
    else if (standing && entry.circuits.isBehind(standing)) {
      entry.circuits = Circuits.from(standing);
      this.options.mayBeLost(entry);
    } else if (!standing || entry.circuits.changedMs > standing.changedMs) this.#tellStanding(entry);
  }

  #apply(entry: Entry, event: CircuitEvent, isOwn: boolean): void {
    const changed = entry.circuits.apply(event);
    if (event.kind !== "succeeded") this.options.mayBeLost(entry);
    if (!isOwn) return;
    for (const circuit of changed) this.#note(entry, circuit, event.kind === "succeeded" ? "closed" : "open");
  }

  /** Once for all instances: by the one whose call it was. */
  #note({ config: { name: backend } }: Entry, { model, payer, cause }: Circuit, to: "open" | "closed"): void {
    const { log } = this.options;
    const scope = { backend, ...(model !== ALL && { model }), ...(payer !== ALL && { payer }) };
    this.#changes.add(1, { backend, to });
    if (to === "closed") log.info("a backend's circuit closed", scope);
    else log.warn("a backend's circuit opened", { ...scope, cause, for_seconds: OPEN_MS / 1000 });
  }
}
