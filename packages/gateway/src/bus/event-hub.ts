import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Bus, EventHub, EventStream, Subscriber, Subscription } from "./contract.ts";

/** How long the first notification waits for a subscriber that is still on its way. */
const SUBSCRIBER_GRACE_MS = 1_000;
const SUBSCRIBERS_PER_SESSION_MAX = 16;
/** How long a subscriber whose connection broke may take to come back. */
const DESERTED_AFTER_MS = 2_000;
/** How long a session's owner is remembered after its stream ended, for subscribers that come late. */
const OWNER_KEPT_MS = 10 * 60_000;
const OWNERS_MAX = 100_000;

const topicOf = (sessionId: string) => `events:${sessionId}`;
const topicFor = (userId: string, sessionId: string) => `events-for:${userId}:${sessionId}`;
const ATTACHED = "events-attached";
const DETACHED = "events-detached";
const OPENED = "events-opened";

/** What happens when nobody listens to an open stream any more. */
interface Desertion {
  userId: string;
  run: () => void;
  cancel: () => void;
}

interface Session {
  subscribers: Set<Subscriber>;
  unsubscribe: Subscription;
}

/**
 * Notification channels over the bus: the emitter publishes on the session's topic, and whichever instance
 * holds subscribers of that session has subscribed to the topic and delivers.
 */
export class BusEventHub implements EventHub {
  #sessions = new Map<string, Session>();
  #owners = new Map<string, string>();
  /** Sessions that are waiting to be heard. */
  #waiting = new Map<string, () => void>();
  #desertions = new Map<string, Desertion>();
  /** Ended sessions whose owner is still remembered. */
  #ended = new Map<string, () => void>();

  constructor(
    readonly bus: Bus,
    readonly clock: Clock,
    readonly ids: Ids,
  ) {
    bus.subscribe(ATTACHED, (sessionId) => {
      this.#waiting.get(sessionId)?.();
      this.#desertions.get(sessionId)?.cancel();
    });
    bus.subscribe(DETACHED, (sessionId) => this.#left(sessionId));
    bus.subscribe(OPENED, (message) => {
      const { sessionId, userId } = JSON.parse(message) as { sessionId: string; userId: string };
      this.#remember(sessionId, userId);
      if (this.#sessions.has(sessionId)) bus.publish(ATTACHED, sessionId);
    });
  }

  open(userId: string, sessionId = this.ids.uuid()): EventStream {
    let settle: () => void = () => {};
    const heard = new Promise<void>((resolve) => {
      settle = resolve;
    });
    const cancel = this.clock.after(SUBSCRIBER_GRACE_MS, () => attached());
    const attached = () => {
      cancel();
      this.#waiting.delete(sessionId);
      settle();
    };
    this.#waiting.set(sessionId, attached);
    this.bus.publish(OPENED, JSON.stringify({ sessionId, userId }));
    return {
      sessionId,
      emit: (definition, params) => this.notify(sessionId, definition, params),
      whenHeard: () => heard,
      onDeserted: (run) => this.#desertions.set(sessionId, { userId, run, cancel: () => {} }),
      end: () => {
        attached();
        this.#desertions.get(sessionId)?.cancel();
        this.#desertions.delete(sessionId);
        const forget = this.clock.after(OWNER_KEPT_MS, () => {
          this.#ended.delete(sessionId);
          this.#owners.delete(sessionId);
        });
        this.#ended.set(sessionId, forget);
      },
    };
  }

  /** Nothing more is waited for. */
  close(): void {
    for (const attached of this.#waiting.values()) attached();
    for (const { cancel } of this.#desertions.values()) cancel();
    for (const forget of this.#ended.values()) forget();
    this.#ended.clear();
  }

  /** An instance has no subscriber of the session any more; others may have, and say so when asked. */
  #left(sessionId: string): void {
    const desertion = this.#desertions.get(sessionId);
    if (!desertion) return;
    desertion.cancel();
    desertion.cancel = this.clock.after(DESERTED_AFTER_MS, desertion.run);
    this.bus.publish(OPENED, JSON.stringify({ sessionId, userId: desertion.userId }));
  }

  isOpen(sessionId: string): boolean {
    return this.#owners.has(sessionId);
  }

  push(sessionId: string, json: string): void {
    this.bus.publish(topicOf(sessionId), json);
  }

  pushAs(userId: string | null, sessionId: string, json: string): void {
    this.#claim(sessionId, userId);
    if ((this.#owners.get(sessionId) ?? null) === userId) this.push(sessionId, json);
  }

  /** A session that is nobody's becomes the user's, on every instance. */
  #claim(sessionId: string, userId: string | null): void {
    if (userId === null || this.#owners.has(sessionId)) return;
    this.#remember(sessionId, userId);
    this.bus.publish(OPENED, JSON.stringify({ sessionId, userId }));
  }

  notify: EventHub["notify"] = (sessionId, { name: method }, params) =>
    this.push(sessionId, JSON.stringify({ jsonrpc: "2.0", method, params }));

  notifyUser: EventHub["notifyUser"] = (userId, sessionId, { name: method }, params) =>
    this.bus.publish(topicFor(userId, sessionId), JSON.stringify({ jsonrpc: "2.0", method, params }));

  subscribe({
    sessionId,
    userId,
    subscriber,
  }: {
    sessionId: string;
    userId: string | null;
    subscriber: Subscriber;
  }) {
    const owner = this.#owners.get(sessionId);
    if (userId !== null && owner !== undefined && owner !== userId) return null;
    const session = this.#sessions.get(sessionId) ?? this.#attach(sessionId);
    if (session.subscribers.size >= SUBSCRIBERS_PER_SESSION_MAX) return null;
    session.subscribers.add(subscriber);
    this.#claim(sessionId, userId);
    // Announced only once this instance really hears the session, or the first notifications would be lost.
    session.unsubscribe.ready.then(() => this.bus.publish(ATTACHED, sessionId));
    const endOwn = userId === null ? null : this.#listenAs(userId, sessionId, subscriber);
    return () => {
      endOwn?.();
      this.#detach(sessionId, subscriber);
    };
  }

  #listenAs(userId: string, sessionId: string, subscriber: Subscriber): () => void {
    return this.bus.subscribe(topicFor(userId, sessionId), (json) => {
      if (subscriber.deliver(json)) return;
      this.#detach(sessionId, subscriber);
      subscriber.closed();
    });
  }

  #attach(sessionId: string): Session {
    const session: Session = {
      subscribers: new Set(),
      unsubscribe: this.bus.subscribe(topicOf(sessionId), (json) => {
        for (const subscriber of session.subscribers) {
          if (subscriber.deliver(json)) continue;
          this.#detach(sessionId, subscriber);
          subscriber.closed();
        }
      }),
    };
    this.#sessions.set(sessionId, session);
    return session;
  }

  #detach(sessionId: string, subscriber: Subscriber): void {
    const session = this.#sessions.get(sessionId);
    if (!session?.subscribers.delete(subscriber) || session.subscribers.size > 0) return;
    session.unsubscribe();
    this.#sessions.delete(sessionId);
    this.bus.publish(DETACHED, sessionId);
  }

  #remember(sessionId: string, userId: string): void {
    if (this.#owners.size >= OWNERS_MAX) this.#owners.delete(this.#owners.keys().next().value as string);
    this.#owners.set(sessionId, userId);
  }
}
