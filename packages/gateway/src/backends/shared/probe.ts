import { MODEL_ID_LENGTH_MAX } from "../../kernel/request-row.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import {
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type CapabilityName,
  type ModelInfo,
  type ProbeResult,
} from "../contract.ts";

const BUSY_STATUSES: readonly unknown[] = [429, 503];

export function probeFailure(error: unknown): ProbeResult {
  const isBusy = error instanceof BackendError && BUSY_STATUSES.includes(error.status);
  const detail = hideSecrets(error instanceof Error ? error.message : String(error));
  return { state: isBusy ? "Degraded" : "Unhealthy", models: [], detail: detail.slice(0, 500) };
}

/** For APIs without a free listing: without spending tokens we can only learn whether they answer. */
export async function reachability(
  fetch: BackendDeps["fetch"],
  url: string,
  signal: AbortSignal,
): Promise<ProbeResult> {
  try {
    const response = await fetch(url, { method: "HEAD", signal, redirect: "manual" });
    await response.body?.cancel();
    if (response.status < 500) return { state: "Healthy", models: [] };
    return { state: "Degraded", models: [], detail: `the API answers ${response.status}` };
  } catch (error) {
    return { state: "Unhealthy", models: [], detail: (error as Error).message };
  }
}

const MODELS_MAX = 10_000;

/** Drops what is beyond the limits: more models or longer ids are a server's mistake. */
export const boundedModels = (models: readonly ModelInfo[]): ModelInfo[] =>
  models.filter(({ id }) => id.length > 0 && id.length <= MODEL_ID_LENGTH_MAX).slice(0, MODELS_MAX);

/** Without a list by the operator, anything is possible. */
export const declares = ({ capabilities }: BackendConfig, capability: CapabilityName): boolean =>
  !capabilities?.length || capabilities.includes(capability);
