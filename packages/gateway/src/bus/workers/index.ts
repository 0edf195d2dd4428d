import { systemClock } from "../../kernel/clock.ts";
import type { CounterAnswers, CounterAsk, CounterEntry, CounterServer } from "../counter-server.ts";
import type { BusOptions, Shared } from "../index.ts";
import { SharedCounter } from "../shared-counter.ts";
import { WorkerBus } from "./bus.ts";
import { WorkerLink } from "./link.ts";

/** In real time, as the link is, even when tests give the rooms another clock. */
export async function openWorkerBus(path: string, { ids, log }: BusOptions): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  const link = new WorkerLink({ path, log });
  half.defer(() => link.close());
  const bus = new WorkerBus(link);
  half.defer(() => bus.close());
  await link.open().catch((error: Error) => {
    throw new Error(`the supervisor's socket ${path} cannot be used: ${error.message}`, { cause: error });
  });
  const server = new WorkerCounter(link);
  const counter = new SharedCounter({ server, bus, clock: systemClock, ids, log });
  half.defer(() => counter.close());
  await counter.open();
  const writeTurn = async () => {
    const isOurs = await link.ask("write").catch(() => false);
    return () => {
      if (isOurs) link.send(["written"]);
    };
  };
  const whole = half.move();
  return { bus, counter, writeTurn, close: () => whole.disposeAsync() };
}

class WorkerCounter implements CounterServer {
  constructor(readonly link: WorkerLink) {}

  get available(): boolean {
    return this.link.connected;
  }

  ask(instance: string, asks: readonly CounterAsk[]): Promise<CounterAnswers | null> {
    return this.link.ask("ask", instance, asks);
  }

  enter(instance: string): Promise<CounterEntry> {
    return this.link.ask("enter", instance);
  }

  async leave(instances: readonly string[]): Promise<void> {
    await this.link.ask("leave", instances);
  }
}
