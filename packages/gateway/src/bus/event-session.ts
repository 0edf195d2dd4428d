import type { EventReader, Subscriber, Subscription } from "./contract.ts";
import { EventLog, type KeptTotal, type LoggedEvent, mayHear } from "./event-log.ts";

/** One session as an instance with subscribers of it sees it: recent notifications and their readers. */
export class EventSession {
  readonly log: EventLog;
  readonly readers = new Set<SessionReader>();
  unsubscribe!: Subscription;
  cancelExpiry: (() => void) | null = null;

  constructor(total: KeptTotal) {
    this.log = new EventLog(total);
  }

  get isHeard(): boolean {
    for (const reader of this.readers) if (reader.hasBegun) return true;
    return false;
  }

  append(event: LoggedEvent): void {
    this.log.append(event);
    for (const reader of this.readers) {
      if (reader.next < this.log.first) reader.shutOut();
      else reader.pump();
    }
  }

  dropRead(): void {
    let next = this.log.end;
    for (const reader of this.readers) next = Math.min(next, reader.next);
    this.log.dropBefore(next);
  }
}

export class SessionReader implements EventReader {
  /** The number of the notification that it gets next. */
  next: number;
  #isReady = false;
  hasBegun = false;
  /** Earlier notifications are still being fetched from other instances. */
  isCatchingUp = false;
  isChecked = true;

  constructor(
    readonly session: EventSession,
    readonly subscriber: Subscriber,
    readonly userId: string | null,
    readonly events: { begun(): void; left(): void },
  ) {
    this.next = session.log.end;
  }

  get lastId(): string | null {
    const { log } = this.session;
    return this.next > log.first ? log.at(this.next - 1).id : null;
  }

  resume(): void {
    this.#isReady = true;
    this.pump();
    if (this.hasBegun) return;
    this.hasBegun = true;
    this.events.begun();
  }

  pump(): void {
    const { session, subscriber } = this;
    if (this.isCatchingUp || !this.isChecked) return;
    while (this.#isReady && this.next < session.log.end) {
      const { id, json, audience } = session.log.at(this.next++);
      if (mayHear(audience, this.userId) && !subscriber.deliver(json, id)) this.#isReady = false;
    }
  }

  finish(): void {
    const { log } = this.session;
    while (this.isChecked && this.next < log.end) {
      const { id, json, audience } = log.at(this.next++);
      if (mayHear(audience, this.userId)) this.subscriber.deliver(json, id);
    }
    this.leave();
  }

  /** What it should get next is no longer kept, or is not for it. */
  shutOut(): void {
    this.leave();
    this.subscriber.closed();
  }

  leave(): void {
    this.#isReady = false;
    if (this.session.readers.delete(this)) this.events.left();
  }
}
