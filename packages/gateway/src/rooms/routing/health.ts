import type { HealthState, ProbeResult } from "../../backends/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { Entry } from "./entry.ts";

export const PROBE_PERIOD_MS = 60_000;
const PROBE_TIMEOUT_MS = 10_000;
const PROBES_AT_ONCE = 16;

export interface HealthOptions {
  clock: Clock;
  log: Log;
  entries: readonly Entry[];
  /** Brings the list up to date before each round. */
  refresh(): Promise<void>;
  /** An entry's state or listing may be another one now. */
  changed(entry: Entry, before: HealthState): void;
}

/** Probes every backend when it is registered and once a minute after that. */
export class HealthChecker {
  readonly #running = new WeakSet<Entry>();
  #stop: (() => void) | null = null;
  #roundRunning = false;

  constructor(readonly options: HealthOptions) {}

  start(): void {
    this.#stop = this.options.clock.every(PROBE_PERIOD_MS, () => void this.round());
  }
  stop(): void {
    this.#stop?.();
  }

  /** One probe of everything; a round that is still running is not overtaken by the next. */
  async round(): Promise<void> {
    if (this.#roundRunning) return;
    this.#roundRunning = true;
    try {
      await this.options.refresh();
      const waiting = [...this.options.entries];
      const worker = async () => {
        for (let entry = waiting.shift(); entry; entry = waiting.shift()) await this.probe(entry);
      };
      await Promise.all(Array.from({ length: PROBES_AT_ONCE }, worker));
    } finally {
      this.#roundRunning = false;
    }
  }

  async probe(entry: Entry): Promise<void> {
    if (this.#running.has(entry)) return;
    this.#running.add(entry);
    const { backend } = entry;
    const result = await this.#ask(entry);
    this.#running.delete(entry);
    // Replaced meanwhile, e.g. because its tunnel moved: the answer is about an address of the past.
    if (entry.removed) return;
    if (entry.backend !== backend) return this.probe(entry);
    this.#apply(entry, result);
  }

  async #ask({ backend }: Entry): Promise<ProbeResult> {
    const expiry = new AbortController();
    const detail = `no answer to a probe within ${PROBE_TIMEOUT_MS / 1000} s`;
    const cancel = this.options.clock.after(PROBE_TIMEOUT_MS, () => expiry.abort(new Error(detail)));
    try {
      return await backend.probe(expiry.signal);
    } catch (error) {
      return { state: "Unhealthy", models: [], detail: (error as Error).message };
    } finally {
      cancel();
    }
  }

  #apply(entry: Entry, { state, models, detail }: ProbeResult): void {
    const { clock, log, changed } = this.options;
    const before = entry.state;
    entry.probedAtMs = clock.now();
    entry.state = state;
    entry.detail = state === "Healthy" ? null : (detail ?? null);
    // A backend that cannot be asked is still known for what it listed last.
    if (state === "Healthy" || models.length > 0) entry.discovered = models;
    if (before !== state) {
      log.info("a backend's health changed", { backend: entry.config.name, from: before, to: state, detail });
    }
    changed(entry, before);
  }
}
