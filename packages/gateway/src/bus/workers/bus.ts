import type { Log } from "../../kernel/log.ts";
import type { Bus, Receive, Subscription } from "../contract.ts";
import { InProcessBus } from "../in-process/bus.ts";
import { UntoldChanges } from "../untold-changes.ts";
import { WorkerLink } from "./link.ts";

/** Topics shared by the workers of one service. A message reaches this process's own receivers by a function call. */
export class WorkerBus implements Bus {
  readonly shared = true;
  readonly #local = new InProcessBus();
  /** Resolves when the supervisor hands on what is published on the topic. */
  readonly #topics = new Map<string, Promise<void>>();
  readonly #forget = new Set<() => void>();
  readonly #untold = new UntoldChanges();

  readonly link: WorkerLink;

  constructor(options: { path: string; log: Log }) {
    this.link = new WorkerLink({
      ...options,
      entered: () => {
        for (const topic of this.#topics.keys()) this.link.send(["subscribe", 0, topic]);
      },
      connected: (again) => {
        if (again) for (const forget of this.#forget) forget();
        this.#untold.tell((topic, message) => this.#send(topic, message));
      },
      published: (topic, message) => this.#local.publish(topic, message),
    });
  }

  get connected(): boolean {
    return this.link.connected;
  }

  publish(topic: string, message: string): void {
    this.#local.publish(topic, message);
    this.#send(topic, message);
  }

  #send(topic: string, message: string): void {
    if (!this.link.send(["publish", topic, message])) this.#untold.keep(topic, message);
  }

  subscribe(topic: string, receive: Receive): Subscription {
    const end = this.#local.subscribe(topic, receive);
    let ready = this.#topics.get(topic);
    if (!ready) {
      // Without a connection: the next one begins with all topics.
      ready = this.link.ask("subscribe", topic).then(
        () => {},
        () => {},
      );
      this.#topics.set(topic, ready);
    }
    return Object.assign(
      () => {
        end();
        if (this.#local.receiverCount(topic) > 0 || !this.#topics.delete(topic)) return;
        this.link.send(["unsubscribe", topic]);
      },
      { ready },
    );
  }

  done(): Promise<unknown> {
    return this.#local.done();
  }

  async ready(): Promise<void> {
    await Promise.all(this.#topics.values());
  }

  listenerCount(topic: string): Promise<number> {
    return this.link.ask("count", topic).catch(() => 1);
  }

  onGap(forget: () => void): void {
    this.#forget.add(forget);
  }

  close(): Promise<void> {
    this.link.close();
    return this.#local.close();
  }
}
