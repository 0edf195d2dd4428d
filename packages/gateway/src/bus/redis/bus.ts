import { sendsElsewhere } from "@model-gateway/wire/turns";
import { RedisClient } from "bun";
import type { Log } from "../../kernel/log.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import type { Bus, Receive, Subscription } from "../contract.ts";
import { InProcessBus } from "../in-process/bus.ts";
import { UntoldChanges } from "../untold-changes.ts";

/** The client's largest value: an instance never gives up on its Redis. */
const RECONNECTS_MAX = 2 ** 32 - 1;
/** How often an instance sends itself a heartbeat through Redis. */
const BEAT_MS = 250;
/** After this many missed self-heartbeats the subscription counts as down. */
const UNHEARD_BEATS_MAX = 2;
/** After this many, the connections count as dead even though nobody closed them, and are replaced. */
const UNHEARD_BEATS_RENEW = 40;

const FIRST_ANSWER_WITHIN_MS = 5_000;

/** A start without Redis fails and says so; a client that never gives up would wait in silence. */
export async function reach(url: string): Promise<void> {
  let isCluster: boolean;
  const client = new RedisClient(url, { autoReconnect: false, connectionTimeout: FIRST_ANSWER_WITHIN_MS });
  try {
    await client.connect();
    await client.send("PING", []);
    // A user that may not ask is not one of a cluster, which needs more rights than that.
    isCluster = String(await client.send("INFO", ["cluster"]).catch(() => "")).includes("cluster_enabled:1");
  } catch (error) {
    throw new Error(`${shownUrl(url)} cannot be reached: ${(error as Error).message}`, { cause: error });
  } finally {
    client.close();
  }
  if (isCluster)
    throw new Error(`${shownUrl(url)} is a node of a Redis Cluster; name a server that is not part of one`);
}

interface RedisBusOptions {
  url: string;
  prefix: string;
  /** Marks this instance's own messages, which were already delivered here. */
  instanceId: string;
  log: Log;
}

/** Topics shared by every instance. Receivers in this process are called directly, even while Redis is away. */
export class RedisBus implements Bus {
  readonly shared = true;
  readonly #local = new InProcessBus();
  readonly #heartbeat: ReturnType<typeof setInterval>;
  readonly #beatChannel: string;
  #commands: RedisClient;
  #listener: RedisClient;
  #unheardBeats = 0;
  /** Replacement connections that never opened: unlike others they do not reconnect automatically. */
  #isRenewed = false;
  /** Resolves when Redis has confirmed the subscription to the channel. */
  readonly #channels = new Map<string, Promise<void>>();
  readonly #forget = new Set<() => void>();
  readonly #untold = new UntoldChanges();
  #wasConnected = false;
  /** Since the connection was lost, nobody was told. */
  #hasMissed = false;
  #closing = false;

  private constructor(readonly options: RedisBusOptions) {
    this.#beatChannel = `${options.prefix}beat:${options.instanceId}`;
    this.#commands = this.#newClient();
    this.#listener = this.#newListener();
    this.#heartbeat = setInterval(() => this.#beat(), BEAT_MS);
    this.#heartbeat.unref();
  }

