import type { Log } from "../kernel/log.ts";

/** Everything that is open. It is closed in reverse order: when the service stops, and when its start fails half-way. */
export class Life {
  readonly #open = new AsyncDisposableStack();
  /** Whether what is under way may take its time to finish. */
  isPatient = false;

  constructor(readonly log: Log) {}

  /** Says that `part` is open, and how it is closed. */
  opened(part: string, close: () => void | Promise<void>): void {
    const { log } = this;
    this.#open.defer(async () => {
      await close();
      log.debug("closed", { part });
    });
    log.debug("opened", { part });
  }

  /** Closes everything, also after something failed to close; then throws what failed. */
  close(): Promise<void> {
    return this.#open.disposeAsync();
  }
}
