import { oneAtATime } from "../kernel/bounded.ts";
import type { Clock } from "../kernel/clock.ts";
import { inBackground, type Log } from "../kernel/log.ts";
import { PRINCIPAL_CHANGED } from "../kernel/topics.ts";
import type { Bus, Recheck, Revocations } from "./contract.ts";

/** While other instances cannot be reached, everything is rechecked this often. */
const UNHEARD_PERIOD_MS = 1_000;

export class BusRevocations implements Revocations {
  readonly #rechecks: Recheck[] = [];
  readonly #stop: () => void;
  /** A round may take longer than the period; the next starts after it. */
  readonly #recheckAll = oneAtATime(() => Promise.allSettled(this.#recheck(null)));

  constructor(readonly options: { bus: Bus; clock: Clock; log: Log }) {
    const { bus, clock } = options;
    bus.subscribe(PRINCIPAL_CHANGED, (id) => this.#recheck(id));
    bus.onGap(() => void this.#recheckAll());
    this.#stop = clock.every(UNHEARD_PERIOD_MS, () => {
      if (!bus.connected) void this.#recheckAll();
    });
  }

  onChange(recheck: Recheck): void {
    this.#rechecks.push(recheck);
  }

  close(): void {
    this.#stop();
  }

  #recheck(id: string | null): Promise<void>[] {
    return this.#rechecks.map((recheck) => {
      const checking = recheck(id);
      inBackground(this.options.log, "checking what a revocation ends", checking);
      return checking;
    });
  }
}
