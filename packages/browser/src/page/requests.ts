/** Which data requests of a page are under way, so that an action can wait for what it asked the server for. */
import type { CdpSession } from "../cdp/connection.ts";

const openMax = 1_000;
/** A part of a program is loaded when it is first needed, and shows what it is for once it is there. */
const awaitedTypes = new Set(["XHR", "Fetch", "Script"]);

export class OpenRequests {
  /** By request, the count at its beginning. */
  readonly #open = new Map<string, number>();
  #begun = 0;
  readonly #onChange: () => void;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  attach(session: CdpSession): void {
    const key = (requestId: string) => `${session.id}:${requestId}`;
    const end = ({ requestId }: { requestId: string }) => {
      if (this.#open.delete(key(requestId))) this.#onChange();
    };
    session.on("Network.requestWillBeSent", ({ requestId, type }) => {
      if (!awaitedTypes.has(type ?? "") || this.#open.size >= openMax) return;
      this.#open.set(key(requestId), ++this.#begun);
    });
    session.on("Network.loadingFinished", end);
    session.on("Network.loadingFailed", end);
  }

  /** A mark to ask `isDoneSince` with. */
  get begun(): number {
    return this.#begun;
  }

  isDoneSince(mark: number): boolean {
    for (const count of this.#open.values()) if (count > mark) return false;
    return true;
  }

  clear(): void {
    this.#open.clear();
  }
}
