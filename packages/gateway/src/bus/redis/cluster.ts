import { RedisClient } from "bun";
import { type Clock, sleep } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { RedisScripts, type ScriptServer } from "./scripts.ts";

const SLOTS = 16_384;
/** A call follows at most so many redirections. */
const HOPS_MAX = 5;
const REDIRECTION = /\b(MOVED|ASK) \d+ (\S+:\d+)/;
/** Answers of a node that cannot serve the slot at the moment; it is asked again after this time. */
const NOT_NOW = /\b(CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN)\b/;
const NOT_NOW_MS = 100;
/** While a slot has no primary that answers, the nodes are asked this often who has it. */
const LOOK_EVERY_MS = 250;
const ANSWER_WITHIN_MS = 500;
const NODES_MAX = 1_000;
/** The client's largest value: an instance never gives up on its Redis. */
const RECONNECTS_MAX = 2 ** 32 - 1;

/** CRC-16/XMODEM, by which a cluster spreads keys. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc;
}

const encoder = new TextEncoder();
export const slotOf = (tag: string): number => crc16(encoder.encode(tag)) % SLOTS;

interface Node {
  client: RedisClient;
  /** Resolves when it is connected, or cannot be. */
  tried: Promise<void>;
  scripts: RedisScripts;
}

/** One range of slots as `CLUSTER SLOTS` says it. */
type Range = [first: number, last: number, primary: Address, ...replicas: Address[]];
type Address = [host: string, port: number, ...unknown[]];

interface RedisClusterOptions {
  /** Any of the nodes; credentials and TLS are the same for all of them. */
  url: string;
  clock: Clock;
  log: Log;
}

/** The primaries of a Redis Cluster, and which of them has a slot. */
export class RedisCluster {
  readonly #nodes = new Map<string, Node>();
  #ranges: { first: number; last: number; address: string }[] = [];
  /** Replicas too: any of them can be asked. */
  #addresses: string[];
  #turn = 0;
  #looking: Promise<void> | null = null;
  #isClosed = false;
  readonly #moved = new Set<() => void>();
  readonly #endLooking: () => void;

