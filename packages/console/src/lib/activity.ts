import type { Result } from "@model-gateway/client";
import { api } from "./api.ts";
import { session } from "./client.ts";
import { useQuery } from "./query.ts";
import { useStore } from "./store.ts";

/** There is no notification for it, so it is asked for while the page is looked at. */
const EVERY_MS = 5_000;

export type Activity = Result<"system.activity">;
export type BackendActivity = Activity["backends"][number];
export type Probe = BackendActivity["probes"][number];
export type RequestFailure = Activity["failures"][number];

/** What the instance has been doing; asked for by administrators only. */
export function useActivity() {
  const isAdmin = Boolean(useStore(session)?.user?.is_admin);
  return useQuery(isAdmin ? "activity" : null, () => api("system.activity"), { everyMs: EVERY_MS });
}
