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

/** Busy rather than broken: it answers, but asks for patience. */
const BUSY_STATUS = new Set([429, 503]);

export function probeFailure(error: unknown): ProbeResult {
  const busy = error instanceof BackendError && error.status !== undefined && BUSY_STATUS.has(error.status);
  const detail = hideSecrets(error instanceof Error ? error.message : String(error));
  return { state: busy ? "Degraded" : "Unhealthy", models: [], detail: detail.slice(0, 500) };
}

/** For APIs without a free listing: whether it answers is all we can learn without spending tokens. */
export async function reachability({
  fetch,
  url,
  signal,
}: {
  fetch: BackendDeps["fetch"];
  url: string;
  signal: AbortSignal;
}): Promise<ProbeResult> {
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

/** The part of a listing that is kept. More models, or longer ids, are a server's mistake. */
export const boundedModels = (models: readonly ModelInfo[]): ModelInfo[] =>
  models.filter(({ id }) => id.length > 0 && id.length <= MODEL_ID_LENGTH_MAX).slice(0, MODELS_MAX);

/** The operator's list decides; without one, nothing is ruled out. */
export const declares = ({ capabilities }: BackendConfig, capability: CapabilityName): boolean =>
  !capabilities?.length || capabilities.includes(capability);
