import { RPC_CODE, RpcError } from "./errors.ts";
import type { Methods } from "./methods.gen.ts";

export type SessionUser = Methods["auth.login"]["result"]["user"];

/** A signed-in person's tokens. */
export interface Session {
  accessToken: string;
  refreshToken: string;
  expiresAtMs: number;
  user: SessionUser;
}

/** Where the tokens are kept between runs. The client itself keeps them in memory only. */
export interface TokenStore {
  load(): Session | null | Promise<Session | null>;
  save(session: Session | null): void | Promise<void>;
  /** Tells of changes that another client made, e.g. a sign-out in another tab. The returned function ends it. */
  watch?(listener: (session: Session | null) => void): () => void;
  /** Runs `work` while no other client that shares the store does; a refresh token works only once. */
  exclusive?<T>(work: () => Promise<T>): Promise<T>;
}

export function memoryTokens(initial: Session | null = null): TokenStore {
  let held = initial;
  return {
    load: () => held,
    save: (session) => {
      held = session;
    },
  };
}

type WebStorage = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** Tokens in `localStorage` or `sessionStorage`; tabs take turns to refresh where the browser has locks. */
export function webStorageTokens(storage: WebStorage, key = "model-gateway.session"): TokenStore {
  const load = () => {
    const text = storage.getItem(key);
    if (text === null) return null;
    try {
      return JSON.parse(text) as Session;
    } catch {
      return null;
    }
  };
  return {
    load,
    watch(listener) {
      const changed = (event: StorageEvent) => {
        // No key means that the whole storage was emptied.
        if (event.storageArea === storage && (event.key === key || event.key === null)) listener(load());
      };
      globalThis.addEventListener?.("storage", changed);
      return () => globalThis.removeEventListener?.("storage", changed);
    },
    save(session) {
      if (session) storage.setItem(key, JSON.stringify(session));
      else storage.removeItem(key);
    },
    async exclusive(work) {
      const locks = globalThis.navigator?.locks;
      return locks ? ((await locks.request(key, work)) as Awaited<ReturnType<typeof work>>) : work();
    },
  };
}

type Tokens = Methods["auth.login"]["result"];
type Exchange = (refreshToken: string) => Promise<Tokens>;

/** The access token is renewed this long before it expires, so that it does not expire during a slow call. */
const RENEW_BEFORE_MS = 30_000;

/** Holds the session, renews it once for all concurrent calls, and notifies listeners. */
export class SessionKeeper {
  #session: Session | null = null;
  #loading: Promise<void> | null = null;
  #renewing: Promise<Session | null> | null = null;
  #listeners = new Set<(session: Session | null) => void>();
  #unwatch: (() => void) | undefined;

  constructor(
    readonly store: TokenStore,
    readonly exchange: Exchange,
    readonly now: () => number = Date.now,
  ) {
    this.#unwatch = store.watch?.((session) => this.#announce(session));
  }

  close(): void {
    this.#unwatch?.();
  }

  get current(): Session | null {
    return this.#session;
  }

  subscribe(listener: (session: Session | null) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads the store once. */
  ready(): Promise<void> {
    this.#loading ??= Promise.resolve(this.store.load()).then((stored) => {
      if (!this.#session && stored) this.#announce(stored);
    });
    return this.#loading;
  }

  async accept(tokens: Tokens): Promise<Session> {
    const session: Session = {
      accessToken: tokens.access_token,
      refreshToken: tokens.refresh_token,
      expiresAtMs: this.now() + tokens.expires_in * 1000,
      user: tokens.user,
    };
    await this.store.save(session);
    this.#announce(session);
    return session;
  }

  /** The signed-in account has another name now. */
  async rename(name: string): Promise<void> {
    if (!this.#session) return;
    const session = { ...this.#session, user: { ...this.#session.user, name } };
    await this.store.save(session);
    this.#announce(session);
  }

  async clear(): Promise<void> {
    await this.store.save(null);
    this.#announce(null);
  }

  /** An access token that is good for the next call, or null when nobody is signed in. */
  async accessToken(): Promise<string | null> {
    await this.ready();
    if (!this.#session) return null;
    if (this.#session.expiresAtMs - this.now() > RENEW_BEFORE_MS) return this.#session.accessToken;
    return (await this.renew(this.#session.accessToken))?.accessToken ?? null;
  }

  /** Replaces `rejected`; every caller that comes while this runs shares the one exchange. */
  renew(rejected: string): Promise<Session | null> {
    if (this.#session && this.#session.accessToken !== rejected) return Promise.resolve(this.#session);
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = null;
    });
    return this.#renewing;
  }

  async #renew(): Promise<Session | null> {
    const work = async () => {
      const stored = await this.store.load();
      const mine = this.#session;
      // Another tab was faster: its tokens are the valid ones now.
      if (stored && mine && stored.refreshToken !== mine.refreshToken) {
        this.#announce(stored);
        return stored;
      }
      const refreshToken = stored?.refreshToken ?? mine?.refreshToken;
      if (!refreshToken) return null;
      try {
        return await this.accept(await this.exchange(refreshToken));
      } catch (error) {
        if (!(error instanceof RpcError) || error.code !== RPC_CODE.authentication) throw error;
        await this.clear();
        return null;
      }
    };
    return this.store.exclusive ? this.store.exclusive(work) : work();
  }

  #announce(session: Session | null): void {
    this.#session = session;
    for (const listener of this.#listeners) listener(session);
  }
}
