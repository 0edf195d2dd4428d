import type { Clock } from "../../kernel/clock.ts";

/** A worker that takes longer loses its turn, not its transaction: the database's own lock still holds. */
const TURN_MS = 5_000;

interface WaitingPeer<Peer> {
  peer: Peer;
  begin(): void;
}

/** Workers wait for the database lock in order: left alone, one that sleeps when it is freed would miss it. */
export class WriteQueue<Peer> {
  readonly #waiting: WaitingPeer<Peer>[] = [];
  #writing: Peer | null = null;
  #cancelLimit: () => void = () => {};

  constructor(readonly clock: Clock) {}

  enter(peer: Peer, begin: () => void): void {
    this.#waiting.push({ peer, begin });
    this.#next();
  }

  leave(peer: Peer): void {
    if (this.#writing !== peer) return;
    this.#cancelLimit();
    this.#writing = null;
    this.#next();
  }

  forget(peer: Peer): void {
    for (let at = this.#waiting.length - 1; at >= 0; at--)
      if (this.#waiting[at]!.peer === peer) this.#waiting.splice(at, 1);
    this.leave(peer);
  }

  #next(): void {
    if (this.#writing !== null) return;
    const next = this.#waiting.shift();
    if (!next) return;
    this.#writing = next.peer;
    this.#cancelLimit = this.clock.after(TURN_MS, () => this.leave(next.peer));
    next.begin();
  }
}
