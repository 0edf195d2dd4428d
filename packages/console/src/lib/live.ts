import { type RefObject, useEffect, useRef, useState } from "react";
import { api } from "./api.ts";
import { type Query, useQuery } from "./query.ts";

/** Within this many pixels of the end, the reader wants to see what comes next. */
const NEAR_END_PX = 120;

/** Keeps the end of a scrolling box in sight while it grows, unless the reader has scrolled away from it. */
export function useStickToEnd(box: RefObject<HTMLElement | null>, growing: unknown): void {
  const isAway = useRef(false);
  useEffect(() => {
    const element = box.current;
    const note = () => {
      const { scrollHeight, scrollTop, clientHeight } = element!;
      isAway.current = scrollHeight - scrollTop - clientHeight > NEAR_END_PX;
    };
    element?.addEventListener("scroll", note, { passive: true });
    return () => element?.removeEventListener("scroll", note);
  }, [box]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: its change is what makes the box grow
  useEffect(() => {
    if (!isAway.current) box.current?.scrollTo({ top: box.current.scrollHeight });
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
