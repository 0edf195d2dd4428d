import type { Result } from "@model-gateway/client";
import type { Tone } from "../ui/states.tsx";
import { api } from "./api.ts";
import { session } from "./client.ts";
import { plural } from "./format.ts";
import { invalidate, useQuery } from "./query.ts";
import { useStore } from "./store.ts";

const EVERY_MS = 5_000;

export type Backend = Result<"backends.list">["backends"][number];

export const HEALTH_TONE: Record<string, Tone> = { Healthy: "good", Degraded: "warn", Unhealthy: "bad" };

/** Every backend with its health; asked for by administrators only. */
export function useBackends() {
  const isAdmin = Boolean(useStore(session)?.user.is_admin);
  return useQuery(isAdmin ? "backends" : null, () => api("backends.list"), { everyMs: EVERY_MS });
}

/** What is shown elsewhere, too, when a backend changes. */
export function backendsChanged(): void {
  for (const key of ["local servers", "backends", "models", "health", "activity", "prices"]) invalidate(key);
}

/** Which requests are kept away, since how many errors, and what lets them through again. */
function pausedInWords({ state, model, for_all, consecutive_failures, cause }: Backend["circuit"]): string {
  return [
    `${model ? `${model} paused` : "Paused"} after ${plural(consecutive_failures, "error")}`,
    !for_all && " of one caller, for them alone",
    state === "half_open" && "; the next request tests it",
    cause && `: ${cause}`,
  ]
    .filter(Boolean)
    .join("");
}

/** Health and circuit as the one thing that matters: does it get requests, and if not, why and until when. */
export function statusOf(backend: Backend): { tone: Tone; text: string; retryAt: string | null } {
  const { enabled, state, circuit, last_error, probed_at } = backend;
  if (!enabled) return { tone: "plain", text: "Disabled", retryAt: null };
  if (circuit.state !== "closed")
    return {
      // What concerns one model or one caller leaves the rest as it was.
      tone: circuit.state === "open" && !circuit.model && circuit.for_all ? "bad" : "warn",
      text: pausedInWords(circuit),
      retryAt: circuit.state === "open" ? circuit.retry_at : null,
    };
  if (probed_at === null) return { tone: "plain", text: "Not probed yet", retryAt: null };
  if (state === "Healthy") return { tone: "good", text: "Serving", retryAt: null };
  const reason = last_error ? `: ${last_error}` : "";
  return state === "Degraded"
    ? { tone: "warn", text: `Serving, with trouble${reason}`, retryAt: null }
    : { tone: "bad", text: `Not answering${reason}`, retryAt: null };
}
