import type { Result } from "@model-gateway/client";
import { api } from "./api.ts";
import { session } from "./client.ts";
import { useQuery } from "./query.ts";
import { useStore } from "./store.ts";

/** There is no notification for it, so it is polled while the page is visible. */
const EVERY_MS = 5_000;

export type Activity = Result<"system.activity">;
export type BackendActivity = Activity["backends"][number];
export type Probe = BackendActivity["probes"][number];
export type RequestFailure = Activity["failures"][number];

/** The instance's recent activity; for administrators only. */
export function useActivity() {
  const isAdmin = Boolean(useStore(session)?.user?.is_admin);
  return useQuery(isAdmin ? "activity" : null, () => api("system.activity"), { everyMs: EVERY_MS });
}
