import type { CounterAnswer, CounterAsk, CounterEntry, CounterServer } from "../counter-server.ts";
import type { WorkerLink } from "./link.ts";

export class WorkerCounter implements CounterServer {
  constructor(readonly link: WorkerLink) {}

  get available(): boolean {
    return this.link.connected;
  }

  ask(instance: string, asks: readonly CounterAsk[]): Promise<readonly CounterAnswer[] | null> {
    return this.link.ask("ask", instance, asks);
  }

  enter(instance: string): Promise<CounterEntry> {
    return this.link.ask("enter", instance);
  }

  async leave(instances: readonly string[]): Promise<void> {
    await this.link.ask("leave", instances);
  }
}
