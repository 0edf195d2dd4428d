const EVENTS_MAX = 1_024;
const CHARS_MAX = 8 * 1024 * 1024;

interface Waiting {
  run(): void | Promise<void>;
  chars: number;
}

interface EventQueueOptions {
  /** A queued event could not be handled. */
  failed(error: unknown): void;
}

/** Handles events in order: at once, unless an earlier one is still being handled. */
export class EventQueue {
  readonly #waiting: Waiting[] = [];
  #chars = 0;
  #isBusy = false;
  #isEnded = false;

  constructor(readonly options: EventQueueOptions) {}

  /** False when the queue is full. Throws what `run` throws when it runs at once. */
  push(event: Record<string, unknown>, run: () => void | Promise<void>): boolean {
    if (this.#isEnded) return true;
    if (!this.#isBusy) {
      this.#run(run);
      return true;
    }
    const chars = JSON.stringify(event).length;
    if (this.#waiting.length >= EVENTS_MAX || this.#chars + chars > CHARS_MAX) return false;
    this.#waiting.push({ run, chars });
    this.#chars += chars;
    return true;
  }

  /** Drops queued events. */
  end(): void {
    this.#isEnded = true;
    this.#waiting.length = 0;
    this.#chars = 0;
  }

  #run(run: Waiting["run"]): void {
    const done = run();
    if (!(done instanceof Promise)) return;
    this.#isBusy = true;
    done.then(
      () => this.#next(),
      (error) => {
        if (!this.#isEnded) this.options.failed(error);
        this.#next();
      },
    );
  }

  #next(): void {
    this.#isBusy = false;
    while (!this.#isBusy) {
      const next = this.#waiting.shift();
      if (!next) return;
      this.#chars -= next.chars;
      try {
        this.#run(next.run);
      } catch (error) {
        this.options.failed(error);
      }
    }
  }
}
