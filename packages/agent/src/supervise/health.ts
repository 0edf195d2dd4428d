/** Whether an engine answers. */
import { describeError, errorCode } from "../errors.ts";
import { abortableDelay } from "../time.ts";

const PROBE_TIMEOUT_MS = 5_000;
const READY_POLL_MS = 200;

export type Health = { kind: "ok" } | { kind: "unwell" | "unreachable" | "slow"; why: string };

export async function probeHealth(url: string, signal: AbortSignal): Promise<Health> {
  const timeout = AbortSignal.timeout(PROBE_TIMEOUT_MS);
  try {
    const response = await fetch(url, {
      signal: AbortSignal.any([signal, timeout]),
      redirect: "manual",
      keepalive: false,
    });
    await response.body?.cancel();
    return response.ok ? { kind: "ok" } : { kind: "unwell", why: `HTTP ${response.status}` };
  } catch (error) {
    if (timeout.aborted) return { kind: "slow", why: `no answer within ${PROBE_TIMEOUT_MS / 1000} s` };
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
/** Definite failures count quickly; silence may only mean that the engine is busy with long prompts. */
const FAILURES_MAX = 3;
const SILENCES_MAX = 18;

/** Returns why the engine has to be restarted; runs until then or until the signal is aborted. */
export async function watchHealth(url: string, signal: AbortSignal): Promise<string> {
  let failures = 0;
  let silences = 0;
  for (;;) {
    await abortableDelay(WATCH_INTERVAL_MS, signal);
    const health = await probeHealth(url, signal);
    signal.throwIfAborted();
    if (health.kind === "ok") {
      failures = 0;
      silences = 0;
      continue;
    }
    if (health.kind === "slow") silences++;
    else failures++;
    if (failures >= FAILURES_MAX || silences >= SILENCES_MAX) return health.why;
  }
}
