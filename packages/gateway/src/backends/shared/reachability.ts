import type { BackendDeps, ProbeResult } from "../contract.ts";

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
