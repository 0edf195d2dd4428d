import { BoundedMap } from "../kernel/bounded.ts";
import { PRINCIPAL_CHANGED, USER_CHANGED } from "../kernel/topics.ts";
import type { Bus, Receive, Subscription } from "./contract.ts";
import { InProcessBus } from "./in-process/bus.ts";

/** Instances trust cached rights until they hear of a change, so these messages are kept until they can be sent. */
const KEPT_TOPICS: ReadonlySet<string> = new Set([PRINCIPAL_CHANGED, USER_CHANGED]);

/** Topics shared by several processes. Receivers in this process are called directly, even while the others are away. */
export abstract class SharedBus implements Bus {
  readonly shared = true;
  readonly #local = new InProcessBus();
  /** Topics with receivers; the promises resolve when the subscriptions are active. */
  protected readonly topics = new Map<string, Promise<void>>();
  readonly #forget = new Set<() => void>();
  readonly #unsent = new BoundedMap<string, readonly [topic: string, message: string]>();

  abstract readonly connected: boolean;
  abstract listenerCount(topic: string): Promise<number>;
  /** Sends to the other processes, or calls `keep`. */
  protected abstract send(topic: string, message: string): void;
  protected abstract listen(topic: string): Promise<void>;
  protected abstract unlisten(topic: string): void;

  publish(topic: string, message: string): void {
    this.#local.publish(topic, message);
    this.send(topic, message);
  }

  subscribe(topic: string, receive: Receive): Subscription {
    const end = this.#local.subscribe(topic, receive);
    const ready = this.topics.getOrInsertComputed(topic, () => this.listen(topic));
    const unsubscribe = () => {
      end();
      if (this.#local.receiverCount(topic) === 0 && this.topics.delete(topic)) this.unlisten(topic);
    };
    return Object.assign(unsubscribe, { ready });
  }

  done(): Promise<unknown> {
    return this.#local.done();
  }

  async ready(): Promise<void> {
    await Promise.all(this.topics.values());
  }

  onGap(forget: () => void): void {
    this.#forget.add(forget);
  }

  close(): Promise<void> {
    return this.#local.close();
  }

  protected received(topic: string, message: string): void {
    this.#local.publish(topic, message);
  }

  protected missedMessages(): void {
    for (const forget of this.#forget) forget();
  }

  /** Messages on other topics are useless when they are late. */
  protected keep(topic: string, message: string): void {
    if (KEPT_TOPICS.has(topic)) this.#unsent.set(`${topic} ${message}`, [topic, message]);
  }

  /** Some may arrive twice, which is harmless. */
  protected sendKept(): void {
    if (this.#unsent.size === 0) return;
    const messages = [...this.#unsent.values()];
    this.#unsent.clear();
    for (const [topic, message] of messages) this.send(topic, message);
  }
}
