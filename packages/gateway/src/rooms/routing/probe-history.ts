import type { HealthState, ProbeResult } from "../../backends/contract.ts";

/** One probe a minute for the last hour. */
const PROBES_KEPT = 60;
const DETAIL_LENGTH_MAX = 300;

/** What a probe found and how long it took; null where another instance probed and did not report it. */
export interface TimedProbe extends ProbeResult {
  latencyMs: number | null;
}

interface PastProbe {
  atMs: number;
  state: HealthState;
  latencyMs: number | null;
  detail: string | null;
}

export class ProbeHistory {
  readonly #probes: PastProbe[] = [];

  add({ state, latencyMs, detail }: TimedProbe, atMs: number): void {
    if (this.#probes.length === PROBES_KEPT) this.#probes.shift();
    this.#probes.push({ atMs, state, latencyMs, detail: detail?.slice(0, DETAIL_LENGTH_MAX) ?? null });
  }

  list(): readonly PastProbe[] {
    return this.#probes;
  }
}
