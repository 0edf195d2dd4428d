import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Bus, Requests, Subscription } from "./contract.ts";

const WAITING_MAX = 10_000;
const DONE = "done";

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
    this.serve(DONE, async () => {
      await bus.done();
      return "";
    });
  }

  async ask(topic: string, question: string, timeoutMs: number): Promise<string | null> {
    const [answer = null] = await this.#ask(topic, question, { timeoutMs, count: 1 });
    return answer;
  }

  async askAll(topic: string, question: string, timeoutMs: number): Promise<string[]> {
    const count = await this.options.bus.listenerCount(topic);
    return this.#ask(topic, question, { timeoutMs, count });
  }

  allDone(timeoutMs: number): Promise<unknown> {
    return this.askAll(DONE, "", timeoutMs);
  }

  /** Resolves with `count` answers, or those that came in time. */
  #ask(topic: string, question: string, { timeoutMs, count }: { timeoutMs: number; count: number }) {
    const { bus, clock } = this.options;
    const answers: string[] = [];
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve(answers);
    const id = String(++this.#count);
    return new Promise<string[]>((resolve) => {
      const end = () => {
        cancel();
        this.#waiting.delete(id);
        resolve(answers);
      };
      const cancel = clock.after(timeoutMs, end);
      this.#waiting.set(id, (answer) => {
        if (answers.push(answer) >= count) end();
      });
      bus.publish(topic, `${this.#replies} ${id} ${question}`);
    });
  }

  serve(topic: string, answer: (question: string) => string | Promise<string>): Subscription {
    const { bus } = this.options;
    const reply = async (asked: string) => {
      const [replies, rest] = cut(asked);
      const [id, question] = cut(rest);
      bus.publish(replies, `${id} ${await answer(question)}`);
    };
    return bus.subscribe(topic, (asked) => void reply(asked));
  }

  close(): void {
    this.#unsubscribe();
  }
}

function cut(text: string): [string, string] {
  const space = text.indexOf(" ");
  return [text.slice(0, space), text.slice(space + 1)];
}
