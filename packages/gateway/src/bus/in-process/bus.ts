import type { Bus } from "../contract.ts";

/** Topics within one process; delivery is a function call. */
export class InProcessBus implements Bus {
  #receivers = new Map<string, Set<(message: string) => void>>();

  publish(topic: string, message: string): void {
    for (const receive of this.#receivers.get(topic) ?? []) receive(message);
  }

  subscribe(topic: string, receive: (message: string) => void): () => void {
    let set = this.#receivers.get(topic);
    if (!set) {
      set = new Set();
      this.#receivers.set(topic, set);
    }
    set.add(receive);
    return () => {
      set.delete(receive);
      if (set.size === 0) this.#receivers.delete(topic);
    };
  }

  async close(): Promise<void> {
    this.#receivers.clear();
  }
}
