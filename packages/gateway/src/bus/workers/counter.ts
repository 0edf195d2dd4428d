import type { Answer, Ask, CounterServer, Entry } from "../counter-server.ts";
import type { WorkerLink } from "./link.ts";

/** The supervisor counts. */
export class WorkerCounter implements CounterServer {
  constructor(readonly link: WorkerLink) {}

  get available(): boolean {
    return this.link.connected;
  }

  ask(instance: string, asks: readonly Ask[]): Promise<readonly Answer[] | null> {
    return this.link.ask("ask", instance, asks);
  }

  enter(instance: string): Promise<Entry> {
    return this.link.ask("enter", instance);
  }

  async leave(instances: readonly string[]): Promise<void> {
    await this.link.ask("leave", instances);
  }
}
