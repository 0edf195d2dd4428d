/** Loaded before the gateway by `bench/stalls.ts`: watches how long its event loop is kept from everyone else. */
import { writeFileSync } from "node:fs";

const TICK_MS = 1;
const file = process.env.STALL_FILE!;

let longest = { wallMs: 0, cpuMs: 0 };
let lastMs = performance.now();
let lastCpuUs = 0;
const cpuUs = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};
setInterval(() => {
  const [nowMs, nowCpuUs] = [performance.now(), cpuUs()];
  const wallMs = nowMs - lastMs - TICK_MS;
  longest.wallMs = Math.max(longest.wallMs, wallMs);
  longest.cpuMs = Math.max(longest.cpuMs, (nowCpuUs - lastCpuUs) / 1_000);
  [lastMs, lastCpuUs] = [nowMs, nowCpuUs];
}, TICK_MS).unref();

/** Writes the longest stall since the last time. */
process.on("SIGUSR2", () => {
  writeFileSync(file, JSON.stringify(longest));
  longest = { wallMs: 0, cpuMs: 0 };
});
