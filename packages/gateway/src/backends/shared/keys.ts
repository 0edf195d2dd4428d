import { nearness, type SessionOf } from "../../kernel/affinity.ts";
import { type BackendConfig, type BackendDeps, BackendError } from "../contract.ts";
import { ServiceAccount } from "./service-account.ts";

/** How long a refused key is not used while there are others. */
const SET_ASIDE_MS = 10 * 60_000;
const REFUSED = new Set([401, 403]);
const SHOWN_CHARS = 4;

interface Key {
  text: string;
  account: ServiceAccount | null;
  asideUntilMs: number;
}

/** The keys that an operator gave: some with spaces or commas between, or a service account's file. */
export const keysIn = (apiKey: string | null): string[] =>
  apiKey === null
    ? []
    : apiKey.trimStart().startsWith("{")
      ? [apiKey]
      : apiKey.split(/[\s,]+/).filter((key) => key !== "");

/** A backend's keys, used in turn; a session stays with one, whose account has its prompt cached. */
export class Keys {
  readonly #keys: Key[];
  #turn = 0;

  constructor(
    { apiKey }: BackendConfig,
    readonly deps: Pick<BackendDeps, "fetch" | "clock">,
  ) {
    this.#keys = keysIn(apiKey).map((text) => ({
      text,
      account: text.trimStart().startsWith("{") ? new ServiceAccount(text, deps) : null,
      asideUntilMs: 0,
    }));
  }

  /** Whether every request has the same key. */
  get isFixed(): boolean {
    return this.#keys.length === 0 || (this.#keys.length === 1 && this.#keys[0]!.account === null);
  }
  get fixed(): string | null {
    return this.#keys[0]?.text ?? null;
  }

  /** Sends with one key after the other until one is not refused. */
  async use<T>(session: SessionOf | undefined, send: (key: string | null) => Promise<T>): Promise<T> {
    if (this.isFixed) return send(this.fixed);
    for (let tries = 1; ; tries++) {
      const key = this.#next(session);
      try {
        return await send(key.account ? await key.account.token() : key.text);
      } catch (error) {
        if (!(error instanceof BackendError && REFUSED.has(error.status ?? 0))) throw error;
        key.account?.forget();
        key.asideUntilMs = this.deps.clock.now() + SET_ASIDE_MS;
        if (tries >= this.#keys.length) throw error;
      }
    }
  }

  /** When all were refused, the one that was refused first is tried first. */
  #next(sessionOf: SessionOf | undefined): Key {
    const nowMs = this.deps.clock.now();
    const usable = this.#keys.filter(({ asideUntilMs }) => asideUntilMs <= nowMs);
    if (usable.length === 0) return this.#keys.reduce((a, b) => (b.asideUntilMs < a.asideUntilMs ? b : a));
    const session = usable.length > 1 ? sessionOf?.() : null;
    if (!session) return usable[this.#turn++ % usable.length]!;
    const near = ({ text }: Key) => nearness(session, text);
    return usable.reduce((a, b) => (near(b) > near(a) ? b : a));
  }

  refused(): { endsWith: string; untilMs: number }[] {
    const nowMs = this.deps.clock.now();
    return this.#keys.flatMap(({ text, account, asideUntilMs: untilMs }) =>
      untilMs > nowMs ? { endsWith: account?.email ?? text.slice(-SHOWN_CHARS), untilMs } : [],
    );
  }
}
