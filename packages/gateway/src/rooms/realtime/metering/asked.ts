import type { Turn } from "./turn.ts";

/** Audio that went from the buffer into the conversation. */
export interface Committed {
  seconds: number;
  tokens: number;
  /** What its transcript takes; none: 0. */
  transcriptTokens: number;
}

interface AskedEvent {
  type: unknown;
  /** The gateway's own: by an id of the client's, an error might be about another one. */
  eventId: string;
  /** The id that the client gave it. */
  named: unknown;
  turn?: Turn;
  committed?: Committed;
  /** An error that named no event may have been about it. */
  isDoubted?: boolean;
}

/** A response that has not begun by then will not. */
export const BEGINS_WITHIN_MS = 30_000;

/** Of those that are no responses; an older one can no longer be refused. */
const KEPT = 16;

/** Client events that the upstream has not answered, in their order. */
export class AskedEvents {
  #events: AskedEvent[] = [];

  get turns(): Turn[] {
    return this.#events.flatMap(({ turn }) => turn ?? []);
  }

  add(event: AskedEvent): void {
    this.#events.push(event);
    const others = this.#events.filter(({ turn }) => !turn);
    if (others.length > KEPT) this.#events.splice(this.#events.indexOf(others[0]!), 1);
  }

  doubt(type: string): AskedEvent | undefined {
    const event = this.#events.find((each) => each.type === type && !each.isDoubted);
    if (event) event.isDoubted = true;
    return event;
  }

  take(type: string): AskedEvent | undefined {
    return this.#takeAt(this.#events.findIndex((event) => event.type === type));
  }

  takeById(eventId: unknown): AskedEvent | undefined {
    return this.#takeAt(this.#events.findIndex((event) => event.eventId === eventId));
  }

  takeAll(): AskedEvent[] {
    return this.#events.splice(0);
  }

  #takeAt(at: number): AskedEvent | undefined {
    return at === -1 ? undefined : this.#events.splice(at, 1)[0];
  }
}
