import type { Bus, Receive, Subscription } from "../contract.ts";

export class InProcessBus implements Bus {
  readonly shared = false;
  readonly connected = true;
  #receivers = new Map<string, Set<Receive>>();
  #doing = new Set<Promise<unknown>>();

  publish(topic: string, message: string): void {
    for (const receive of this.#receivers.get(topic) ?? []) {
      const doing = receive(message);
      if (!(doing instanceof Promise)) continue;
      this.#doing.add(doing);
      void doing.finally(() => this.#doing.delete(doing));
    }
  }

  done(): Promise<unknown> {
    return Promise.allSettled(this.#doing);
  }

  async ready(): Promise<void> {}

  async listenerCount(): Promise<number> {
    return 1;
  }

  onGap(): void {}

  subscribe(topic: string, receive: Receive): Subscription {
    const set = this.#receivers.getOrInsertComputed(topic, () => new Set());
    set.add(receive);
    const end = () => {
      set.delete(receive);
      if (set.size === 0) this.#receivers.delete(topic);
    };
    return Object.assign(end, { ready: Promise.resolve() });
  }

  receiverCount(topic: string): number {
    return this.#receivers.get(topic)?.size ?? 0;
  }

  async close(): Promise<void> {
    this.#receivers.clear();
  }
}
