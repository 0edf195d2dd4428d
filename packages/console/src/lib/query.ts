import { useCallback, useEffect, useRef, useSyncExternalStore } from "react";

interface Entry {
  data: unknown;
  error: unknown;
  loading: boolean;
  version: number;
}

const EMPTY: Entry = { data: undefined, error: null, loading: false, version: 0 };
const ENTRIES_MAX = 300;
const entries = new Map<string, Entry>();
const listeners = new Set<() => void>();
/** Loads under way by key, so that two components that ask for one thing share the call. */
const underWay = new Map<string, Promise<void>>();

function put(key: string, change: Partial<Entry>): void {
  const before = entries.get(key) ?? EMPTY;
  entries.delete(key);
  entries.set(key, { ...before, ...change });
  if (entries.size > ENTRIES_MAX) entries.delete(entries.keys().next().value as string);
  for (const listener of listeners) listener();
}

function load(key: string, loader: () => Promise<unknown>): Promise<void> {
  const running = underWay.get(key);
  if (running) return running;
  put(key, { loading: true });
  const run = loader()
    .then(
      (data) => put(key, { data, error: null, loading: false }),
      (error: unknown) => put(key, { error, loading: false }),
    )
    .finally(() => underWay.delete(key));
  underWay.set(key, run);
  return run;
}

/** Says that what is shown under keys with this beginning has changed; what is on screen loads anew. */
export function invalidate(prefix: string): void {
  // Writing moves an entry to the end, so a walk over the map itself would never come to one.
  for (const [key, entry] of [...entries])
    if (key.startsWith(prefix)) put(key, { version: entry.version + 1 });
}

/** Forgets everything, e.g. when someone else signs in. */
export function forgetAll(): void {
  entries.clear();
  for (const listener of listeners) listener();
}

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
  // biome-ignore lint/correctness/useExhaustiveDependencies: the version is the signal to load anew
  useEffect(() => {
    void reload();
  }, [reload, entry.version]);
  useEffect(() => {
    if (!everyMs || key === null) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, key, reload]);
  return { data: entry.data as T | undefined, error: entry.error, loading: entry.loading, reload };
}
