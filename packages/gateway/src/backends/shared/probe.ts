import { hideSecrets } from "../../kernel/secrets.ts";
import { BackendError, type ProbeResult } from "../contract.ts";

/** Busy rather than broken: it answers, but asks for patience. */
const BUSY_STATUS = new Set([429, 503]);

/** What a failed probe says about its backend. */
export function probeFailure(error: unknown): ProbeResult {
  const busy = error instanceof BackendError && error.status !== undefined && BUSY_STATUS.has(error.status);
  const detail = hideSecrets(error instanceof Error ? error.message : String(error));
  return { state: busy ? "Degraded" : "Unhealthy", models: [], detail: detail.slice(0, 500) };
}
