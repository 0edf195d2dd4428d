import type { BackendHealth } from "@model-gateway/client";
import type { Tone } from "../ui/states.tsx";
import { adminToken, client } from "./client.ts";
import { useQuery } from "./query.ts";
import { useStore } from "./store.ts";

const EVERY_MS = 5_000;

export const HEALTH_TONE: Record<string, Tone> = { Healthy: "good", Degraded: "warn", Unhealthy: "bad" };

/** The backends from the admin API; not requested before the operator has entered the token. */
export function useBackends() {
  const token = useStore(adminToken);
  return useQuery(token === null ? null : "backends", () => client.admin.backends(), { everyMs: EVERY_MS });
}

export interface Circuit {
  state: string;
  retryAt: string | null;
  cause: string | null;
}

/** The circuit in one shape, whether the service sends a word or the details. */
export function circuitOf({ circuit, last_error }: BackendHealth): Circuit {
  if (typeof circuit === "object" && circuit !== null) {
    return {
      state: circuit.state,
      retryAt: circuit.retry_at ?? null,
      cause: circuit.cause ?? last_error ?? null,
    };
  }
  return { state: circuit ?? "unknown", retryAt: null, cause: last_error ?? null };
}

/** `backend_3:external` is the fourth registered backend. */
export const indexOf = ({ label }: BackendHealth): number => Number(/^backend_(\d+):/.exec(label)?.[1] ?? -1);
export const kindOf = ({ label }: BackendHealth): string => label.split(":")[1] ?? "unknown";
