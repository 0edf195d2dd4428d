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

/**
 * Requests of the last minute by the key that makes most of them. They are summed by the clock's minutes: of the one
 * before, the part counts that is less than a minute ago.
 */
export async function busiestKeyPerMinute(): Promise<number> {
  const nowMs = Date.now();
  const since = new Date(nowMs - MINUTE_MS).toISOString();
  const { bins, askers, totals } = await api("requests.stats", { since, by: "key" });
  const [before = 0, now = 0] = bins.map(({ ok, refused, failed, left }) => ok + refused + failed + left);
  const most = Math.max(0, ...askers.map(({ id, requests }) => (id === null ? 0 : requests)));
  const lastMinute = before * (1 - (nowMs % MINUTE_MS) / MINUTE_MS) + now;
  return totals.requests === 0 ? 0 : lastMinute * (most / totals.requests);
}
