import type { Log } from "../kernel/log.ts";

/** Everything that is open; closed in reverse order when the service stops, or its start fails half-way. */
export class Life {
  readonly #open = new AsyncDisposableStack();
  isPatient = false;

  constructor(readonly log: Log) {}

  opened(part: string, close: () => void | Promise<void>): void {
    const { log } = this;
    this.#open.defer(async () => {
      await close();
      log.debug("closed", { part });
    });
    log.debug("opened", { part });
  }

  /** Closes everything, then throws the failures. */
  close(): Promise<void> {
    return this.#open.disposeAsync();
  }
}
