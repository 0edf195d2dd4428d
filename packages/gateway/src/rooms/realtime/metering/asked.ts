import type { Committed } from "./transcripts.ts";
import type { Turn } from "./turn.ts";

interface AskedEvent {
  type: unknown;
  /** The gateway's own: by an id of the client's, an error might be about another one. None: it was not sent. */
  eventId?: string;
  /** The id that the client gave it. */
  named: unknown;
  turn?: Turn;
  committed?: Committed;
  /** An error that named no event may have been about it. */
  isDoubted?: boolean;
  /** Its hold has ended, since it was doubted for long. It may still begin. */
  isGivenUp?: boolean;
}

/** A response that has not begun by then will not. */
export const BEGINS_WITHIN_MS = 30_000;

/** Of those without a hold; an older one can no longer be refused. */
const KEPT = 16;

/** Client events that the upstream has not answered, in their order. */
export class AskedEvents {
  #events: AskedEvent[] = [];

  /** Responses that are expected to begin. */
  get turns(): Turn[] {
    return this.#events.flatMap(({ turn, isGivenUp }) => (turn && !isGivenUp ? turn : []));
  }

  add(event: AskedEvent): void {
    this.#events.push(event);
    const others = this.#events.filter(({ turn, isGivenUp }) => !turn || isGivenUp);
    if (others.length > KEPT) this.#take(others[0]);
  }

  doubt(): AskedEvent | undefined {
    const event = this.#events.find(({ turn, isDoubted }) => turn && !isDoubted);
    if (event) event.isDoubted = true;
    return event;
  }

  /** The turn to release; undefined when the response has begun, or was refused. */
  giveUp(event: AskedEvent): Turn | undefined {
    if (!this.#events.includes(event)) return undefined;
    event.isGivenUp = true;
    return event.turn;
  }

  /** The response that begins. `isApart`: undefined where the upstream does not tell. Some tell it of every response. */
  begin(isApart: boolean | undefined, { alsoGivenUp }: { alsoGivenUp: boolean }): AskedEvent | undefined {
    const asked = this.#events
      .filter(({ turn, isGivenUp }) => turn && (alsoGivenUp || !isGivenUp))
      .sort((one, other) => Number(one.isGivenUp ?? false) - Number(other.isGivenUp ?? false));
    const fits = asked.find(({ turn }) => isApart === undefined || turn!.isApart === isApart);
    return this.#take(fits ?? (isApart ? asked[0] : undefined));
  }

  /** `itemId`: of this item, as far as items are named. */
  take(type: string, itemId = ""): AskedEvent | undefined {
    const fits = (named?: string | null) => !itemId || !named || named === itemId;
    return this.#take(this.#events.find((each) => each.type === type && fits(each.committed?.itemId)));
  }

  takeById(eventId: unknown): AskedEvent | undefined {
    return this.#take(this.#events.find((event) => event.eventId && event.eventId === eventId));
  }

  takeAll(): AskedEvent[] {
    return this.#events.splice(0);
  }

  #take(event: AskedEvent | undefined): AskedEvent | undefined {
    if (event) this.#events.splice(this.#events.indexOf(event), 1);
    return event;
  }
}
