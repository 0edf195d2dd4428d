/**
 * The runtime reads these once, before any code runs (docs/decisions/015):
 *
 * - without the first, 256 streams are the most at a time;
 * - without the second, it drops compiled code whenever there is little to do, and compiles it again when there is more;
 * - without the third, the collector wakes more cores than a few megabytes are worth;
 * - without the fourth, the allocator looks ten times a second for single pages that it can return to the system.
 */
export const RUNTIME_OPTIONS = {
  BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
  BUN_JSC_forceCodeBlockLiveness: "1",
  BUN_JSC_numberOfGCMarkers: "2",
  MIMALLOC_PURGE_HOLES_MIN_INTERVAL: "10000",
};

export const hasRuntimeOptions = (): boolean =>
  Object.keys(RUNTIME_OPTIONS).every((name) => process.env[name] !== undefined);

/** Starts this program again, with the options. It takes the place of this process, except on Windows. */
export async function startAgain(args: readonly string[]): Promise<never> {
  const env = { ...RUNTIME_OPTIONS, ...process.env };
  const command = [process.execPath, ...process.execArgv, ...args];
  if (process.platform !== "win32") process.execve!(process.execPath, command, env);
  const child = Bun.spawn(command, { env, stdio: ["inherit", "inherit", "inherit"] });
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => child.kill(signal));
  process.exit(await child.exited);
}
