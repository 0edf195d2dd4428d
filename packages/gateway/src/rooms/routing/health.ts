import type { Backend, HealthState, ProbeResult } from "../../backends/contract.ts";
import { oneAtATime } from "../../kernel/bounded.ts";
import { withDeadline } from "../../kernel/clock.ts";
import { inBackground } from "../../kernel/log.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import type { Needs } from "../foundation.ts";
import { type Entry, isServing, type TimedProbe } from "./entry.ts";

const PROBE_PERIOD_MS = 60_000;
/** One probe a minute for the last hour. */
const PROBES_KEPT = 60;
const DETAIL_LENGTH_MAX = 300;
const PROBE_TIMEOUT_MS = 10_000;
const PROBES_AT_ONCE = 16;
/** Timeout for a backend that is away: short, so that the next probe comes soon. */
const RECOVERY_TIMEOUT_MS = 2_000;
/** Every 4th recovery probe uses the normal timeout, in case the backend is just slow. */
const PATIENT_EVERY = 4;
const RECOVERY_PAUSE_MIN_MS = 500;
const RECOVERY_PAUSE_MAX_MS = 1_500;
/** Pauses grow with the outage: a twentieth of how long it has lasted. */
const RECOVERY_PAUSE_SHARE = 1 / 20;
/** Between the first good probe and the second, after which a call may test the backend. */
const CONFIRM_PAUSE_MS = 100;
/** After an outage of this length, a few seconds more do not matter. */
const LONG_OUTAGE_MS = 600_000;
const LONG_OUTAGE_PAUSE_MS = 10_000;

export function recoveryPauseMs(awayMs: number): number {
  if (awayMs >= LONG_OUTAGE_MS) return LONG_OUTAGE_PAUSE_MS;
  return Math.min(RECOVERY_PAUSE_MAX_MS, Math.max(RECOVERY_PAUSE_MIN_MS, awayMs * RECOVERY_PAUSE_SHARE));
}

interface HealthOptions extends Needs<"clock" | "log"> {
  entries: readonly Entry[];
  refresh(): Promise<void>;
  changed(entry: Entry, before: HealthState): void;
  probed(entry: Entry, isWell: boolean): void;
}

interface Outage {
  sinceMs: number;
  probes: number;
  cancel: () => void;
}

/** Probes every backend once a minute, and about every second while it is away. Every instance does this. */
export class HealthChecker {
  readonly #running = new WeakMap<Entry, Promise<void>>();
  readonly #outages = new Map<Entry, Outage>();
  #stop: (() => void) | null = null;
  /** Skipped while the last round is still running. */
  readonly #round = oneAtATime(() => this.#probeAll());
  #isStopped = false;

  constructor(readonly options: HealthOptions) {}

  start(): void {
    this.#stop = this.options.clock.every(PROBE_PERIOD_MS, () => void this.#round());
  }
  stop(): void {
    this.#stop?.();
    this.#isStopped = true;
    for (const { cancel } of this.#outages.values()) cancel();
    this.#outages.clear();
  }

  /** Probes it until it serves again, starting now if connections to it were lost. */
  watchOver(entry: Entry): void {
    const nowMs = this.options.clock.now();
    if (this.#isStopped || entry.removed || isServing(entry, nowMs) || this.#outages.has(entry)) return;
    const sinceMs = entry.circuits.awaySinceMs ?? nowMs;
    this.#outages.set(entry, { sinceMs, probes: 0, cancel: () => {} });
    if (entry.circuits.isLost(nowMs)) this.#probeAgain(entry);
    else this.#probeLater(entry);
  }

  #probeLater(entry: Entry): void {
    const outage = this.#outages.get(entry);
    if (!outage) return;
    const { clock } = this.options;
    const nowMs = clock.now();
    if (entry.removed || isServing(entry, nowMs)) {
      this.#outages.delete(entry);
      entry.nextProbeMs = null;
      return;
    }
    const pauseMs = entry.state === "Healthy" ? CONFIRM_PAUSE_MS : recoveryPauseMs(nowMs - outage.sinceMs);
    entry.nextProbeMs = nowMs + pauseMs;
    outage.cancel = clock.after(pauseMs, () => this.#probeAgain(entry));
  }

  #probeAgain(entry: Entry): void {
    const outage = this.#outages.get(entry);
    if (!outage || this.#isStopped) return;
    outage.probes++;
    const timeoutMs = outage.probes % PATIENT_EVERY === 0 ? PROBE_TIMEOUT_MS : RECOVERY_TIMEOUT_MS;
    const probing = this.probe(entry, timeoutMs).finally(() => this.#probeLater(entry));
    inBackground(this.options.log, "a probe", probing);
  }

  probeSoon(entry: Entry): void {
    inBackground(this.options.log, "a probe", this.probe(entry));
  }

  async #probeAll(): Promise<void> {
    await this.options.refresh();
    const waiting = [...this.options.entries].values();
    const worker = async () => {
      for (const entry of waiting) await this.probe(entry);
    };
    await Promise.all(Array.from({ length: PROBES_AT_ONCE }, worker));
  }

  /** Joins a probe that is already running. */
  probe(entry: Entry, timeoutMs = PROBE_TIMEOUT_MS): Promise<void> {
    const running = this.#running.get(entry);
    if (running) return running;
    const probing = this.#probe(entry, timeoutMs).finally(() => this.#running.delete(entry));
    this.#running.set(entry, probing);
    return probing;
  }

  /** Starts a new probe, because the result of a running one may be out of date. */
  async recheck(entry: Entry): Promise<void> {
    await this.#running.get(entry);
    await this.probe(entry);
  }

  async #probe(entry: Entry, timeoutMs: number): Promise<void> {
    const { backend } = entry;
    const result = await this.ask(backend, timeoutMs);
    if (entry.removed) return;
    // Replaced meanwhile, e.g. because its tunnel moved: the answer came from the old address.
    if (entry.backend === backend) this.#apply(entry, result);
    else await this.#probe(entry, timeoutMs);
  }

  async ask(backend: Backend, timeoutMs = PROBE_TIMEOUT_MS): Promise<TimedProbe> {
    const { clock } = this.options;
    const startedMs = clock.now();
    const late = `no answer to a probe within ${timeoutMs / 1000} s`;
    const probing = withDeadline(clock, { delayMs: timeoutMs, late }, (signal) => backend.probe(signal));
    const result = await probing.catch(
      ({ message: detail }: Error): ProbeResult => ({ state: "Unhealthy", models: [], detail }),
    );
    return { ...result, latencyMs: clock.now() - startedMs };
  }

  #apply(entry: Entry, { state, models, latencyMs, ...result }: TimedProbe): void {
    const detail = result.detail && hideSecrets(result.detail);
    const { clock, log, changed, probed } = this.options;
    const before = entry.state;
    entry.probedAtMs = clock.now();
    entry.probes.push({
      atMs: entry.probedAtMs,
      state,
      latencyMs,
      detail: detail?.slice(0, DETAIL_LENGTH_MAX) ?? null,
    });
    if (entry.probes.length > PROBES_KEPT) entry.probes.shift();
    entry.state = state;
    entry.detail = state === "Healthy" ? null : (detail ?? null);
    // A backend that cannot be probed keeps its last listing.
    if (state === "Healthy" || models.length > 0) entry.discovered = models;
    if (before !== state) {
      log.info("backend health changed", { backend: entry.config.name, from: before, to: state, detail });
    }
    changed(entry, before);
    probed(entry, state === "Healthy");
    this.watchOver(entry);
  }
}
