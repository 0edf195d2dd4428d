import type { Params, Result } from "@model-gateway/client";
import { useEffect, useMemo, useRef, useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";

export type RequestRecord = Result<"requests.list">["records"][number];
export type RequestStats = Result<"requests.stats">;
export type RequestFigures = RequestStats["totals"];
export type Which = Omit<Params<"requests.list">, "since" | "until" | "cursor" | "limit">;

export const OUTCOMES = ["ok", "left", "refused", "failed"] as const;
export type Outcome = (typeof OUTCOMES)[number];
export const OUTCOME_NAMES: Readonly<Record<Outcome, string>> = {
  ok: "Answered",
  left: "Client left",
  refused: "Refused",
  failed: "Failed",
};

const HOUR_MS = 3_600_000;
export const RANGES = {
  "1h": { label: "1 hour", ms: HOUR_MS },
  "6h": { label: "6 hours", ms: 6 * HOUR_MS },
  "24h": { label: "24 hours", ms: 24 * HOUR_MS },
  "7d": { label: "7 days", ms: 7 * 24 * HOUR_MS },
  "30d": { label: "30 days", ms: 30 * 24 * HOUR_MS },
} as const;
export type RangeName = keyof typeof RANGES;

/** What can be chosen from lists; the empty text is "any". */
export const PICKS = ["model", "backend", "surface", "code", "key", "user"] as const;
/** What is typed. */
export const TYPED = ["project", "ref"] as const;
export type Picked = (typeof PICKS)[number];

/** An address can be typed by hand; unknown values in it are ignored. */
const oneOf = <T extends string>(known: readonly T[], asked: string | null): T | null =>
  known.find((value) => value === asked) ?? null;
const instantIn = (text: string | null) =>
  text !== null && !Number.isNaN(Date.parse(text)) ? new Date(text).toISOString() : null;

/** Filters live in the address, so that a view can be pasted to someone else. */
export function useFilters(isAdmin: boolean) {
  const [search, set] = useSearch();
  const since = instantIn(search.get("since"));
  const until = instantIn(search.get("until"));
  const isCustom = since !== null && until !== null && since < until;
  const range = oneOf(Object.keys(RANGES) as RangeName[], search.get("range")) ?? "24h";
  const whose = search.get("whose") ?? (isAdmin ? "everyone" : "mine");
  const outcome = oneOf(OUTCOMES, search.get("outcome"));
  const text = search.toString();
  const which = useMemo((): Which => {
    const read = new URLSearchParams(text);
    const pick = (name: string) => read.get(name) || undefined;
    const isGroup = whose !== "mine" && whose !== "everyone";
    return {
      ...(whose === "everyone" && isAdmin && { everyone: true }),
      ...(isGroup && { group_id: whose }),
      ...(outcome && { outcome }),
      model: pick("model"),
      backend: pick("backend"),
      surface: pick("surface"),
      code: pick("code"),
      key_id: pick("key"),
      project: pick("project"),
      ref_id: pick("ref"),
      ...(whose !== "mine" && { user_id: pick("user") }),
    };
  }, [text, whose, outcome, isAdmin]);
  /** The period now: one that is relative moves on. */
  const period = () =>
    isCustom ? { since, until } : { since: new Date(Date.now() - RANGES[range].ms).toISOString() };
  const key = JSON.stringify([which, isCustom ? [since, until] : range]);
  const open = search.get("open");
  const live = search.get("live") === "1" && !isCustom;
  return {
    range: isCustom ? null : range,
    since,
    until,
    whose,
    outcome,
    which,
    period,
    key,
    open,
    live,
    set,
  };
}
export type Filters = ReturnType<typeof useFilters>;

/** Also who asked most, which takes longest. */
export const useAskers = (
  { which, period, key }: Pick<Filters, "which" | "period" | "key">,
  by: Params<"requests.stats">["by"],
) =>
  useQuery(by ? `request askers ${by} ${key}` : null, () =>
    api("requests.stats", { ...which, ...period(), by }),
  );

const TAIL_MAX = 200;
const RETRY_MS = 3_000;

/**
 * Requests as they end, newest first, and how many were too many to be sent. `reload` loads the list that they are shown
 * above: it has to have what ended before they are followed, and what was shown here afterwards.
 */
export function useTail(which: Which, live: boolean, reload: () => Promise<void>) {
  const [tail, setTail] = useState<{ records: readonly RequestRecord[]; skipped: number }>(NOTHING);
  const wanted = JSON.stringify(which);
  useEffect(() => {
    const begin = () => {
      setTail(NOTHING);
      void reload();
    };
    if (!live) {
      begin();
      return;
    }
    const aborter = new AbortController();
    const heard = (records: RequestRecord[], skipped: number) =>
      setTail((now) => ({
        records: [...records.toReversed(), ...now.records].slice(0, TAIL_MAX),
        skipped: now.skipped + skipped,
      }));
    void follow(JSON.parse(wanted) as Which, aborter.signal, { begin, heard });
    return () => aborter.abort();
  }, [wanted, live, reload]);
  return tail;
}
const NOTHING = { records: [], skipped: 0 };

async function follow(
  which: Which,
  signal: AbortSignal,
  { begin, heard }: { begin(): void; heard(records: RequestRecord[], skipped: number): void },
): Promise<void> {
  while (!signal.aborted) {
    try {
      const { stream_id, renew_after_seconds } = await api("requests.watch", which);
      if (signal.aborted) return;
      begin();
      const renewing = setInterval(
        () => void api("requests.watch", { ...which, stream_id }).catch(() => {}),
        renew_after_seconds * 1000,
      );
      try {
        for await (const { method, params } of client.events(stream_id, { signal }))
          if (method === "requests.ended") heard(params.records, params.skipped);
      } finally {
        clearInterval(renewing);
      }
    } catch {
      // The service is away, or the page is left.
    }
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

const PAGE_ROWS = 50;

export const firstPage = ({ which, period }: Filters) =>
  api("requests.list", { ...which, ...period(), limit: PAGE_ROWS });

/** Further pages after the first one, which ends at `after`; when it is loaded again and ends elsewhere, they are dropped. */
export function useMorePages({ which, period, key: filterKey }: Filters, after: string | null) {
  const key = `${filterKey} ${after}`;
  const [more, setMore] = useState<{
    key: string;
    records: readonly RequestRecord[];
    cursor: string | null;
  }>();
  const ofThese = more?.key === key ? more : undefined;
  const latest = useRef(key);
  latest.current = key;
  const load = async (cursor: string) => {
    const page = await api("requests.list", { ...which, ...period(), cursor, limit: PAGE_ROWS * 2 });
    if (latest.current !== key) return;
    setMore((now) => ({
      key,
      records: [...(now?.key === key ? now.records : []), ...page.records],
      cursor: page.next_cursor,
    }));
  };
  return { records: ofThese?.records ?? [], cursor: ofThese?.cursor, load };
}