  /** Late messages are useless, so nothing is queued while Redis is unreachable. */
  #newClient(): RedisClient {
    return new RedisClient(this.options.url, { enableOfflineQueue: false, maxRetries: RECONNECTS_MAX });
  }

  #newListener(): RedisClient {
    const listener = this.#newClient();
    listener.onconnect = () => {
      if (listener === this.#listener) this.#restore();
    };
    return listener;
  }

  static async connect(options: RedisBusOptions): Promise<RedisBus> {
    const bus = new RedisBus(options);
    try {
      await Promise.all([bus.#commands.connect(), bus.#listener.connect()]);
    } catch (error) {
      await bus.close();
      throw error;
    }
    return bus;
  }

  /** For the commands of other parts that share this connection, such as the counter. */
  get client(): RedisClient {
    return this.#commands;
  }

  get connected(): boolean {
    return this.#commands.connected && this.#listener.connected && this.#unheardBeats <= UNHEARD_BEATS_MAX;
  }

  /** An open connection proves little: a frozen server or a silently dropped route looks the same. */
  #beat(): void {
    const isOpen = this.#commands.connected && this.#listener.connected;
    // A closed connection is opened again by the client itself.
    if (!isOpen && !this.#isRenewed) return;
    this.#unheardBeats++;
    if (this.#unheardBeats > UNHEARD_BEATS_RENEW) this.#renew();
    else if (isOpen) this.#commands.publish(this.#beatChannel, "").catch(() => {});
  }

  #renew(): void {
    if (!this.#isRenewed) this.options.log.warn("Redis heartbeats timed out; reconnecting");
    this.#isRenewed = true;
    const silent = [this.#commands, this.#listener];
    this.#unheardBeats = UNHEARD_BEATS_MAX + 1;
    this.#commands = this.#newClient();
    this.#listener = this.#newListener();
    for (const client of silent) client.close();
    for (const client of [this.#commands, this.#listener]) client.connect().catch(() => {});
  }

  publish(topic: string, message: string): void {
    this.#local.publish(topic, message);
    this.#send(topic, message);
  }

  #send(topic: string, message: string): void {
    // An instance that gets the end of an answer sends it to its client.
    sendsElsewhere();
    const keep = () => this.#untold.keep(topic, message);
    if (!this.#commands.connected) keep();
    else
      this.#commands
        .publish(this.options.prefix + topic, `${this.options.instanceId} ${message}`)
        .catch(keep);
  }

  subscribe(topic: string, receive: Receive): Subscription {
    const end = this.#local.subscribe(topic, receive);
    const channel = this.options.prefix + topic;
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

  done(): Promise<unknown> {
    return this.#local.done();
  }

  async ready(): Promise<void> {
    await Promise.all(this.#channels.values());
  }

  async listenerCount(topic: string): Promise<number> {
    const channel = this.options.prefix + topic;
    const counted = this.connected ? this.#commands.send("PUBSUB", ["NUMSUB", channel]) : null;
    const [, count] = ((await counted?.catch(() => null)) ?? [channel, 1]) as [string, number];
    return Number(count);
  }

  async #listen(channel: string, topic: string): Promise<void> {
    // Not connected: `#restore` subscribes again as soon as it is.
    if (!this.#listener.connected) return;
    await this.#subscribe(channel, (text) => {
      const separator = text.indexOf(" ");
      if (text.slice(0, separator) === this.options.instanceId) return;
      this.#local.publish(topic, text.slice(separator + 1));
    });
  }

  async #subscribe(channel: string, receive: (text: string) => void): Promise<void> {
    await this.#listener
      .subscribe(channel, receive)
      .catch((error) => this.options.log.warn("Redis subscribe failed", { channel, error }));
  }

  /** After a reconnect the subscriptions are gone, and messages sent meanwhile are lost. */
  #restore(): void {
    if (this.#closing) return;
    if (this.#wasConnected) {
      this.#hasMissed = true;
      this.#unheardBeats = UNHEARD_BEATS_MAX + 1;
    }
    this.#wasConnected = true;
    for (const channel of this.#channels.keys()) {
      this.#channels.set(channel, this.#listen(channel, channel.slice(this.options.prefix.length)));
    }
    // The last one, so that once a beat is heard all else is, too, and what is told is sent.
    void this.#subscribe(this.#beatChannel, () => this.#heardBeat());
    this.#beat();
  }

  #heardBeat(): void {
    this.#unheardBeats = 0;
    this.#isRenewed = false;
    this.#untold.tell((topic, message) => this.#send(topic, message));
    if (!this.#hasMissed) return;
    this.#hasMissed = false;
    this.options.log.info("Redis reconnected; caches cleared");
    for (const forget of this.#forget) forget();
  }

  onGap(forget: () => void): void {
    this.#forget.add(forget);
  }

  async close(): Promise<void> {
    this.#closing = true;
    clearInterval(this.#heartbeat);
    this.#listener.close();
    this.#commands.close();
    await this.#local.close();
  }
}
