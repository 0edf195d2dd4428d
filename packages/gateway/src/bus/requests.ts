import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Bus, Requests, Subscription } from "./contract.ts";

/** Requests that wait for an answer; beyond this a new one is not sent. */
const WAITING_MAX = 10_000;

export class BusRequests implements Requests {
  readonly #replies: string;
  readonly #waiting = new Map<string, (answer: string) => void>();
  readonly #unsubscribe: () => void;
  #count = 0;

  constructor(readonly options: { bus: Bus; clock: Clock; ids: Ids }) {
    const { bus, ids } = options;
    this.#replies = `replies:${ids.uuid()}`;
    this.#unsubscribe = bus.subscribe(this.#replies, (text) => {
      const [id, answer] = cut(text);
      this.#waiting.get(id)?.(answer);
    });
  }

  ask(topic: string, question: string, timeoutMs: number): Promise<string | null> {
    const { bus, clock } = this.options;
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve(null);
    const id = String(++this.#count);
    return new Promise((resolve) => {
      const end = (answer: string | null) => {
        cancel();
        this.#waiting.delete(id);
        resolve(answer);
      };
      const cancel = clock.after(timeoutMs, () => end(null));
      this.#waiting.set(id, end);
      bus.publish(topic, `${this.#replies} ${id} ${question}`);
    });
  }

  serve(topic: string, answer: (question: string) => string | Promise<string>): Subscription {
    const { bus } = this.options;
    return bus.subscribe(topic, async (asked) => {
      const [replies, rest] = cut(asked);
      const [id, question] = cut(rest);
      bus.publish(replies, `${id} ${await answer(question)}`);
    });
  }

  close(): void {
    this.#unsubscribe();
  }
}

/** The first word and what follows it. */
function cut(text: string): [string, string] {
  const space = text.indexOf(" ");
  return [text.slice(0, space), text.slice(space + 1)];
}
