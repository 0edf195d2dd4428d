import { createClient, type Fetch, type Session, webStorageTokens } from "@model-gateway/client";
import { Store } from "./store.ts";

const ADMIN_TOKEN_KEY = "model-gateway.admin-token";
const PROBE_EVERY_MS = 3_000;

/** False from the moment that the service cannot be reached until it answers again. */
export const online = new Store(true);
/** The operator's admin token: this tab only, gone when it closes. */
export const adminToken = new Store<string | null>(sessionStorage.getItem(ADMIN_TOKEN_KEY));

export function setAdminToken(token: string | null): void {
  if (token === null) sessionStorage.removeItem(ADMIN_TOKEN_KEY);
  else sessionStorage.setItem(ADMIN_TOKEN_KEY, token);
  adminToken.set(token);
}

const watchedFetch: Fetch = async (url, init) => {
  try {
    const response = await fetch(url, init);
    online.set(true);
    return response;
  } catch (error) {
    if (!(error instanceof Error && error.name === "AbortError")) lost();
    throw error;
  }
};

function lost(): void {
  if (!online.get()) return;
  online.set(false);
  const probe = async () => {
    if (online.get()) return;
    await client.rest.health().catch(() => {});
    if (!online.get()) setTimeout(probe, PROBE_EVERY_MS);
  };
  setTimeout(probe, PROBE_EVERY_MS);
}

export const client = createClient({
  baseUrl: location.origin,
  tokens: webStorageTokens(localStorage),
  adminToken: adminToken.get,
  fetch: watchedFetch,
});

/** Undefined until the stored session has been read. */
export const session = new Store<Session | null | undefined>(undefined);
client.onSession(session.set);
void client.ready().then(session.set);
