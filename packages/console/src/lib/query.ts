import { ConnectionError } from "@model-gateway/client";
import { useCallback, useEffect, useRef, useSyncExternalStore } from "react";
import { session } from "./client.ts";

interface Entry {
  data: unknown;
  error: unknown;
  loading: boolean;
  version: number;
}

const EMPTY: Entry = { data: undefined, error: null, loading: false, version: 0 };
const ENTRIES_MAX = 300;
/** After a connection failure a query is retried at this interval while it is on screen. */
const RECONNECT_EVERY_MS = 3_000;
const entries = new Map<string, Entry>();
const listeners = new Set<() => void>();
interface Load {
  done: Promise<void>;
  /** The result may be older than a change made since the call began. */
  version: number;
}

/** Loads under way by key, so that two components that ask for one thing share the call. */
const underWay = new Map<string, Load>();

function put(key: string, change: Partial<Entry>): void {
  const before = entries.get(key) ?? EMPTY;
  entries.delete(key);
  entries.set(key, { ...before, ...change });
  if (entries.size > ENTRIES_MAX) entries.delete(entries.keys().next().value as string);
  for (const listener of listeners) listener();
}

const versionOf = (key: string) => (entries.get(key) ?? EMPTY).version;

function load(key: string, loader: () => Promise<unknown>): Promise<void> {
  const running = underWay.get(key);
  if (running?.version === versionOf(key)) return running.done;
  put(key, { loading: true });
  const own: Load = { version: versionOf(key), done: Promise.resolve() };
  underWay.set(key, own);
  // Superseded by a later load, or everything was cleared: drop this result.
  const settle = (change: Partial<Entry>) => {
    if (underWay.get(key) !== own) return;
    underWay.delete(key);
    put(key, { ...change, loading: false });
  };
  own.done = loader().then(
    (data) => settle({ data, error: null }),
    (error: unknown) => settle({ error }),
  );
  return own.done;
}

/** Invalidates everything under keys with this prefix; what is on screen reloads. */
export function invalidate(prefix: string): void {
  // Writing moves an entry to the end, so a walk over the map itself would never come to one.
  for (const [key, entry] of [...entries])
    if (key.startsWith(prefix)) put(key, { version: entry.version + 1 });
}

let userId: string | undefined;
session.subscribe(() => {
  const id = session.get()?.user.id;
  if (id === userId) return;
  userId = id;
  // Another user must not see data that was loaded before, nor results still in flight.
  underWay.clear();
  for (const [key, { version }] of [...entries]) entries.set(key, { ...EMPTY, version: version + 1 });
  for (const listener of listeners) listener();
});

export interface Query<T> {
  /** The latest that is known; it stays on screen while a new one loads. */
  data: T | undefined;
  error: unknown;
  loading: boolean;
  reload(): Promise<void>;
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Loads `loader()` under `key`; null means: not yet. `everyMs` repeats it while the page is visible. */
export function useQuery<T>(
  key: string | null,
  loader: () => Promise<T>,
  { everyMs }: { everyMs?: number } = {},
): Query<T> {
  const entry = useSyncExternalStore(subscribe, () => (key === null ? EMPTY : (entries.get(key) ?? EMPTY)));
  const latest = useRef(loader);
  latest.current = loader;
  const reload = useCallback(
    () => (key === null ? Promise.resolve() : load(key, () => latest.current())),
    [key],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the version is the signal to reload
  useEffect(() => {
    void reload();
  }, [reload, entry.version]);
  useEffect(() => {
    if (!(entry.error instanceof ConnectionError)) return;
    const timer = setTimeout(reload, RECONNECT_EVERY_MS);
    return () => clearTimeout(timer);
  }, [entry.error, reload]);
  useEffect(() => {
    if (!everyMs || key === null) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, key, reload]);
  return { data: entry.data as T | undefined, error: entry.error, loading: entry.loading, reload };
}
