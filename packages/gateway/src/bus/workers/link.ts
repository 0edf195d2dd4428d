import type { Socket } from "bun";
import { systemClock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { Channel } from "./channel.ts";
import type { Answers, Asked, Said, ToHub, ToWorker } from "./messages.ts";

const TICK_MS = 1_000;
/** A supervisor that has not answered for this many ticks counts as away. Ticks do not count while this process stands still. */
const SILENT_TICKS_MAX = 2;
const BEAT_TICKS = 2;
const RECONNECT_MS = 100;

interface LinkOptions {
  path: string;
  log: Log;
  /** A new connection is open; the supervisor knows none of the subscriptions. */
  entered(): void;
  /** The connection works. `again`: messages may have been missed since an earlier one. */
  connected(again: boolean): void;
  published(topic: string, message: string): void;
}

export class WorkerLink {
  #channel: Channel<ToWorker, ToHub> | null = null;
  #isConnected = false;
  #wasConnected = false;
  #isClosed = false;
  readonly #waiting = new Map<number, { resolve(answer: unknown): void; reject(error: Error): void }>();
  #asked = 0;
  #silentTicks = 0;
  #ticks = 0;
  readonly #endTicks: () => void;
  #cancelRetry: () => void = () => {};

  constructor(readonly options: LinkOptions) {
    this.#endTicks = systemClock.every(TICK_MS, () => this.#tick());
  }

  get connected(): boolean {
    return this.#isConnected;
  }

  async open(): Promise<void> {
    const { entered, connected, log } = this.options;
    const channel = await this.#connect();
    entered();
    await this.#request("beat");
    if (this.#channel !== channel) throw new Error("the connection was lost");
    const again = this.#wasConnected;
    this.#isConnected = true;
    this.#wasConnected = true;
    if (again) log.info("the supervisor answers again: limits and holds are shared again");
    connected(again);
  }

  /** Returns false without a connection; the message is dropped. */
  send(message: ToHub): boolean {
    this.#channel?.send(message);
    return this.#channel !== null;
  }

  /** Fails without a connection, and when the connection is lost before the answer. */
  ask<Name extends Asked>(name: Name, ...said: Said<Name>): Promise<Answers[Name]> {
    if (!this.#isConnected) return Promise.reject(new Error("the supervisor cannot be reached"));
    return this.#request(name, ...said);
  }

  close(): void {
    this.#isClosed = true;
    this.#endTicks();
    this.#cancelRetry();
    this.#channel?.flush();
    this.#channel?.close();
    this.#lost();
  }

  #request<Name extends Asked>(name: Name, ...said: Said<Name>): Promise<Answers[Name]> {
    const channel = this.#channel;
    if (!channel) return Promise.reject(new Error("the supervisor cannot be reached"));
    const id = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: (answer) => resolve(answer as Answers[Name]), reject });
      channel.send([name, id, ...said] as unknown as ToHub);
      if (name === "ask") channel.flush();
    });
  }

  async #connect(): Promise<Channel<ToWorker, ToHub>> {
    const { path, log } = this.options;
    type Data = { channel: Channel<ToWorker, ToHub> | null };
    const gone = ({ data }: Socket<Data>) => {
      if (data.channel !== null && data.channel === this.#channel) this.#lost();
    };
    const socket = await Bun.connect<Data>({
      unix: path,
      data: { channel: null },
      socket: {
        data: ({ data }, bytes) => {
          this.#silentTicks = 0;
          data.channel?.received(bytes);
        },
        drain: ({ data }) => data.channel?.drained(),
        close: gone,
        error: gone,
      },
    });
    const channel = new Channel<ToWorker, ToHub>({
      socket,
      receive: (message) => this.#receive(message),
      dropped: (bytes) => log.error("a message to other workers is too large and was dropped", { bytes }),
      broke: (error) => log.error("a message of the supervisor failed; connecting again", { error }),
    });
    socket.data.channel = channel;
    this.#channel = channel;
    return channel;
  }

  #receive(message: ToWorker): void {
    if (message[0] === "answer") {
      const [, id, answer] = message;
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      waiting?.resolve(answer);
    } else this.options.published(message[1], message[2]);
  }

  #lost(): void {
    if (this.#isConnected && !this.#isClosed)
      this.options.log.warn("the supervisor is unreachable: this worker counts limits and holds locally");
    this.#isConnected = false;
    this.#channel = null;
    this.#silentTicks = 0;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(new Error("the connection to the supervisor was lost"));
    if (!this.#isClosed && this.#wasConnected) this.#retry();
  }

  #retry(): void {
    this.#cancelRetry();
    this.#cancelRetry = systemClock.after(RECONNECT_MS, () => {
      if (this.#isClosed || this.#channel) return;
      this.open().catch(() => {
        if (!this.#channel) this.#retry();
      });
    });
  }

  #tick(): void {
    if (!this.#channel) return;
    if (this.#waiting.size > 0 && ++this.#silentTicks > SILENT_TICKS_MAX) {
      const silent = this.#channel;
      this.#lost();
      silent.close();
    } else if (this.#isConnected && ++this.#ticks % BEAT_TICKS === 0) this.#request("beat").catch(() => {});
  }
}
