import { systemClock } from "../../kernel/clock.ts";
import type { CounterServer } from "../counter-server.ts";
import type { BusOptions, Shared } from "../index.ts";
import { SharedCounter } from "../shared-counter.ts";
import { WorkerBus } from "./bus.ts";

/** Uses real time, like the link, even if tests give the rooms another clock. */
export async function openWorkerBus(path: string, { ids, log }: BusOptions): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  const bus = new WorkerBus({ path, log });
  half.defer(() => bus.close());
  const { link } = bus;
  await link.open().catch((error: Error) => {
    throw new Error(`the supervisor's socket ${path} cannot be used: ${error.message}`, { cause: error });
  });
  const server: CounterServer = {
    get available() {
      return link.connected;
    },
    ask: (instance, asks) => link.ask("ask", instance, asks),
    enter: (instance) => link.ask("enter", instance),
    leave: (instances) => link.ask("leave", instances),
  };
  const counter = new SharedCounter({ server, bus, clock: systemClock, ids, log });
  half.defer(() => counter.close());
  await counter.open();
  const whole = half.move();
  return { bus, counter, close: () => whole.disposeAsync() };
}
