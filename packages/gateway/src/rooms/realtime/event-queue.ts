const EVENTS_MAX = 1_024;
const CHARS_MAX = 8 * 1024 * 1024;

export class EventQueue {
  #last: Promise<void> = Promise.resolve();
  /** Those that wait, and the one that is being handled. */
  #events = 0;
  #chars = 0;
  #isEnded = false;

  /** Resolves when the event is handled; false when the queue is full. Fails as `run` does. */
  async push(event: Record<string, unknown>, run: () => Promise<unknown>): Promise<boolean> {
    const chars = this.#events === 0 ? 0 : JSON.stringify(event).length;
    if (this.#events > EVENTS_MAX || this.#chars + chars > CHARS_MAX) return false;
    this.#events++;
    this.#chars += chars;
    const handled = this.#last.then(() => (this.#isEnded ? undefined : run()));
    const left = () => {
      this.#events--;
      this.#chars -= chars;
    };
    this.#last = handled.then(left, left);
    await handled;
    return true;
  }

  end(): void {
    this.#isEnded = true;
  }
}
