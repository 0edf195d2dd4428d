import { type Asking, grantedChanges, REFUSED, type Reservations, type ReservedChange } from "../contract.ts";
import { InProcessReservations } from "../in-process/reservations.ts";
import type { WorkerLink } from "./link.ts";

/**
 * What all workers have reserved, counted by the supervisor. This worker's own part is also kept here: it decides
 * while the supervisor is unreachable, and every new connection begins with it.
 */
export class WorkerReservations implements Reservations {
  readonly #own = new InProcessReservations();

  constructor(readonly options: { link: WorkerLink; worker: string }) {
    const { link, worker } = options;
    link.use({ entered: () => link.send(["enter", 0, worker, this.#ownChanges()]) });
  }

  grant(asking: Asking): number | Promise<number> {
    const { link } = this.options;
    if (!link.connected) return this.#grantAlone(asking);
    return link
      .ask((id) => ["grant", id, asking])
      .then(
        (units) => {
          if (units !== REFUSED) this.#own.change(grantedChanges(asking, units));
          return units;
        },
        () => this.#grantAlone(asking),
      );
  }

  change(changes: readonly ReservedChange[]): void {
    this.#own.change(changes);
    this.options.link.send(["change", changes]);
  }

  #grantAlone(asking: Asking): number {
    const units = this.#own.grant(asking);
    // A connection that is being made may have been told of what was reserved before this.
    if (units !== REFUSED) this.options.link.send(["change", grantedChanges(asking, units)]);
    return units;
  }

  #ownChanges(): ReservedChange[] {
    return Array.from(this.#own.entries(), ([name, amount]) => ({ name, amount: { ...amount } }));
  }

  /** A clean stop frees everything at once. */
  async close(): Promise<void> {
    await this.options.link.ask((id) => ["leave", id]).catch(() => {});
  }
}
