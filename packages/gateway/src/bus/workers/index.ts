import { systemClock } from "../../kernel/clock.ts";
import type { BusOptions, Shared, SupervisorAddress } from "../index.ts";
import { Sliced } from "../slices/sliced.ts";
import { WorkerBus } from "./bus.ts";
import { WorkerLink } from "./link.ts";
import { WorkerLimits, WorkerPurses } from "./servers.ts";

/** In real time, as the link is, even when tests give the rooms another clock. */
export async function openWorkerBus(
  { path, worker }: SupervisorAddress,
  { ids, log }: BusOptions,
): Promise<Shared> {
  await using half = new AsyncDisposableStack();
  const link = new WorkerLink({ path, log });
  half.defer(() => link.close());
  const bus = new WorkerBus(link);
  half.defer(() => bus.close());
  const servers = [{ limits: new WorkerLimits(link), purses: new WorkerPurses(link, worker) }];
  const sliced = new Sliced({ servers, groupOf: () => 0, bus, clock: systemClock, ids, log });
  half.defer(() => sliced.close());
  await link.open().catch((error: Error) => {
    throw new Error(`the supervisor's socket ${path} cannot be used: ${error.message}`, { cause: error });
  });
  await sliced.enter();
  const writeTurn = async () => {
    const isOurs = await link.ask("write").catch(() => false);
    return () => {
      if (isOurs) link.send(["written"]);
    };
  };
  const whole = half.move();
  const { limiter, reservations } = sliced;
  return { bus, limiter, reservations, writeTurn, close: () => whole.disposeAsync() };
}
