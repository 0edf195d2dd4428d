import { createClient, type Fetch, type Session, webStorageTokens } from "@model-gateway/client";
import { SERVICE_URL } from "./base.ts";
import { Store } from "./store.ts";

const PROBE_EVERY_MS = 3_000;

/** False from the moment that the service cannot be reached until it answers again. */
export const online = new Store(true);

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
  baseUrl: SERVICE_URL,
  tokens: webStorageTokens(localStorage),
  fetch: watchedFetch,
});

// The browser knows first that its network is gone or back. The service may be on the same machine, so it is asked.
for (const change of ["offline", "online"])
  addEventListener(change, () => void client.rest.health().catch(() => {}));

/** Undefined until the stored session has been read. */
export const session = new Store<Session | null | undefined>(undefined);
/** The session ended without anyone signing out: the page that asks for the password says so. */
export const expired = new Store(false);

/** Shared by all tabs: a sign-out in one of them signs out the others. */
const SIGNED_OUT_KEY = "model-gateway.signed-out";

client.onSession((next) => {
  if (next) localStorage.removeItem(SIGNED_OUT_KEY);
  else expired.set(Boolean(session.get()) && localStorage.getItem(SIGNED_OUT_KEY) === null);
  session.set(next);
});
void client.ready().then(session.set);

export async function signOut(): Promise<void> {
  localStorage.setItem(SIGNED_OUT_KEY, "yes");
  await client.signOut();
}
