import { useEffect, useRef, useState } from "react";
import { api } from "./api.ts";
import { type Query, useQuery } from "./query.ts";

/** Within this many pixels of the end, the reader wants to see what comes next. */
const NEAR_END_PX = 320;

/** Keeps the end of the page in sight while it grows, unless the reader has scrolled away. */
export function useFollowEnd(growing: unknown): void {
  // biome-ignore lint/correctness/useExhaustiveDependencies: its change is what makes the page grow
  useEffect(() => {
    const { scrollHeight } = document.documentElement;
    if (scrollHeight - innerHeight - scrollY < NEAR_END_PX) scrollTo({ top: scrollHeight });
  }, [growing]);
}

const STATUS_EVERY_MS = 3_000;
const SAMPLES_MAX = 60;

type Status = Awaited<ReturnType<typeof statusNow>>;
const statusNow = () => api("system.status");

/** The service's figures of this moment and what they were since the page was opened. */
export function useSystemStatus(): Query<Status> & { samples: readonly number[] } {
  const query = useQuery("status", statusNow, { everyMs: STATUS_EVERY_MS });
  const [samples, setSamples] = useState<readonly number[]>([]);
  const last = useRef<Status | undefined>(undefined);
  useEffect(() => {
    if (!query.data || query.data === last.current) return;
    last.current = query.data;
    const { requests_per_minute } = query.data;
    setSamples((before) => [...before, requests_per_minute].slice(-SAMPLES_MAX));
  }, [query.data]);
  return { ...query, samples };
}
