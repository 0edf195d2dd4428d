import { nearness, type SessionOf } from "../../kernel/affinity.ts";
import { type BackendConfig, type BackendDeps, BackendError, type RefusedKey } from "../contract.ts";
import { ServiceAccount } from "./service-account.ts";

/** How long a refused key is not used while there are others. */
const SET_ASIDE_MS = 10 * 60_000;
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

const endOf = ({ account, text }: Key): string => account?.email ?? text.slice(-SHOWN_CHARS);

/** A backend's keys, used in turn; a session stays with one, whose account has its prompt cached. */
export class Keys {
  readonly #keys: Key[];
  #turn = 0;
  onRefused: (() => void) | null = null;

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

  get isFixed(): boolean {
    return this.#keys.length === 0 || (this.#keys.length === 1 && this.#keys[0]!.account === null);
  }
  get fixed(): string | null {
    return this.#keys[0]?.text ?? null;
  }

  /** Sends with one key after the other until one is not refused. What all are refused for is not about a key. */
  async use<T>(
    session: SessionOf | undefined,
    send: (key: string | null) => Promise<T>,
    { isListing = false } = {},
  ): Promise<T> {
    if (this.isFixed) return send(this.fixed);
    const refused: Key[] = [];
    for (;;) {
      const key = this.#next(session, refused);
      try {
        const answer = await send(key.account ? await key.account.token() : key.text);
        // A key that may not list models may chat.
        if (isListing || refused.length === 0) return answer;
        for (const each of refused) each.asideUntilMs = this.deps.clock.now() + SET_ASIDE_MS;
        this.onRefused?.();
        return answer;
      } catch (error) {
        const status = error instanceof BackendError ? error.status : 0;
        if (status === 401) key.account?.forget();
        if (refused.push(key) === this.#keys.length || (status !== 401 && status !== 403)) throw error;
      }
    }
  }

  /** When all were refused, the one that was refused first is tried first. */
  #next(sessionOf: SessionOf | undefined, refused: readonly Key[]): Key {
    const nowMs = this.deps.clock.now();
    const left = this.#keys.filter((key) => !refused.includes(key));
    const usable = left.filter(({ asideUntilMs }) => asideUntilMs <= nowMs);
    if (usable.length === 0) return left.reduce((a, b) => (b.asideUntilMs < a.asideUntilMs ? b : a));
    const session = usable.length > 1 ? sessionOf?.() : null;
    if (!session) return usable[this.#turn++ % usable.length]!;
    const near = ({ text }: Key) => nearness(session, text);
    return usable.reduce((a, b) => (near(b) > near(a) ? b : a));
  }

  refused(): RefusedKey[] {
    const nowMs = this.deps.clock.now();
    return this.#keys.flatMap((key) =>
      key.asideUntilMs > nowMs ? { endsWith: endOf(key), untilMs: key.asideUntilMs } : [],
    );
  }

  setAside(refused: readonly RefusedKey[]): void {
    for (const { endsWith, untilMs } of refused)
      for (const key of this.#keys) if (endOf(key) === endsWith) key.asideUntilMs = untilMs;
  }

  close(): void {
    for (const { account } of this.#keys) account?.close();
  }
}
