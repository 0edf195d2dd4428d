import { RedisClient } from "bun";
import type { Log } from "../../kernel/log.ts";
import type { Bus, Subscription } from "../contract.ts";
import { InProcessBus } from "../in-process/bus.ts";

const CHANNEL_PREFIX = "gateway:";
/** The client's largest value: an instance never gives up on its Redis. */
const RECONNECTS_MAX = 2 ** 32 - 1;

export interface RedisBusOptions {
  url: string;
  /** Marks this instance's own messages, which were already delivered here. */
  instanceId: string;
  log: Log;
}

/**
 * Topics shared by every instance. A message reaches the receivers of its own process by a function call, at
 * once and also while Redis is away, and those of other processes through Redis.
 */
export class RedisBus implements Bus {
  readonly shared = true;
  readonly #local = new InProcessBus();
  readonly #commands: RedisClient;
  readonly #listener: RedisClient;
  /** Resolves when Redis has confirmed the subscription to the channel. */
  readonly #channels = new Map<string, Promise<void>>();
  readonly #forget = new Set<() => void>();
  #wasConnected = false;
  #closing = false;

  private constructor(readonly options: RedisBusOptions) {
    // A message that cannot be sent now is worthless later, so nothing queues up while Redis is away.
    this.#commands = new RedisClient(options.url, {
      enableOfflineQueue: false,
      maxRetries: RECONNECTS_MAX,
    });
    this.#listener = new RedisClient(options.url, {
      enableOfflineQueue: false,
      maxRetries: RECONNECTS_MAX,
    });
    this.#listener.onconnect = () => this.#restore();
  }

  static async connect(options: RedisBusOptions): Promise<RedisBus> {
    const bus = new RedisBus(options);
    await Promise.all([bus.#commands.connect(), bus.#listener.connect()]);
    return bus;
  }

  /** For the commands of other parts that share this connection, such as the limiter. */
  get client(): RedisClient {
    return this.#commands;
  }

  get connected(): boolean {
    return this.#commands.connected && this.#listener.connected;
  }

  publish(topic: string, message: string): void {
    this.#local.publish(topic, message);
    if (!this.#commands.connected) return;
    this.#commands.publish(CHANNEL_PREFIX + topic, `${this.options.instanceId} ${message}`).catch(() => {
      // Gone between the check and the sending: the others will learn of it by their gap.
    });
  }

  subscribe(topic: string, receive: (message: string) => void): Subscription {
    const end = this.#local.subscribe(topic, receive);
    const channel = CHANNEL_PREFIX + topic;
    if (!this.#channels.has(channel)) this.#channels.set(channel, this.#listen(channel, topic));
    return Object.assign(
      () => {
        end();
        if (this.#local.receiverCount(topic) > 0) return;
        this.#channels.delete(channel);
        if (this.#listener.connected) this.#listener.unsubscribe(channel).catch(() => {});
      },
      { ready: this.#channels.get(channel)! },
    );
  }

  async ready(): Promise<void> {
    await Promise.all(this.#channels.values());
  }

  async #listen(channel: string, topic: string): Promise<void> {
    // Not connected: `#restore` subscribes again as soon as it is.
    if (!this.#listener.connected) return;
    await this.#listener
      .subscribe(channel, (text) => {
        const separator = text.indexOf(" ");
        if (text.slice(0, separator) === this.options.instanceId) return;
        this.#local.publish(topic, text.slice(separator + 1));
      })
      .catch((error) => this.options.log.warn("could not subscribe to the bus", { topic, error }));
  }

  /** After a reconnection the subscriptions are gone, and so is what was said meanwhile. */
  #restore(): void {
    if (this.#closing) return;
    const again = this.#wasConnected;
    this.#wasConnected = true;
    for (const channel of this.#channels.keys()) {
      this.#channels.set(channel, this.#listen(channel, channel.slice(CHANNEL_PREFIX.length)));
    }
    if (!again) return;
    this.options.log.info("the bus is connected again; caches are forgotten");
    for (const forget of this.#forget) forget();
  }

  onGap(forget: () => void): void {
    this.#forget.add(forget);
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#listener.close();
    this.#commands.close();
    await this.#local.close();
  }
}
