/** Whether an engine answers. */
import { describeError, errorCode } from "../errors.ts";
import { abortableDelay } from "../time.ts";

const PROBE_TIMEOUT_MS = 5_000;
const READY_POLL_MS = 200;

export type Health = { kind: "ok" } | { kind: "unwell" | "unreachable" | "silent"; why: string };

export async function probeHealth(
  url: string,
  signal: AbortSignal,
  timeoutMs = PROBE_TIMEOUT_MS,
): Promise<Health> {
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    const response = await fetch(url, {
      signal: AbortSignal.any([signal, timeout]),
      redirect: "manual",
      keepalive: false,
    });
    await response.body?.cancel();
    return response.ok ? { kind: "ok" } : { kind: "unwell", why: `HTTP ${response.status}` };
  } catch (error) {
    if (timeout.aborted) return { kind: "silent", why: `no answer within ${timeoutMs / 1000} s` };
    return { kind: "unreachable", why: errorCode(error) ?? describeError(error) };
  }
}

/** Polls until the engine answers well. Throws after the timeout, or the signal's reason. */
export async function waitUntilHealthy(wait: {
  url: string;
  timeoutMs: number;
  signal: AbortSignal;
  onWaiting: (waitedMs: number, why: string) => void;
}): Promise<void> {
  const startedAtMs = Date.now();
  for (;;) {
    const health = await probeHealth(wait.url, wait.signal);
    wait.signal.throwIfAborted();
    if (health.kind === "ok") return;
    const waitedMs = Date.now() - startedAtMs;
    if (waitedMs > wait.timeoutMs)
      throw new Error(`not ready within ${wait.timeoutMs / 1000} s (${wait.url}: ${health.why})`);
    wait.onWaiting(waitedMs, health.why);
    await abortableDelay(READY_POLL_MS, wait.signal);
  }
}

const WATCH_INTERVAL_MS = 10_000;
const MISSED_CHECKS_MAX = 3;

/** Returns why the engine has to be restarted; runs until then or until the signal is aborted. */
export async function watchHealth(
  url: string,
  signal: AbortSignal,
  { intervalMs = WATCH_INTERVAL_MS, timeoutMs = PROBE_TIMEOUT_MS } = {},
): Promise<string> {
  let missed = 0;
  for (;;) {
    await abortableDelay(intervalMs, signal);
    const health = await probeHealth(url, signal, timeoutMs);
    signal.throwIfAborted();
    missed = health.kind === "ok" ? 0 : missed + 1;
    if (health.kind !== "ok" && missed >= MISSED_CHECKS_MAX) return health.why;
  }
}
