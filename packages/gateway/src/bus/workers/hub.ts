import { rmSync } from "node:fs";
import type { Socket, UnixSocketListener } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { InProcessBus } from "../in-process/bus.ts";
import type { PurseOrder } from "../slices/contract.ts";
import { MemoryLimits } from "../slices/memory-limits.ts";
import { Channel } from "./channel.ts";
import { WorkerHolds } from "./holds.ts";
import type { Answers, Asked, ToHub, ToWorker } from "./messages.ts";
import { WriteQueue } from "./write-queue.ts";

const OWNER_ONLY = 0o177;

interface HubOptions {
  path: string;
  clock: Clock;
  log: Log;
}

/** One worker's connection. */
interface Peer {
  channel: Channel<ToHub, ToWorker>;
  worker: string | null;
  /** Ends each subscription, by topic. */
  topics: Map<string, () => void>;
}

/**
 * What the workers of one service share: topics, limits and holds, counted in the process that supervises them. They
 * reach it through a Unix socket that only the service's own account can open.
 */
export class WorkerHub {
  readonly #topics = new InProcessBus();
  readonly #limits: MemoryLimits;
  readonly #holds: WorkerHolds;
  readonly #writes: WriteQueue<Peer>;
  readonly #listener: UnixSocketListener<Peer>;
  readonly #peers = new Set<Peer>();
  /** Whose message is being handed on: it has had it already. */
  #publisher: Peer | null = null;

  constructor(readonly options: HubOptions) {
    const { path, clock } = options;
    this.#limits = new MemoryLimits(clock);
    this.#holds = new WorkerHolds(clock);
    this.#writes = new WriteQueue(clock);
    // Left by a supervisor that was killed.
    rmSync(path, { force: true });
    const umask = process.umask(OWNER_ONLY);
    try {
      this.#listener = Bun.listen<Peer>({
        unix: path,
        socket: {
          open: (socket) => {
            socket.data = this.#met(socket);
          },
          data: ({ data }, bytes) => data.channel.received(bytes),
          drain: ({ data }) => data.channel.drained(),
          close: ({ data }) => this.#gone(data),
          error: ({ data }) => data.channel.close(),
        },
      });
    } finally {
      process.umask(umask);
    }
  }

  /** Frees what a worker held: it is dead, and what it had spent is in the database. */
  forget(worker: string): void {
    this.#holds.forget(worker);
  }

  close(): void {
    this.#holds.close();
    this.#listener.stop(true);
    rmSync(this.options.path, { force: true });
  }

  #met(socket: Socket<Peer>): Peer {
    const { log } = this.options;
    const channel = new Channel<ToHub, ToWorker>({
      socket,
      receive: (message) => this.#receive(peer, message),
      dropped: (bytes) => log.error("a message to a worker is too large and was dropped", { bytes }),
      broke: (error) => log.error("a worker's message failed; its connection is closed", { error }),
    });
    const peer: Peer = { channel, worker: null, topics: new Map() };
    this.#peers.add(peer);
    return peer;
  }

  #gone(peer: Peer): void {
    this.#peers.delete(peer);
    for (const end of peer.topics.values()) end();
    this.#writes.forget(peer);
    const { worker } = peer;
    // It may already be back on another connection.
    if (worker !== null && ![...this.#peers].some((other) => other.worker === worker))
      this.#holds.lost(worker);
  }

  #receive(peer: Peer, message: ToHub): void {
    const answer = this.#handle(peer, message);
    if (answer !== undefined) peer.channel.send(["answer", message[1] as number, answer]);
  }

  /** The answer, where one is waited for now. */
  #handle(peer: Peer, message: ToHub): Answers[Asked] | undefined {
    switch (message[0]) {
      case "hit":
        return this.#limits.hit(message[2]);
      case "hold":
        return this.#holds.purses.hold(message[2], unlimited(message[3]));
      case "lives":
        return this.#holds.purses.beat(message[2]);
      case "enter":
        peer.worker = message[2];
        return this.#holds.enter(message[2], message[3], message[4]);
      case "leave":
        this.#holds.purses.leave(message[2]);
        return true;
      case "publish":
        this.#publish(peer, message[1], message[2]);
        return;
      case "subscribe":
        this.#subscribe(peer, message[2]);
        return true;
      case "unsubscribe":
        peer.topics.get(message[1])?.();
        peer.topics.delete(message[1]);
        return;
      case "write": {
        const [, id] = message;
        this.#writes.enter(peer, () => peer.channel.send(["answer", id, true]));
        return;
      }
      case "written":
        this.#writes.leave(peer);
        return;
      case "beat":
        return true;
    }
  }

  #publish(peer: Peer, topic: string, message: string): void {
    this.#publisher = peer;
    this.#topics.publish(topic, message);
    this.#publisher = null;
  }

  #subscribe(peer: Peer, topic: string): void {
    if (peer.topics.has(topic)) return;
    const end = this.#topics.subscribe(topic, (message) => {
      if (this.#publisher !== peer) peer.channel.send(["publish", topic, message]);
    });
    peer.topics.set(topic, end);
  }
}

/** JSON has no infinity: it arrives as null. */
function unlimited(orders: readonly PurseOrder[]): readonly PurseOrder[] {
  for (const { asks } of orders)
    for (const { limit } of asks) {
      limit.money ??= Number.POSITIVE_INFINITY;
      limit.tokens ??= Number.POSITIVE_INFINITY;
    }
  return orders;
}
