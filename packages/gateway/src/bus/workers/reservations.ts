import { type Asking, grantedChanges, REFUSED, type Reservations, type ReservedChange } from "../contract.ts";
import { InProcessReservations } from "../in-process/reservations.ts";
import type { WorkerLink } from "./link.ts";
import { ReservedSums } from "./sums.ts";

/**
 * What all workers have reserved, counted by the supervisor. This worker's own part is also kept here: it decides
 * while the supervisor is unreachable, and every new connection begins with it.
 */
export class WorkerReservations implements Reservations {
  readonly #alone = new InProcessReservations();
  readonly #own = new ReservedSums();

  constructor(readonly options: { link: WorkerLink; worker: string }) {
    const { link, worker } = options;
    link.use({ entered: () => link.send(["enter", 0, worker, this.#own.all()]) });
  }

  grant(asking: Asking): number | Promise<number> {
    const { link } = this.options;
    if (!link.connected) return this.#grantAlone(asking);
    return link
      .ask((id) => ["grant", id, asking])
      .then(
        (units) => {
          if (units !== REFUSED) this.#note(grantedChanges(asking, units));
          return units;
        },
        () => this.#grantAlone(asking),
      );
  }

  change(changes: readonly ReservedChange[]): void {
    this.#note(changes);
    this.options.link.send(["change", changes]);
  }

  #note(changes: readonly ReservedChange[]): void {
    this.#alone.change(changes);
    this.#own.change(changes);
  }

  #grantAlone(asking: Asking): number {
    const units = this.#alone.grant(asking);
    if (units === REFUSED) return units;
    const changes = grantedChanges(asking, units);
    this.#own.change(changes);
    // A connection that is being made may have been told of what was reserved before this.
    this.options.link.send(["change", changes]);
    return units;
  }

  /** A clean stop frees everything at once. */
  async close(): Promise<void> {
    await this.options.link.ask((id) => ["leave", id]).catch(() => {});
  }
}
