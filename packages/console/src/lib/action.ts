import { useCallback, useState } from "react";

export interface Action<A extends unknown[]> {
  /** Resolves to true when it worked; the failure is in `error`. */
  run(...args: A): Promise<boolean>;
  busy: boolean;
  error: unknown;
  reset(): void;
}

/** An action that the user triggers: runs one at a time and keeps its failure for the form to show. */
export function useAction<A extends unknown[]>(work: (...args: A) => Promise<unknown>): Action<A> {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = async (...args: A) => {
    if (busy) return false;
    setBusy(true);
    setError(null);
    try {
      await work(...args);
      return true;
    } catch (failure) {
      setError(failure);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { run, busy, error, reset: useCallback(() => setError(null), []) };
}
