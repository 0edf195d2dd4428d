import type {
  Holding,
  LimitAnswer,
  LimitOrder,
  LimitServer,
  PurseAnswer,
  PurseOrder,
  PurseServer,
} from "../slices/contract.ts";
import type { WorkerLink } from "./link.ts";

/** The purses that the supervisor counts. */
export class WorkerPurses implements PurseServer {
  constructor(
    readonly link: WorkerLink,
    readonly worker: string,
  ) {}

  get available(): boolean {
    return this.link.connected;
  }

  hold(instance: string, orders: readonly PurseOrder[]): Promise<readonly PurseAnswer[] | null> {
    return this.link.ask("hold", instance, orders);
  }

  /** The supervisor knows which id the worker had before. */
  enter(instance: string, _before: string, holdings: readonly Holding[]): Promise<string> {
    return this.link.ask("enter", this.worker, instance, holdings);
  }

  beat(instance: string): Promise<boolean> {
    return this.link.ask("lives", instance);
  }

  async leave(instance: string): Promise<void> {
    await this.link.ask("leave", instance);
  }
}

/** The limits that the supervisor counts. */
export class WorkerLimits implements LimitServer {
  constructor(readonly link: WorkerLink) {}

  get available(): boolean {
    return this.link.connected;
  }

  hit(orders: readonly LimitOrder[]): Promise<readonly LimitAnswer[]> {
    return this.link.ask("hit", orders);
  }
}