  private constructor(readonly options: RedisClusterOptions) {
    this.#addresses = [new URL(options.url).host];
    this.#endLooking = options.clock.every(LOOK_EVERY_MS, () => {
      if (this.#ranges.some(({ address }) => !this.#node(address).client.connected)) this.lookSoon();
    });
  }

  static async open(options: RedisClusterOptions): Promise<RedisCluster> {
    const cluster = new RedisCluster(options);
    try {
      await cluster.#look();
      if (cluster.#ranges.length === 0)
        throw new Error("no node of the Redis Cluster says who has the slots");
    } catch (error) {
      cluster.close();
      throw error;
    }
    return cluster;
  }

  /** A node to talk to, each time another one. */
  nextUrl(): string {
    return this.#urlOf(this.#addresses[this.#turn++ % this.#addresses.length]!);
  }

  #urlOf(address: string): string {
    const url = new URL(this.options.url);
    url.host = address;
    return url.href;
  }

  /** Calls back when slots have another primary, which may not have the last of what was written. */
  onMoved(run: () => void): void {
    this.#moved.add(run);
  }

  #node(address: string): Node {
    let node = this.#nodes.get(address);
    if (node) return node;
    const { clock, log } = this.options;
    const client = new RedisClient(this.#urlOf(address), {
      enableOfflineQueue: false,
      maxRetries: RECONNECTS_MAX,
      connectionTimeout: ANSWER_WITHIN_MS,
    });
    const server = {
      client,
      get connected() {
        return client.connected;
      },
    };
    client.onclose = () => this.lookSoon();
    const tried = client.connect().catch(() => {});
    node = { client, tried, scripts: new RedisScripts({ server, clock, log }) };
    this.#nodes.set(address, node);
    return node;
  }

  scriptsOf(slot: number): RedisScripts {
    const owner = this.#ranges.find(({ first, last }) => slot >= first && slot <= last);
    return this.#node(owner?.address ?? this.#addresses[0]!).scripts;
  }

  scriptsAt(address: string): RedisScripts {
    return this.#node(address).scripts;
  }

  /** Asks who has which slots, unless that is under way. */
  lookSoon(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { log } = this.options;
    for (const address of this.#addresses) {
      try {
        return await this.#learn((await this.#slots(address)) as Range[], address);
      } catch (error) {
        log.debug("a node of the Redis Cluster does not say who has the slots", { address, error });
      }
    }
  }

  async #slots(address: string): Promise<unknown> {
    const client = new RedisClient(this.#urlOf(address), {
      autoReconnect: false,
      connectionTimeout: ANSWER_WITHIN_MS,
    });
    let cancel = () => {};
    const late = new Promise<never>((_, reject) => {
      cancel = this.options.clock.after(ANSWER_WITHIN_MS, () => reject(new Error("no answer")));
    });
    try {
      return await Promise.race([client.send("CLUSTER", ["SLOTS"]), late]);
    } finally {
      cancel();
      client.close();
    }
  }

  async #learn(ranges: readonly Range[], asked: string): Promise<void> {
    if (this.#isClosed) return;
    // A node that does not know its own name says "": it is the one that was asked.
    const addressOf = ([host, port]: Address): string =>
      `${host || new URL(this.#urlOf(asked)).hostname}:${port}`;
    const before = JSON.stringify(this.#ranges);
    const hadSlots = this.#ranges.length > 0;
    this.#ranges = ranges.map(([first, last, primary]) => ({ first, last, address: addressOf(primary) }));
    const all = ranges.flatMap(([, , ...nodes]) => nodes.map(addressOf));
    if (all.length > 0) this.#addresses = [...new Set([...all, asked])].slice(0, NODES_MAX);
    const primaries = new Set(this.#ranges.map(({ address }) => address));
    for (const address of primaries) this.#node(address);
    for (const [address, { client, scripts }] of this.#nodes) {
      if (primaries.has(address)) continue;
      this.#nodes.delete(address);
      client.onclose = null;
      scripts.close();
      client.close();
    }
    await Promise.all(Array.from(this.#nodes.values(), ({ tried }) => tried));
    if (!hadSlots || before === JSON.stringify(this.#ranges)) return;
    this.options.log.info("slots of the Redis Cluster have moved", { primaries: [...primaries] });
    for (const run of this.#moved) run();
  }

  close(): void {
    this.#isClosed = true;
    this.#endLooking();
    for (const { client, scripts } of this.#nodes.values()) {
      client.onclose = null;
      scripts.close();
      client.close();
    }
  }
}

/** Scripts whose keys are all of one slot, on whichever node has it. */
export class ClusterScripts implements ScriptServer {
  readonly #slot: number;

  constructor(
    readonly cluster: RedisCluster,
    tag: string,
  ) {
    this.#slot = slotOf(tag);
  }

  get available(): boolean {
    return this.cluster.scriptsOf(this.#slot).available;
  }

  async run(script: string, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    for (let hop = 1; ; hop++) {
      const scripts = this.cluster.scriptsOf(this.#slot);
      try {
        return await scripts.run(script, keys, args);
      } catch (error) {
        const [, kind, address] = REDIRECTION.exec(String(error)) ?? [];
        // The slot is moving: this key is on the other node already, the rest is not.
        if (kind === "ASK") return this.cluster.scriptsAt(address!).run(script, keys, args, true);
        const looked = this.cluster.lookSoon();
        const isNotNow = NOT_NOW.test(String(error));
        if (hop >= HOPS_MAX && isNotNow) scripts.suspend();
        if (hop >= HOPS_MAX || (kind !== "MOVED" && !isNotNow)) throw error;
        if (isNotNow) await sleep(this.cluster.options.clock, NOT_NOW_MS);
        await looked;
      }
    }
  }
}
