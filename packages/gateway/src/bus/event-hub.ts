import type { Clock } from "../kernel/clock.ts";
import type { SignedIn } from "../kernel/context.ts";
import type { Ids } from "../kernel/ids.ts";
import { ChannelOwners } from "./channel-owners.ts";
import type { Bus, EventHub, EventReader, EventStream, Requests, SubscribeOptions } from "./contract.ts";
import {
  type Audience,
  EVERYONE,
  EventSession,
  KEPT_MS,
  LOG_CHARS_MAX,
  type LoggedEvent,
  SessionReader,
} from "./event-session.ts";

const SUBSCRIBER_GRACE_MS = 1_000;
const SUBSCRIBERS_PER_SESSION_MAX = 16;
/** How long the owner of an ended stream is remembered, for late subscribers. */
const OWNER_KEPT_MS = 10 * 60_000;
/** Sessions that are kept without subscribers, in case one reconnects; the oldest are dropped first. */
const DESERTED_SESSIONS_MAX = 10_000;
/** Limit of notifications that are kept after delivery, over all sessions. */
const KEPT_CHARS_MAX = 64 * 1024 * 1024;
const KEPT_CHARS_AFTER_SWEEP = (KEPT_CHARS_MAX * 3) / 4;
/** How long a subscriber that reconnects to another instance waits for the notifications that others keep. */
const CATCH_UP_MS = 1_000;

const topicOf = (sessionId: string) => `events:${sessionId}`;
const ATTACHED = "events-attached";
const OPENED = "events-opened";
const STOPPED = "events-stopped";
const MISSED = "events-missed";

interface SessionMessage {
  sessionId: string;
  userId: string;
}
interface OpenedMessage extends SessionMessage {
  signedInAs?: string;
}

interface MissedQuestion {
  sessionId: string;
  lastId: string;
}

interface Opening {
  held: { json: string; audience: Audience }[];
  heldChars: number;
  heard: Promise<void>;
  /** Sends what was held, because someone has subscribed or the grace period is over. */
  settle(): void;
}

/** Parses a message: the event's id, its audience unless that is everyone, a space, and its JSON. */
function eventOf(message: string, atMs: number): LoggedEvent {
  const space = message.indexOf(" ");
  const head = message.slice(0, space);
  const mark = head.search(/[!?]/);
  return {
    id: mark === -1 ? head : head.slice(0, mark),
    audience: mark === -1 ? EVERYONE : (head.slice(mark) as Audience),
    json: message.slice(space + 1),
    atMs,
  };
}

/** Emitters publish on a session's topic of the bus; instances with subscribers keep and deliver the notifications. */
export class BusEventHub implements EventHub {
  readonly #sessions = new Map<string, EventSession>();
  /** Sessions without subscribers, in the order in which the last one left. */
  readonly #deserted = new Map<string, EventSession>();
  readonly #total = { chars: 0 };
  #sweepAboveChars = KEPT_CHARS_MAX;
  readonly #owners: ChannelOwners;
  readonly #openings = new Map<string, Opening>();
  readonly #stops = new Map<string, { userId: string; run: () => void }>();
  readonly #ended = new Map<string, () => void>();
  readonly #instance: string;
  #count = 0;

