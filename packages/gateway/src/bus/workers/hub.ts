import { rmSync } from "node:fs";
import type { Socket, UnixSocketListener } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { ALIVE_MS } from "../counter-server.ts";
import { InProcessBus } from "../in-process/bus.ts";
import { MemoryCounter } from "../in-process/counter.ts";
import { Channel } from "./channel.ts";
import type { Answers, Asked, ToHub, ToWorker } from "./messages.ts";

const OWNER_ONLY = 0o177;

interface Peer {
  channel: Channel<ToHub, ToWorker>;
  instances: string[];
  topics: Map<string, () => void>;
}

/** The supervisor's side: topics, limits and holds of its workers, over a Unix socket that only its own account can open. */
export class WorkerHub {
  readonly #topics = new InProcessBus();
  readonly #counter: MemoryCounter;
  readonly #listener: UnixSocketListener<Peer>;
  /** Cancels the timers of workers whose connections are gone. */
  readonly #lost = new Set<() => void>();
  /** The sender of the message that is being published: it has delivered it already. */
  #publisher: Peer | null = null;

  constructor(readonly options: { path: string; clock: Clock; log: Log }) {
    const { path, clock } = options;
    this.#counter = new MemoryCounter(clock);
    // A killed supervisor leaves its socket.
    rmSync(path, { force: true });
    const umask = process.umask(OWNER_ONLY);
    try {
      this.#listener = Bun.listen<Peer>({
        unix: path,
        socket: {
          open: (socket) => {
            socket.data = this.#newPeer(socket);
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

  close(): void {
    for (const cancel of this.#lost) cancel();
    this.#listener.stop(true);
    rmSync(this.options.path, { force: true });
  }

  #newPeer(socket: Socket<Peer>): Peer {
    const { log } = this.options;
    const channel = new Channel<ToHub, ToWorker>({
      socket,
      receive: (message) => this.#receive(peer, message),
      dropped: (bytes) => log.error("a message to a worker is too large and was dropped", { bytes }),
      broke: (error) => log.error("a worker's message failed; its connection is closed", { error }),
    });
    const peer: Peer = { channel, instances: [], topics: new Map() };
    return peer;
  }

  /** Its holds stay for a while: it may reconnect, or have died with requests whose usage is not settled yet. */
  #gone(peer: Peer): void {
    for (const end of peer.topics.values()) end();
    const cancel = this.options.clock.after(ALIVE_MS, () => {
      this.#lost.delete(cancel);
      this.#counter.leave(peer.instances);
    });
    this.#lost.add(cancel);
  }

  #receive(peer: Peer, message: ToHub): void {
    const answer = this.#handle(peer, message);
    if (answer !== undefined) peer.channel.send(["answer", message[1] as number, answer]);
  }

  #handle(peer: Peer, message: ToHub): Answers[Asked] | undefined {
    switch (message[0]) {
      case "ask":
        return this.#counter.ask(message[2], message[3]);
      case "enter":
        peer.instances.push(message[2]);
        return this.#counter.enter(message[2]);
      case "leave":
        peer.instances = peer.instances.filter((each) => !message[2].includes(each));
        this.#counter.leave(message[2]);
        return true;
      case "publish":
        this.#publisher = peer;
        this.#topics.publish(message[1], message[2]);
        this.#publisher = null;
        return;
      case "subscribe":
        this.#subscribe(peer, message[2]);
        return true;
      case "unsubscribe":
        peer.topics.get(message[1])?.();
        peer.topics.delete(message[1]);
        return;
      case "count":
        return this.#topics.receiverCount(message[2]);
      case "beat":
        return true;
    }
  }

  #subscribe(peer: Peer, topic: string): void {
    if (peer.topics.has(topic)) return;
    const end = this.#topics.subscribe(topic, (message) => {
      if (this.#publisher !== peer) peer.channel.send(["publish", topic, message]);
    });
    peer.topics.set(topic, end);
  }
}
