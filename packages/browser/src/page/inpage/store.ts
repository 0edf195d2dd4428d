/** The page's local and session storage. */

type Entries = Record<string, string>;

export interface Stored {
  origin: string;
  local: Entries;
  session: Entries;
}

export interface StoreRequest {
  /** Null removes an entry. */
  local: Record<string, string | null>;
  session: Record<string, string | null>;
  isCleared: boolean;
}

/** Changes the entries as asked for, and answers with all of them. */
export function storage(request: StoreRequest | null): Stored {
  const apply = (area: Storage, wanted: Record<string, string | null>): Entries => {
    if (request?.isCleared) area.clear();
    for (const [key, value] of Object.entries(wanted))
      if (value === null) area.removeItem(key);
      else area.setItem(key, value);
    const entries: Entries = {};
    for (let i = 0; i < area.length; i++) {
      const key = area.key(i)!;
      entries[key] = area.getItem(key) ?? "";
    }
    return entries;
  };
  return {
    origin: location.origin,
    local: apply(localStorage, request?.local ?? {}),
    session: apply(sessionStorage, request?.session ?? {}),
  };
}
