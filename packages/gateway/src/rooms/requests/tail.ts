import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { RequestLine } from "../../kernel/request-row.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import type { Needs } from "../foundation.ts";
import { type Filter, matches } from "./filter.ts";
import { requestsEnded } from "./notifications.ts";
import { listedOf, viewOf } from "./view.ts";

const WATCHED = "requests-watched";
/** A watcher is forgotten when it is not renewed for this long. */
const WATCHED_MS = 60_000;
const RENEW_SECONDS = 30;
const WATCHERS_MAX = 200;
/** Of one person; the one that was renewed longest ago gives way. */
const WATCHERS_PER_USER_MAX = 5;
/** Watchers are told this often, or as soon as so many have ended. */
const TELL_EVERY_MS = 500;
export const TOLD_AT_ONCE_MAX = 1_000;
/** Of those, how many a watcher is shown; the rest are counted. */
const SHOWN_MAX = 20;

interface Watcher {
  streamId: string;
  userId: string;
  filter: Filter;
  untilMs: number;
  /** Rights may have been taken away; they are checked when it is renewed. */
  isPaused?: true;
}

/** Tells those who watch of requests that have just ended, on whichever instance. */
export class Tail {
  readonly #watchers = new Map<string, Watcher>();
  readonly #unsubscribe: (() => void)[];
  readonly #ended: RequestLine[] = [];
  #cancel: (() => void) | null = null;

  constructor(readonly options: Needs<"bus" | "events" | "clock" | "ids">) {
    this.#unsubscribe = [
      options.bus.subscribe(WATCHED, (message) => this.#watched(JSON.parse(message) as Watcher)),
      options.bus.subscribe(PRINCIPAL_CHANGED, (id) => this.#pause(id)),
    ];
  }

  watch(actor: Actor, filter: Filter, renewed: string | undefined) {
    const { bus, events, clock } = this.options;
    const { userId } = actor;
    this.#forgetOld();
    const known = renewed === undefined ? undefined : this.#watchers.get(renewed);
    if (known && known.userId !== userId) fail("not_found", "There is no such stream of yours");
    const streamId = known?.streamId ?? events.open(actor).sessionId;
    const watcher: Watcher = { streamId, userId, filter, untilMs: clock.now() + WATCHED_MS };
    bus.publish(WATCHED, JSON.stringify(watcher));
    return { stream_id: streamId, renew_after_seconds: RENEW_SECONDS };
  }

  #watched(watcher: Watcher): void {
    this.#forgetOld();
    this.#watchers.delete(watcher.streamId);
    const own = [...this.#watchers.values()].filter(({ userId }) => userId === watcher.userId);
    if (own.length >= WATCHERS_PER_USER_MAX) this.#watchers.delete(own[0]!.streamId);
    if (this.#watchers.size < WATCHERS_MAX) this.#watchers.set(watcher.streamId, watcher);
  }

  #forgetOld(): void {
    const nowMs = this.options.clock.now();
    for (const [streamId, { untilMs }] of this.#watchers)
      if (untilMs < nowMs) this.#watchers.delete(streamId);
  }

  #pause(id: string): void {
    for (const watcher of this.#watchers.values())
      if (watcher.userId === id || watcher.filter.group_id === id) watcher.isPaused = true;
  }

  ended(line: RequestLine): void {
    if (this.#watchers.size === 0) return;
    if (this.#ended.push(line) === TOLD_AT_ONCE_MAX) this.#tell();
    else this.#cancel ??= this.options.clock.after(TELL_EVERY_MS, () => this.#tell());
  }

  #tell(): void {
    this.#cancel?.();
    this.#cancel = null;
    this.#forgetOld();
    const ended = this.#ended.splice(0).map(listedOf);
    for (const { streamId, filter, isPaused } of this.#watchers.values()) {
      if (isPaused) continue;
      const matching = ended.filter((row) => matches(filter, row));
      if (matching.length === 0) continue;
      const shown = matching.slice(-SHOWN_MAX).map(viewOf);
      const skipped = matching.length - shown.length;
      this.options.events.notify(streamId, requestsEnded, { stream_id: streamId, records: shown, skipped });
    }
  }

  close(): void {
    this.#cancel?.();
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
  }
}
