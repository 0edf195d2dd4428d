import type { Log } from "../../kernel/log.ts";
import { SharedBus } from "../shared-bus.ts";
import { WorkerLink } from "./link.ts";

export class WorkerBus extends SharedBus {
  readonly link: WorkerLink;

  constructor(options: { path: string; log: Log }) {
    super();
    this.link = new WorkerLink({
      ...options,
      entered: () => {
        for (const topic of this.topics.keys()) this.link.send(["subscribe", 0, topic]);
      },
      connected: (again) => {
        if (again) this.missedMessages();
        this.sendKept();
      },
      published: (topic, message) => this.received(topic, message),
    });
  }

  get connected(): boolean {
    return this.link.connected;
  }

  listenerCount(topic: string): Promise<number> {
    return this.link.ask("count", topic).catch(() => 1);
  }

  override close(): Promise<void> {
    this.link.close();
    return super.close();
  }

  protected send(topic: string, message: string): void {
    if (!this.link.send(["publish", topic, message])) this.keep(topic, message);
  }

  /** Without a connection it fails, and the next connection begins with all topics. */
  protected async listen(topic: string): Promise<void> {
    await this.link.ask("subscribe", topic).catch(() => {});
  }

  protected unlisten(topic: string): void {
    this.link.send(["unsubscribe", topic]);
  }
}
