import type { EventReader, Subscriber, Subscription } from "./contract.ts";

/** Characters of JSON that are kept of a session, for subscribers that are behind or reconnect. */
export const LOG_CHARS_MAX = 4 * 1024 * 1024;
/** More than necessary is dropped at once, which is cheaper. */
const LOG_CHARS_AFTER_TRIM = (LOG_CHARS_MAX * 3) / 4;
/** How long a notification is kept, and a session without subscribers. */
export const KEPT_MS = 2 * 60_000;
const TRIM_AGE_MS = KEPT_MS * 1.25;

/** Who gets an event: everyone, only a user (`!`), or a user and readers who are not signed in (`?`). */
export type Audience = "" | `!${string}` | `?${string}`;
export const EVERYONE: Audience = "";

function includes(audience: Audience, userId: string | null): boolean {
  if (audience === EVERYONE) return true;
  return userId === null ? audience.startsWith("?") : audience.slice(1) === userId;
}

export interface LoggedEvent {
  id: string;
  audience: Audience;
  json: string;
  atMs: number;
}

interface KeptTotal {
  chars: number;
}

/** The latest notifications of one session, numbered. Subscribers read from it at their own pace, without buffers. */
class EventLog {
  #events: LoggedEvent[] = [];
  #chars = 0;
  first = 0;

  constructor(readonly total: KeptTotal) {}

  get end(): number {
    return this.first + this.#events.length;
  }

  at(number: number): LoggedEvent {
    return this.#events[number - this.first]!;
  }

  append(event: LoggedEvent): void {
    this.#events.push(event);
    this.#count(event.json.length);
    if (this.#chars > LOG_CHARS_MAX) this.#trimChars();
    else if (this.#events[0]!.atMs < event.atMs - TRIM_AGE_MS) this.#trimOld(event.atMs - KEPT_MS);
  }

  prepend(events: readonly LoggedEvent[]): void {
    const known = new Set(this.#events.map(({ id }) => id));
    const missing = events.filter(({ id }) => !known.has(id));
    this.#events = [...missing, ...this.#events];
    this.first -= missing.length;
    this.#count(missing.reduce((sum, { json }) => sum + json.length, 0));
    if (this.#chars > LOG_CHARS_MAX) this.#trimChars();
  }

  /** The number of the event after the one with this id; null if that is not kept. */
  numberAfter(id: string): number | null {
    const at = this.#events.findLastIndex((event) => event.id === id);
    return at === -1 ? null : this.first + at + 1;
  }

  since(number: number): LoggedEvent[] {
    return this.#events.slice(number - this.first);
  }

  dropBefore(number: number): void {
    const dropped = this.#events.splice(0, Math.max(0, number - this.first));
    if (dropped.length === 0) return;
    this.first += dropped.length;
    this.#count(-dropped.reduce((sum, { json }) => sum + json.length, 0));
  }

  /** The last event always stays, or a very large one could never be delivered. */
  #trimChars(): void {
    let left = this.#chars;
    let at = 0;
    while (left > LOG_CHARS_AFTER_TRIM && at < this.#events.length - 1)
      left -= this.#events[at++]!.json.length;
    this.dropBefore(this.first + at);
  }

  #trimOld(oldestMs: number): void {
    const firstYoung = this.#events.findIndex(({ atMs }) => atMs >= oldestMs);
    this.dropBefore(this.first + firstYoung);
  }

  #count(chars: number): void {
    this.#chars += chars;
    this.total.chars += chars;
  }
}

/** A session with subscribers on this instance: its recent notifications, and their readers. */
export class EventSession {
  readonly log: EventLog;
  readonly readers = new Set<SessionReader>();
  unsubscribe!: Subscription;
  cancelExpiry: (() => void) | null = null;

  constructor(total: KeptTotal) {
    this.log = new EventLog(total);
  }

  get isHeard(): boolean {
    return this.readers.values().some(({ hasBegun }) => hasBegun);
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
  next: number;
  #isReady = false;
  hasBegun = false;
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
      if (includes(audience, this.userId) && !subscriber.deliver(json, id)) this.#isReady = false;
    }
  }

  finish(): void {
    const { log } = this.session;
    while (this.isChecked && this.next < log.end) {
      const { id, json, audience } = log.at(this.next++);
      if (includes(audience, this.userId)) this.subscriber.deliver(json, id);
    }
    this.leave();
  }

  /** The next notification is no longer kept, or the reader may not read the session. */
  shutOut(): void {
    this.leave();
    this.subscriber.closed();
  }

  leave(): void {
    this.#isReady = false;
    if (this.session.readers.delete(this)) this.events.left();
  }
}
