import { sendsElsewhere } from "@model-gateway/wire/turns";
import { RedisClient } from "bun";
import type { Log } from "../../kernel/log.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import { SharedBus } from "../shared-bus.ts";

/** The client's largest value: an instance never gives up on its Redis. */
const RECONNECTS_MAX = 2 ** 32 - 1;
const BEAT_MS = 250;
/** After this many missed self-heartbeats the subscription counts as down. */
const UNHEARD_BEATS_MAX = 2;
/** After this many, the connections count as dead even though nobody closed them, and are replaced. */
const UNHEARD_BEATS_RENEW = 40;

const FIRST_ANSWER_WITHIN_MS = 5_000;

/** Makes a start without Redis fail with a message; a client that never gives up would wait silently. */
export async function reach(url: string): Promise<void> {
  let isCluster: boolean;
  const client = new RedisClient(url, { autoReconnect: false, connectionTimeout: FIRST_ANSWER_WITHIN_MS });
  try {
    await client.connect();
    await client.send("PING", []);
    // A user that may not send INFO is not one of a cluster, which needs more rights.
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
  /** Marks this instance's own messages, which were delivered here already. */
  instanceId: string;
  log: Log;
}

export class RedisBus extends SharedBus {
  readonly #heartbeat: ReturnType<typeof setInterval>;
  readonly #beatChannel: string;
  #commands: RedisClient;
  #listener: RedisClient;
  #unheardBeats = 0;
  /** Replacement connections that never opened: unlike others they do not reconnect automatically. */
  #isRenewed = false;
  #wasConnected = false;
  /** The connection was lost, and caches have not been cleared since. */
  #hasMissed = false;
  #closing = false;

  private constructor(readonly options: RedisBusOptions) {
    super();
    this.#beatChannel = `${options.prefix}beat:${options.instanceId}`;
    this.#commands = this.#newClient();
    this.#listener = this.#newListener();
    this.#heartbeat = setInterval(() => this.#beat(), BEAT_MS);
    this.#heartbeat.unref();
  }

  /** While Redis is unreachable nothing is queued: late messages are useless. */
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

  get client(): RedisClient {
    return this.#commands;
  }

  get connected(): boolean {
    return this.#commands.connected && this.#listener.connected && this.#unheardBeats <= UNHEARD_BEATS_MAX;
  }

  /** A frozen server or a silently dropped route leaves the connection open, so only heartbeats prove that it works. */
  #beat(): void {
    const isOpen = this.#commands.connected && this.#listener.connected;
    // The client reopens closed connections itself.
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

  protected send(topic: string, message: string): void {
    // The instance that gets the end of an answer sends it to its client.
    sendsElsewhere();
    const keep = () => this.keep(topic, message);
    if (!this.#commands.connected) keep();
    else
      this.#commands
        .publish(this.options.prefix + topic, `${this.options.instanceId} ${message}`)
        .catch(keep);
  }

  protected unlisten(topic: string): void {
    if (this.#listener.connected) this.#listener.unsubscribe(this.options.prefix + topic).catch(() => {});
  }

  async listenerCount(topic: string): Promise<number> {
    const channel = this.options.prefix + topic;
    const counted = this.connected ? this.#commands.send("PUBSUB", ["NUMSUB", channel]) : null;
    const [, count] = ((await counted?.catch(() => null)) ?? [channel, 1]) as [string, number];
    return Number(count);
  }

  protected async listen(topic: string): Promise<void> {
    // Otherwise `#restore` subscribes when it is connected.
    if (!this.#listener.connected) return;
    await this.#subscribe(this.options.prefix + topic, (text) => {
      const separator = text.indexOf(" ");
      if (text.slice(0, separator) === this.options.instanceId) return;
      this.received(topic, text.slice(separator + 1));
    });
  }

  async #subscribe(channel: string, receive: (text: string) => void): Promise<void> {
    await this.#listener
      .subscribe(channel, receive)
      .catch((error) => this.options.log.warn("Redis subscribe failed", { channel, error }));
  }

  /** After a reconnect the subscriptions are gone, and messages sent in between are lost. */
  #restore(): void {
    if (this.#closing) return;
    if (this.#wasConnected) {
      this.#hasMissed = true;
      this.#unheardBeats = UNHEARD_BEATS_MAX + 1;
    }
    this.#wasConnected = true;
    for (const topic of this.topics.keys()) this.topics.set(topic, this.listen(topic));
    // Subscribed last: once a heartbeat arrives, all other topics are active, too.
    void this.#subscribe(this.#beatChannel, () => this.#heardBeat());
    this.#beat();
  }

  #heardBeat(): void {
    this.#unheardBeats = 0;
    this.#isRenewed = false;
    this.sendKept();
    if (!this.#hasMissed) return;
    this.#hasMissed = false;
    this.options.log.info("Redis reconnected; caches cleared");
    this.missedMessages();
  }

  override async close(): Promise<void> {
    this.#closing = true;
    clearInterval(this.#heartbeat);
    this.#listener.close();
    this.#commands.close();
    await super.close();
  }
}
