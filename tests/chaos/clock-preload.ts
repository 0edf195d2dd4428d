/**
 * Loaded before the service by its process: what the wall clock says can be moved from outside, as when a machine's
 * clock is set. Timers and `performance.now()` go on as they do then. SIGUSR2 makes it read the offset again.
 */
import { readFileSync } from "node:fs";

const file = process.env.CHAOS_CLOCK_FILE ?? "";
const SystemDate = Date;
let offsetMs = 0;
const read = () => {
  offsetMs = Number(readFileSync(file, "utf8"));
};
const now = () => SystemDate.now() + offsetMs;

globalThis.Date = new Proxy(SystemDate, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
  apply: () => new SystemDate(now()).toString(),
  get: (target, name, receiver) => (name === "now" ? now : Reflect.get(target, name, receiver)),
});

read();
process.on("SIGUSR2", read);
