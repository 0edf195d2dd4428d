import { until } from "@model-gateway/testing/until.ts";
import type { FaultRecord } from "./records.ts";
import type { Fault } from "./schedule.ts";
import type { World } from "./world.ts";

/** Lets one fault happen and takes it back; resolves with what it was once things work again. */
export async function inflict(world: World, fault: Fault): Promise<FaultRecord> {
  await Bun.sleep(fault.pauseMs);
  const beganMs = Date.now();
  const heal = await begin(world, fault);
  await Bun.sleep(fault.holdMs);
  await heal();
  return { kind: fault.kind, target: fault.target, beganMs, endedMs: Date.now() };
}

type Heal = () => unknown;

const WRITTEN_WITHIN_MS = 90_000;

/** Rows that the disk refused are in memory only, where a kill may take them; so it waits until they are written. */
async function untilWritten(world: World, index: number): Promise<void> {
  const count = (words: string) => world.log(index).split(words).length;
  await until(
    "rows that the full disk refused are written",
    () => count("usage journal is writable again") >= count("keeping rows in memory"),
    WRITTEN_WITHIN_MS,
  );
}

async function begin(world: World, { kind, target, byMs }: Fault): Promise<Heal> {
  if (kind === "jump") {
    world.jump(byMs);
    return () => world.jump(0);
  }
  const disk = world.disks.get(target);
  if (disk) {
    disk.fill();
    return async () => {
      disk.free();
      await untilWritten(world, Number(target.split(" ")[1]));
    };
  }
  const line = world.lines.get(target);
  if (line) return beginOnLine(line, kind);
  const victim = world.victims.get(target)!;
  if (kind === "freeze") {
    await victim.freeze!();
    return () => victim.resume!();
  }
  if (kind === "restart") {
    await victim.restart!();
    return () => {};
  }
  await victim.kill!();
  return () => victim.start!();
}

function beginOnLine(line: NonNullable<ReturnType<World["lines"]["get"]>>, kind: Fault["kind"]): Heal {
  if (kind === "cut") {
    line.cut();
    return () => {};
  }
  if (kind === "half-open") {
    line.halfOpen();
    return () => line.resetHalfOpen();
  }
  line.set(kind === "stall" ? "stall" : "slow");
  return () => line.set("pass");
}
