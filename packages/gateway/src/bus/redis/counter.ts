import type { RedisClient } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { HAIR, REFUSED } from "../contract.ts";
import {
  ALIVE_MS,
  type CounterAnswers,
  type CounterAsk,
  type CounterEntry,
  type CounterServer,
  OPENS_AFTER_MS,
  TIMES_MAX,
} from "../counter-server.ts";
import ask from "./ask.lua" with { type: "text" };
import enter from "./enter.lua" with { type: "text" };

/** A server that takes longer counts as away until it answers heartbeats. */
const ANSWER_WITHIN_MS = 3_000;
/** A timer that fires this late means that this process could not run: answers may be waiting. */
const LATE_MS = 100;
/** Unused keys expire after this long; no request takes as long. */
const KEPT_MS = 2 * 60 * 60_000;

const CONSTANTS = Object.entries({ ALIVE_MS, OPENS_AFTER_MS, KEPT_MS, TIMES_MAX, REFUSED, HAIR })
  .map(([name, value]) => `local ${name} = ${JSON.stringify(value)}\n`)
  .join("");
const script = (text: string) => ({
  text: CONSTANTS + text,
  hash: new Bun.CryptoHasher("sha1").update(CONSTANTS + text).digest("hex"),
});
type Script = ReturnType<typeof script>;
const ASK = script(ask);
const ENTER = script(enter);

interface RedisCounterOptions {
  /** The current connection, and whether heartbeats come back on it. */
  server: { readonly client: RedisClient; readonly connected: boolean };
  prefix: string;
  clock: Clock;
  log: Log;
}

/** Counts in a Redis server, with scripts, which are atomic. */
export class RedisCounter implements CounterServer {
  /** A hash: until when each instance counts as alive, and `opens`, the time from which the counter answers. */
  readonly #instances: string;
  readonly #pending = new Set<() => void>();
  /** An answer timed out, and no heartbeat has arrived since. */
  #isSilent = false;
  #isAway = false;

  constructor(readonly options: RedisCounterOptions) {
    this.#instances = `${options.prefix}instances`;
  }

  get available(): boolean {
    const { server, log } = this.options;
    this.#isSilent &&= !server.connected;
    const isAway = this.#isSilent || !server.client.connected;
    if (isAway !== this.#isAway) {
      this.#isAway = isAway;
      if (isAway) log.warn("Redis is unreachable: each instance counts limits and holds locally");
      else log.info("Redis is back: limits and holds are shared again");
    }
    return !isAway;
  }

  async ask(instance: string, asks: readonly CounterAsk[]): Promise<CounterAnswers | null> {
    const said = await this.#run(ASK, [instance, JSON.stringify(asks), this.options.prefix]);
    if (said === null) return null;
    const [answers, instances] = said as [CounterAnswers["answers"], number];
    return { answers, instances };
  }

  async enter(instance: string): Promise<CounterEntry> {
    const [isNew, opensInMs] = (await this.#run(ENTER, [instance])) as [number, number];
    return { isNew: isNew === 1, opensInMs };
  }

  leave(instances: readonly string[]): Promise<unknown> {
    return this.#inTime(this.options.server.client.send("HDEL", [this.#instances, ...instances]));
  }

  /** The connection is about to close: pending calls fail. */
  close(): void {
    for (const end of [...this.#pending]) end();
  }

  #run(script: Script, args: readonly string[]): Promise<unknown> {
    return this.#inTime(this.#send(script, ["1", this.#instances, ...args]));
  }

  #inTime<T>(answer: Promise<T>): Promise<T> {
    const { clock } = this.options;
    return new Promise<T>((resolve, reject) => {
      let cancel = () => {};
      const end = () => {
        cancel();
        this.#pending.delete(end);
        reject(new Error(`no answer from Redis within ${ANSWER_WITHIN_MS} ms`));
      };
      const wait = (delayMs: number) => {
        const dueMs = clock.elapsed() + delayMs;
        cancel = clock.after(delayMs, () => {
          if (clock.elapsed() - dueMs > LATE_MS) return wait(LATE_MS);
          this.#isSilent = true;
          end();
        });
      };
      wait(ANSWER_WITHIN_MS);
      this.#pending.add(end);
      answer.then(resolve, reject).finally(() => {
        cancel();
        this.#pending.delete(end);
      });
    });
  }

  async #send({ text, hash }: Script, args: readonly string[]): Promise<unknown> {
    const { client } = this.options.server;
    try {
      return await client.send("EVALSHA", [hash, ...args]);
    } catch (error) {
      // A new, restarted or flushed server does not know the script.
      if (!String(error).includes("NOSCRIPT")) throw error;
      return client.send("EVAL", [text, ...args]);
    }
  }
}
