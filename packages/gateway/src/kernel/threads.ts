import { join } from "node:path";

const isExecutable = Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");

/** A thread that runs the code at `path`, relative to `folder`. Executables find their files by the path alone. */
export const startThread = (folder: string, path: string): Worker =>
  new Worker(isExecutable ? path : join(folder, path), { smol: true, ref: false });

type Answered<Answer> = { id: number } & (
  | { answer: Answer }
  | { failed: { message: string; stack?: string; code?: unknown } }
);

/** Calls of a thread, which starts with the first call, and again with the next call after it ended. */
export class ThreadCalls<Ask, Answer> {
  #worker: Worker | null = null;
  readonly #pending = new Map<number, PromiseWithResolvers<Answer>>();
  #lastId = 0;

  constructor(
    readonly name: string,
    readonly start: () => Worker,
    readonly onEnd: (reason: string) => void = () => {},
  ) {}

  get isRunning(): boolean {
    return this.#worker !== null;
  }
  get pendingCount(): number {
    return this.#pending.size;
  }

  call(ask: Ask): Promise<Answer> {
    this.#worker ??= this.#started();
    const id = ++this.#lastId;
    const answer = Promise.withResolvers<Answer>();
    this.#pending.set(id, answer);
    this.#worker.postMessage({ id, ask });
    return answer.promise;
  }

  #started(): Worker {
    const worker = this.start();
    const ended = (reason: string) => {
      if (this.#worker === worker) this.end(reason);
    };
    worker.onmessage = ({ data }: MessageEvent<Answered<Answer>>) => {
      if (this.#worker !== worker) return;
      const pending = this.#pending.get(data.id);
      this.#pending.delete(data.id);
      if ("answer" in data) pending?.resolve(data.answer);
      else pending?.reject(Object.assign(new Error(data.failed.message), data.failed));
    };
    worker.onerror = ({ message }) => ended(message);
    worker.addEventListener("close", () => ended("it ended"));
    return worker;
  }

  /** Terminates the thread in the middle of whatever it does; pending calls fail. */
  end(reason: string): void {
    if (!this.#worker) return;
    this.onEnd(reason);
    this.#worker.terminate();
    this.#worker = null;
    for (const { reject } of this.#pending.values()) reject(new Error(`${this.name} ended: ${reason}`));
    this.#pending.clear();
  }
}

declare const self: Worker;

/** The other side of `ThreadCalls`, in the thread. */
export function answerCalls<Ask, Answer>(work: (ask: Ask) => Promise<Answer>): void {
  self.onmessage = async ({ data: { id, ask } }: MessageEvent<{ id: number; ask: Ask }>) => {
    const send = (answered: Answered<Answer>) => self.postMessage(answered);
    try {
      send({ id, answer: await work(ask) });
    } catch (error) {
      const { message, stack, code } = error as Error & { code?: unknown };
      send({ id, failed: { message, stack, code } });
    }
  };
}
