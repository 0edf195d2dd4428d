import type { HealthState } from "../../backends/contract.ts";
import { inBackground } from "../../kernel/background.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { Leases } from "../../storage/contract.ts";
import type { Entry } from "./entry.ts";
import type { TimedProbe } from "./probe-history.ts";

const PROBE_PERIOD_MS = 60_000;
/** How often the probing instance renews its lease, and the others check that it is alive. */
const LEASE_PERIOD_MS = 15_000;
const LEASE_MS = 40_000;
const LEASE = "probe-round";
const PROBE_TIMEOUT_MS = 10_000;
const PROBES_AT_ONCE = 16;

interface HealthOptions {
  clock: Clock;
  log: Log;
  entries: readonly Entry[];
  /** Brings the list up to date before each round. */
  refresh(): Promise<void>;
  /** An entry's state or listing may have changed. */
  changed(entry: Entry, before: HealthState): void;
  /** Set where there are other instances: one of them probes for all. */
  team: ProbeTeam | null;
}

/** What instances need to divide the probing. */
interface ProbeTeam {
  leases: Leases;
  /** Whether every instance reaches the backend the same way, so that a finding holds for all. */
  isCommon(entry: Entry): boolean;
  publish(name: string, result: TimedProbe): void;
}

/**
 * Probes every backend when it is registered and once a minute after that. Of several instances one does the
 * rounds and publishes the results. The others accept good news, and probe themselves before accepting bad news.
 */
export class HealthChecker {
  readonly #running = new WeakSet<Entry>();
  #stop: (() => void) | null = null;
  #roundRunning = false;
  #isProber = false;
  #lastRoundMs = 0;

  constructor(readonly options: HealthOptions) {}

  start(): void {
    const { clock, team } = this.options;
    this.#lastRoundMs = clock.now();
    this.#stop = team
      ? clock.every(LEASE_PERIOD_MS, () => void this.#turn(team))
      : clock.every(PROBE_PERIOD_MS, () => void this.round());
  }
  stop(): void {
    this.#stop?.();
  }

  async #turn({ leases }: ProbeTeam): Promise<void> {
    const { clock, log } = this.options;
    const due = clock.now() - this.#lastRoundMs >= PROBE_PERIOD_MS;
    const before = this.#isProber;
    // Without the database there is no lease, so every instance probes.
    this.#isProber = await leases.acquire(LEASE, LEASE_MS).catch(() => true);
    if (this.#isProber !== before) log.debug("probe rounds", { by_this_instance: this.#isProber });
    if (due) await this.round();
  }

  /** What the prober found. */
  heard(entry: Entry, result: TimedProbe): void {
    if (result.state === "Healthy" || entry.state !== "Healthy") this.#apply(entry, result);
    else this.probeSoon(entry);
  }

  /** The result is applied when it arrives. */
  probeSoon(entry: Entry): void {
    inBackground(this.options.log, "a probe", this.probe(entry));
  }

  /** One probe of everything; a round that is still running is not overtaken by the next. */
  async round(): Promise<void> {
    if (this.#roundRunning) return;
    this.#roundRunning = true;
    this.#lastRoundMs = this.options.clock.now();
    const { team, entries, refresh } = this.options;
    try {
      await refresh();
      const waiting = entries.filter((entry) => !team || this.#isProber || !team.isCommon(entry));
      const worker = async () => {
        for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
          const result = await this.probe(entry);
          if (result && team?.isCommon(entry)) team.publish(entry.config.name, result);
        }
      };
      await Promise.all(Array.from({ length: PROBES_AT_ONCE }, worker));
    } finally {
      this.#roundRunning = false;
    }
  }

  /** Null when another probe of it is under way, or the entry is no longer there. */
  async probe(entry: Entry): Promise<TimedProbe | null> {
    if (this.#running.has(entry)) return null;
    this.#running.add(entry);
    const { backend } = entry;
    const result = await this.#ask(entry);
    this.#running.delete(entry);
    // Replaced meanwhile, e.g. because its tunnel moved: the answer is about an address of the past.
    if (entry.removed) return null;
    if (entry.backend !== backend) return this.probe(entry);
    this.#apply(entry, result);
    return result;
  }

  async #ask({ backend }: Entry): Promise<TimedProbe> {
    const { clock } = this.options;
    const startedMs = clock.now();
    const expiry = new AbortController();
    const detail = `no answer to a probe within ${PROBE_TIMEOUT_MS / 1000} s`;
    const cancel = clock.after(PROBE_TIMEOUT_MS, () => expiry.abort(new Error(detail)));
    try {
      const result = await backend.probe(expiry.signal);
      return { ...result, latencyMs: clock.now() - startedMs };
    } catch (error) {
      const latencyMs = clock.now() - startedMs;
      return { state: "Unhealthy", models: [], detail: (error as Error).message, latencyMs };
    } finally {
      cancel();
    }
  }

  #apply(entry: Entry, result: TimedProbe): void {
    const { state, models, detail } = result;
    const { clock, log, changed } = this.options;
    const before = entry.state;
    entry.probedAtMs = clock.now();
    entry.probes.add(result, entry.probedAtMs);
    entry.state = state;
    entry.detail = state === "Healthy" ? null : (detail ?? null);
    // A backend that cannot be probed keeps its last listing.
    if (state === "Healthy" || models.length > 0) entry.discovered = models;
    if (before !== state) {
      log.info("backend health changed", { backend: entry.config.name, from: before, to: state, detail });
    }
    changed(entry, before);
  }
}
