import type { RedisClient } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";

/** A server that is connected but does not answer within this is treated as unreachable. */
const ANSWER_WITHIN_MS = 500;
const LOOK_EVERY_MS = ANSWER_WITHIN_MS / 2;
/** After a timeout, calls skip the server for this long. */
const SUSPENDED_MS = 1_000;

/** Runs scripts on the server that has their keys, atomically. */
export interface ScriptServer {
  /** Whether the server can be called; if not, each instance counts locally. */
  readonly available: boolean;
  /** At least one key; all of one slot. */
  run(script: string, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

interface RedisScriptsOptions {
  /** The current connection, and whether the server answers on it. */
  server: { readonly client: RedisClient; readonly connected: boolean };
  clock: Clock;
  log: Log;
}

interface Pending {
  expiresAtMs: number;
  expire(): void;
}

/** Atomic scripts on the shared server, each answered within a deadline. */
export class RedisScripts implements ScriptServer {
  readonly #hashes = new Map<string, string>();
  /** Calls that wait, in the order in which their deadlines come. */
  readonly #pending = new Set<Pending>();
  #suspendedUntilMs = 0;
  #endWatch: (() => void) | null = null;
  #away = false;

  constructor(readonly options: RedisScriptsOptions) {}

  get available(): boolean {
    const { server, clock, log } = this.options;
    const away = !server.connected || clock.now() < this.#suspendedUntilMs;
    if (away !== this.#away) {
      this.#away = away;
      if (away) log.warn("Redis is unreachable: each instance counts limits and holds locally");
      else log.info("Redis is back: limits and holds are shared again");
    }
    return !away;
  }

  /** `isAsking`: of a node that is about to get the slot. */
  run(script: string, keys: readonly string[], args: readonly string[], isAsking = false): Promise<unknown> {
    const { clock } = this.options;
    return new Promise<unknown>((resolve, reject) => {
      const pending: Pending = {
        expiresAtMs: clock.elapsed() + ANSWER_WITHIN_MS,
        expire: () => reject(new Error(`no answer from Redis within ${ANSWER_WITHIN_MS} ms`)),
      };
      this.#pending.add(pending);
      if (!this.#endWatch) this.#watch();
      this.#send(script, [String(keys.length), ...keys, ...args], isAsking).then(
        (answer) => {
          this.#pending.delete(pending);
          resolve(answer);
        },
        (error) => {
          this.#pending.delete(pending);
          reject(error);
        },
      );
    });
  }

  /** One timer for all calls: almost all of them are answered long before it fires. */
  #watch(): void {
    const { clock } = this.options;
    const dueMs = clock.elapsed() + LOOK_EVERY_MS;
    this.#endWatch = clock.after(LOOK_EVERY_MS, () => {
      this.#endWatch = null;
      const nowMs = clock.elapsed();
      // A late timer means that this process could not run, not that the server was slow: answers may lie unread.
      const lateMs = Math.max(0, nowMs - dueMs);
      for (const pending of this.#pending) pending.expiresAtMs += lateMs;
      for (const pending of this.#pending) {
        if (pending.expiresAtMs > nowMs) break;
        this.#pending.delete(pending);
        this.suspend();
        pending.expire();
      }
      if (this.#pending.size > 0) this.#watch();
    });
  }

  /** The server does not serve at the moment. */
  suspend(): void {
    this.#suspendedUntilMs = this.options.clock.now() + SUSPENDED_MS;
  }

  /** The connection is about to close: calls without an answer will not get one. */
  close(): void {
    this.#endWatch?.();
    for (const { expire } of this.#pending) expire();
    this.#pending.clear();
  }

  async #send(script: string, args: string[], isAsking: boolean): Promise<unknown> {
    const { client } = this.options.server;
    if (isAsking) {
      client.send("ASKING", []).catch(() => {});
      return client.send("EVAL", [script, ...args]);
    }
    let hash = this.#hashes.get(script);
    if (!hash) {
      hash = new Bun.CryptoHasher("sha1").update(script).digest("hex");
      this.#hashes.set(script, hash);
    }
    try {
      return await client.send("EVALSHA", [hash, ...args]);
    } catch (error) {
      // A new, restarted or flushed server does not know the script.
      if (!String(error).includes("NOSCRIPT")) throw error;
      return client.send("EVAL", [script, ...args]);
    }
  }
}
