/** How much of a session is kept for subscribers that are behind or come back, in characters of JSON. */
export const LOG_CHARS_MAX = 4 * 1024 * 1024;
/** Dropping some more at a time than is needed keeps it cheap. */
const LOG_CHARS_AFTER_TRIM = (LOG_CHARS_MAX * 3) / 4;
/** How long a notification is kept, and a session after its last subscriber left. */
export const KEPT_MS = 2 * 60_000;
const TRIM_AGE_MS = KEPT_MS * 1.25;

/** Who may hear an event: everyone, a user alone (`!`), or a user and readers who are not signed in (`?`). */
export type Audience = "" | `!${string}` | `?${string}`;
export const EVERYONE: Audience = "";

export function mayHear(audience: Audience, userId: string | null): boolean {
  if (audience === EVERYONE) return true;
  return userId === null ? audience.startsWith("?") : audience.slice(1) === userId;
}

export interface LoggedEvent {
  id: string;
  audience: Audience;
  json: string;
  atMs: number;
}

/** What all logs of an instance hold together. */
export interface KeptTotal {
  chars: number;
}

/** The latest notifications of one session, numbered. Subscribers read at their own pace without buffers. */
export class EventLog {
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

  /** The number of the one that follows the one with this id; null when that is not kept. */
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

  /** The last one always stays: otherwise a very large one could never be delivered. */
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
