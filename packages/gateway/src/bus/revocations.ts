import type { Clock } from "../kernel/clock.ts";
import { inBackground, type Log } from "../kernel/log.ts";
import { PRINCIPAL_CHANGED } from "../kernel/topics.ts";
import type { Bus, Recheck, Revocations } from "./contract.ts";

/** While other instances cannot be heard, everything is checked again this often. */
const UNHEARD_PERIOD_MS = 1_000;

export class BusRevocations implements Revocations {
  readonly #rechecks: Recheck[] = [];
  readonly #stop: () => void;
  #isCheckingAll = false;

  constructor(readonly options: { bus: Bus; clock: Clock; log: Log }) {
    const { bus, clock } = options;
    bus.subscribe(PRINCIPAL_CHANGED, (id) => this.#recheck(id));
    bus.onGap(() => this.#recheckAll());
    this.#stop = clock.every(UNHEARD_PERIOD_MS, () => {
      if (!bus.connected) this.#recheckAll();
    });
  }

  onChange(recheck: Recheck): void {
    this.#rechecks.push(recheck);
  }

  close(): void {
    this.#stop();
  }

  /** A round may take longer than the period; the next one starts after it. */
  #recheckAll(): void {
    if (this.#isCheckingAll) return;
    this.#isCheckingAll = true;
    void Promise.allSettled(this.#recheck(null)).then(() => {
      this.#isCheckingAll = false;
    });
  }

  #recheck(id: string | null): Promise<void>[] {
    return this.#rechecks.map((recheck) => {
      const checking = recheck(id);
      inBackground(this.options.log, "checking what a revocation ends", checking);
      return checking;
    });
  }
}
