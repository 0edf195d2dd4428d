import type { Result } from "@model-gateway/client";
import { api } from "./api.ts";
import { session } from "./client.ts";
import { useQuery } from "./query.ts";
import { useStore } from "./store.ts";

/** There is no notification for it, so it is polled while the page is visible. */
const EVERY_MS = 5_000;
const MINUTE_MS = 60_000;

export type Activity = Result<"system.activity">;
export type BackendActivity = Activity["backends"][number];
export type Probe = BackendActivity["probes"][number];
export type RequestFailure = Activity["failures"][number];

/** The instance's recent activity; for administrators only. */
export function useActivity() {
  const isAdmin = Boolean(useStore(session)?.user?.is_admin);
  return useQuery(isAdmin ? "activity" : null, () => api("system.activity"), { everyMs: EVERY_MS });
}

/** Requests a minute of the key that makes most of them, over this minute and the last: sums are kept by the minute. */
export async function busiestKeyPerMinute(): Promise<number> {
  const nowMs = Date.now();
  const sinceMs = nowMs - (nowMs % MINUTE_MS) - MINUTE_MS;
  const { keys } = await api("requests.stats", { since: new Date(sinceMs).toISOString(), with_keys: true });
  const most = Math.max(0, ...keys.map(({ key_id, requests }) => (key_id === null ? 0 : requests)));
  return (most * MINUTE_MS) / (nowMs - sinceMs);
}
