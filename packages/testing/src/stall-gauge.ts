/** Loaded before the gateway (`--preload`): how long its event loop is kept from everyone else, told by `Stalls`. */
const TICK_MS = 1;

const told = new Float64Array(Bun.mmap(process.env.STALL_FILE!).buffer);
let lastMs = performance.now();
let lastCpu = process.threadCpuUsage();
setInterval(() => {
  const nowMs = performance.now();
  const cpu = process.threadCpuUsage(lastCpu);
  told[0] = Math.max(told[0]!, nowMs - lastMs - TICK_MS);
  told[1] = Math.max(told[1]!, (cpu.user + cpu.system) / 1_000);
  told[2]!++;
  lastMs = nowMs;
  lastCpu = process.threadCpuUsage();
}, TICK_MS).unref();