  constructor(
    readonly bus: Bus,
    readonly clock: Clock,
    readonly ids: Ids,
    readonly instances: Requests | null = null,
  ) {
    this.#instance = ids.uuid().slice(0, 8);
    this.#owners = new ChannelOwners({ bus, clock, instance: this.#instance });
    bus.subscribe(ATTACHED, (sessionId) => this.#openings.get(sessionId)?.settle());
    bus.subscribe(OPENED, (message) => this.#opened(JSON.parse(message) as OpenedMessage));
    bus.subscribe(STOPPED, (message) => {
      const { sessionId, userId } = JSON.parse(message) as SessionMessage;
      const running = this.#stops.get(sessionId);
      if (running?.userId === userId) running.run();
    });
    instances?.serve(MISSED, (question) => JSON.stringify(this.#kept(JSON.parse(question))));
  }

  open({ userId, sessionId: signedInAs }: SignedIn, sessionId = this.ids.uuid()): EventStream {
    const { heard } = this.#await(sessionId);
    this.#owners.opened(sessionId, { userId, sessionId: signedInAs });
    this.bus.publish(OPENED, JSON.stringify({ sessionId, userId, signedInAs } satisfies OpenedMessage));
    return {
      sessionId,
      emit: (definition, params) => this.notify(sessionId, definition, params),
      whenHeard: () => heard,
      onStop: (run) => this.#stops.set(sessionId, { userId, run }),
      end: () => {
        this.#stops.delete(sessionId);
        const forget = this.clock.after(OWNER_KEPT_MS, () => {
          this.#ended.delete(sessionId);
          this.#owners.forget(sessionId);
        });
        this.#ended.set(sessionId, forget);
      },
    };
  }

  openerOf(sessionId: string): SignedIn | null {
    return this.#owners.openerOf(sessionId);
  }

  closeToStrangers(sessionId: string): void {
    this.#owners.close(sessionId);
  }

  push(sessionId: string, json: string, audience: Audience = EVERYONE): void {
    const opening = this.#openings.get(sessionId);
    if (opening && opening.heldChars + json.length <= LOG_CHARS_MAX) {
      opening.held.push({ json, audience });
      opening.heldChars += json.length;
      return;
    }
    opening?.settle();
    this.bus.publish(topicOf(sessionId), `${this.#instance}-${++this.#count}${audience} ${json}`);
  }

  pushAs(userId: string | null, sessionId: string, json: string): void {
    if (!this.#owners.isSure(sessionId)) {
      this.#owners.whenSure(() => this.pushAs(userId, sessionId, json));
      return;
    }
    const owner = this.openerOf(sessionId)?.userId ?? null;
    if (owner === null && userId !== null) this.#owners.claim(sessionId, userId);
    if (owner === null && userId === null) this.push(sessionId, json);
    else if (owner === null || owner === userId) this.push(sessionId, json, `?${userId}`);
    // Claimed by another user: only readers who are this user, or the owner if a stranger pushes, get it.
    else if (!this.#owners.isOpened(sessionId)) this.push(sessionId, json, `!${userId ?? owner}`);
  }

  notify: EventHub["notify"] = (sessionId, { name: method }, params) =>
    this.push(sessionId, JSON.stringify({ jsonrpc: "2.0", method, params }));

  notifyUser: EventHub["notifyUser"] = (userId, sessionId, { name: method }, params) =>
    this.push(sessionId, JSON.stringify({ jsonrpc: "2.0", method, params }), `!${userId}`);

  #await(sessionId: string): Opening {
    const known = this.#openings.get(sessionId);
    if (known) return known;
    const { promise: heard, resolve } = Promise.withResolvers<void>();
    const settle = () => {
      cancel();
      this.#openings.delete(sessionId);
      for (const { json, audience } of opening.held) this.push(sessionId, json, audience);
      resolve();
    };
    const cancel = this.clock.after(SUBSCRIBER_GRACE_MS, settle);
    const opening: Opening = { held: [], heldChars: 0, heard, settle };
    this.#openings.set(sessionId, opening);
    return opening;
  }

  /** A session was opened on any instance; another one may emit on it, such as one that takes over a video job. */
  #opened({ sessionId, userId, signedInAs }: OpenedMessage): void {
    this.#owners.opened(sessionId, { userId, sessionId: signedInAs });
    this.#await(sessionId);
    if (this.#sessions.get(sessionId)?.isHeard) this.bus.publish(ATTACHED, sessionId);
  }

  stop(sessionId: string, userId: string): void {
    this.bus.publish(STOPPED, JSON.stringify({ sessionId, userId } satisfies SessionMessage));
  }

  close(): void {
    this.#owners.end();
    for (const { settle } of [...this.#openings.values()]) settle();
    for (const forget of this.#ended.values()) forget();
    this.#ended.clear();
    for (const [sessionId, session] of [...this.#deserted]) this.#forget(sessionId, session);
  }

  subscribe({ sessionId, userId, lastId = null, subscriber }: SubscribeOptions): EventReader | null {
    if (!this.#owners.mayRead(sessionId, userId)) return null;
    const session = this.#sessions.get(sessionId) ?? this.#attach(sessionId);
    if (session.readers.size >= SUBSCRIBERS_PER_SESSION_MAX) return null;
    const reader = new SessionReader(session, subscriber, userId, {
      // Announced only once the subscription is active, or the first notifications would be lost.
      begun: () => void session.unsubscribe.ready.then(() => this.bus.publish(ATTACHED, sessionId)),
      left: () => this.#detach(sessionId, session),
    });
    session.readers.add(reader);
    session.cancelExpiry?.();
    session.cancelExpiry = null;
    this.#deserted.delete(sessionId);
    if (lastId !== null) void this.#catchUp(sessionId, reader, lastId);
    if (!this.#owners.isSure(sessionId)) this.#checkLater(sessionId, reader);
    return reader;
  }

  /** Delivers nothing until the owner of the session is known. */
  #checkLater(sessionId: string, reader: SessionReader): void {
    reader.isChecked = false;
    this.#owners.whenSure(() => {
      if (!this.#owners.mayRead(sessionId, reader.userId)) return reader.shutOut();
      reader.isChecked = true;
      reader.pump();
    });
  }

  #attach(sessionId: string): EventSession {
    const session = new EventSession(this.#total);
    session.unsubscribe = this.bus.subscribe(topicOf(sessionId), (message) => {
      session.append(eventOf(message, this.clock.now()));
      if (this.#total.chars > this.#sweepAboveChars) this.#sweep();
    });
    this.#sessions.set(sessionId, session);
    return session;
  }

  /** The session stays subscribed for a while after its last subscriber left, in case one reconnects. */
  #detach(sessionId: string, session: EventSession): void {
    if (session.readers.size > 0) return;
    session.cancelExpiry = this.clock.after(KEPT_MS, () => this.#forget(sessionId, session));
    this.#deserted.set(sessionId, session);
    if (this.#deserted.size > DESERTED_SESSIONS_MAX) this.#forgetOldest();
  }

  #forget(sessionId: string, session: EventSession): void {
    session.cancelExpiry?.();
    session.unsubscribe();
    session.dropRead();
    this.#deserted.delete(sessionId);
    this.#sessions.delete(sessionId);
  }

  #forgetOldest(): void {
    const [oldest] = this.#deserted;
    if (oldest) this.#forget(...oldest);
  }

  /** Too much is kept: drops sessions without subscribers first, then notifications that were read. */
  #sweep(): void {
    while (this.#total.chars > KEPT_CHARS_AFTER_SWEEP && this.#deserted.size > 0) this.#forgetOldest();
    for (const session of this.#sessions.values()) {
      if (this.#total.chars <= KEPT_CHARS_AFTER_SWEEP) break;
      session.dropRead();
    }
    // What slow readers still need stays; sweeping again for each event would free nothing.
    this.#sweepAboveChars = Math.max(KEPT_CHARS_MAX, this.#total.chars + KEPT_CHARS_MAX / 4);
  }

  async #catchUp(sessionId: string, reader: SessionReader, lastId: string): Promise<void> {
    const { log, unsubscribe } = reader.session;
    const place = () => {
      reader.next = log.numberAfter(lastId) ?? log.first;
    };
    place();
    if (!this.instances || log.numberAfter(lastId) !== null) return;
    reader.isCatchingUp = true;
    await unsubscribe.ready;
    const question: MissedQuestion = { sessionId, lastId };
    const answers = await this.instances.askAll(MISSED, JSON.stringify(question), CATCH_UP_MS);
    const kept = answers.map((answer) => JSON.parse(answer) as LoggedEvent[]);
    log.prepend(kept.reduce((longest, each) => (each.length > longest.length ? each : longest), []));
    place();
    reader.isCatchingUp = false;
    reader.pump();
  }

  #kept({ sessionId, lastId }: MissedQuestion): LoggedEvent[] {
    const log = this.#sessions.get(sessionId)?.log;
    return log ? log.since(log.numberAfter(lastId) ?? log.first) : [];
  }
}
