import type { Backend } from "../../backends/contract.ts";
import type { EventHub, EventStream, Requests, Subscription } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { StoredMessage } from "../conversations/index.ts";
import { RemoteSessions } from "./remote.ts";
import { readServerEvent, type ServerEvent } from "./server-events.ts";

const SESSIONS_MAX = 2_000;
const SESSIONS_PER_USER_MAX = 250;
/** Upstream events that wait for the subscriber at the start; later ones are delivered at once. */
const OPENING_EVENTS_MAX = 256;
/** A session whose client has sent nothing for this long is over: nobody may be paying attention to it. */
const CLIENT_SILENCE_MS = 10 * 60_000;
const SILENCE_CHECK_MS = 30_000;
export const STOP_EVENT = "session.stop";

export interface RealtimeOptions {
  /** Null: this process is alone. */
  requests: Requests | null;
  events: EventHub;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** A backend that serves the model, with the id that it knows it by; throws when there is none. */
  route(model: string): RealtimeRoute;
  /** Throws when the user's quota is exhausted. */
  checkQuota(actor: Actor, model: string, requestId: string): Promise<void>;
  /** Writes one usage row. */
  record(usage: RealtimeUsage): void | Promise<void>;
  conversations: {
    access(userId: string, id: string): Promise<unknown>;
    append(id: string, messages: readonly StoredMessage[]): Promise<void>;
  };
}

/** A chosen backend; how the opening went is reported, so that it counts for its circuit. */
export interface RealtimeRoute {
  backend: Backend;
  model: string;
  succeeded(): void;
  failed(cause: string): void;
  abandoned(): void;
}

export interface RealtimeUsage {
  requestId: string;
  actor: Actor;
  model: string;
  promptTokens: number;
  completionTokens: number;
  refId: string | null;
}

export interface StartOptions {
  model: string;
  config?: Record<string, unknown>;
  conversationId?: string;
  refId?: string;
}

interface Session {
  id: string;
  actor: Actor;
  model: string;
  refId: string | null;
  conversationId: string | null;
  stream: EventStream;
  /** Null once the subscriber is there: events then go straight through. */
  opening: ServerEvent[] | null;
  link: { send(event: Record<string, unknown>): boolean; close(): void } | null;
  lastClientEventMs: number;
  /** Ends the answering of other instances about it. */
  served: Subscription | null;
}

/** The open voice sessions of this process: one forwarder each, from the upstream to the owner's channel. */
export class Realtime {
  readonly #sessions = new Map<string, Session>();
  readonly #remote: RemoteSessions;

  constructor(readonly options: RealtimeOptions) {
    this.#remote = new RemoteSessions({
      requests: options.requests,
      send: (userId, sessionId, event) => this.#sendHere(userId, sessionId, event),
      stop: (userId, sessionId) => this.#stopHere(userId, sessionId),
    });
    options.clock.every(SILENCE_CHECK_MS, () => this.#closeSilent());
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  async start(
    actor: Actor,
    { model, config = {}, conversationId, refId }: StartOptions,
  ): Promise<{ session_id: string; stream_session: string }> {
    const { ids, events, clock, route, checkQuota, conversations } = this.options;
    if (conversationId) await conversations.access(actor.userId, conversationId);
    const routed = route(model);
    if (!routed.backend.realtime) {
      routed.abandoned();
      fail(
        "app_error",
        `Model ${model} does not support realtime sessions; choose one with the realtime capability`,
      );
    }
    const sessionId = ids.uuid();
    try {
      await checkQuota(actor, routed.model, sessionId);
      // Last, so that between the counting and the place that is taken nobody else comes in.
      this.#checkRoom(actor);
    } catch (error) {
      routed.abandoned();
      throw error;
    }
    const session: Session = {
      id: sessionId,
      actor,
      model: routed.model,
      refId: refId ?? null,
      conversationId: conversationId ?? null,
      stream: events.open(actor.userId),
      opening: [],
      link: null,
      lastClientEventMs: clock.now(),
      served: this.#remote.serve(sessionId),
    };
    this.#sessions.set(sessionId, session);
    try {
      session.link = await routed.backend.realtime.open(
        {
          sessionId,
          model: routed.model,
          config,
          onEvent: (event) => this.#forward(session, event),
          onClose: (reason) => this.#remove(session, reason),
        },
        new AbortController().signal,
      );
      if (!this.#sessions.has(sessionId)) {
        session.link.close();
        throw new Error("it was closed while it opened");
      }
      routed.succeeded();
    } catch (error) {
      routed.failed((error as Error).message);
      this.#sessions.delete(sessionId);
      session.served?.();
      session.stream.end();
      fail("bad_gateway", `The realtime session could not be opened: ${(error as Error).message}`, {
        cause: error,
      });
    }
    // The client's first event may come in elsewhere, and is to be heard here.
    await session.served?.ready;
    session.stream.whenHeard().then(() => this.#release(session));
    return { session_id: sessionId, stream_session: session.stream.sessionId };
  }

  #checkRoom(actor: Actor): void {
    if (this.#sessions.size >= SESSIONS_MAX)
      fail("app_error", "This server has no room for another realtime session; try again later");
    let own = 0;
    for (const { actor: owner } of this.#sessions.values()) if (owner.userId === actor.userId) own++;
    if (own >= SESSIONS_PER_USER_MAX)
      fail("app_error", `You have ${own} open realtime sessions; stop some with realtime.stop`);
  }

  /** Queues one client event for the upstream, on the instance that holds the session; never waits for it. */
  send(actor: Actor, sessionId: string, event: Record<string, unknown>): void | Promise<void> {
    if (!this.#sessions.has(sessionId) && this.#remote.possible)
      return this.#remote.send(actor.userId, sessionId, event);
    this.#sendHere(actor.userId, sessionId, event);
  }

  #sendHere(userId: string, sessionId: string, event: Record<string, unknown>): void {
    const session = this.#sessions.get(sessionId);
    if (session?.actor.userId !== userId)
      fail("not_found", "Realtime session not found; realtime.start opens one");
    session.lastClientEventMs = this.options.clock.now();
    if (event.type === STOP_EVENT) {
      this.#close(session);
      return;
    }
    if (!session.link?.send(event)) {
      fail("app_error", "The session's queue is full: the upstream does not keep up; send less or wait");
    }
  }

  /** False when there is no such session of the caller's. */
  stop(actor: Actor, sessionId: string): boolean | Promise<boolean> {
    if (!this.#sessions.has(sessionId) && this.#remote.possible)
      return this.#remote.stop(actor.userId, sessionId);
    return this.#stopHere(actor.userId, sessionId);
  }

  #stopHere(userId: string, sessionId: string): boolean {
    const session = this.#sessions.get(sessionId);
    if (session?.actor.userId !== userId) return false;
    this.#close(session);
    return true;
  }

  closeAll(): void {
    for (const session of [...this.#sessions.values()]) this.#close(session);
  }

  #close(session: Session): void {
    this.#remove(session, "stopped");
    session.link?.close();
  }

  #closeSilent(): void {
    const limitMs = this.options.clock.now() - CLIENT_SILENCE_MS;
    for (const session of [...this.#sessions.values()])
      if (session.lastClientEventMs < limitMs) this.#close(session);
  }

  #remove(session: Session, reason: string): void {
    if (!this.#sessions.delete(session.id)) return;
    session.served?.();
    this.options.log.debug("realtime session ended", { session_id: session.id, reason });
    const end = () => {
      this.#release(session);
      this.#emit(session, { type: "session.closed", reason });
      session.stream.end();
    };
    // An upstream that hangs up at once has said why; who opened the session is still about to listen.
    if (session.opening === null) end();
    else void session.stream.whenHeard().then(end);
  }

  #forward(session: Session, event: ServerEvent): void {
    if (!this.#sessions.has(session.id)) return;
    this.#note(session, event);
    if (session.opening === null) this.#emit(session, event);
    else if (session.opening.length < OPENING_EVENTS_MAX) session.opening.push(event);
  }

  /** The subscriber is there, or its time is up: what waited goes out, and from now on nothing waits. */
  #release(session: Session): void {
    const waiting = session.opening ?? [];
    session.opening = null;
    for (const event of waiting) this.#emit(session, event);
  }

  #emit(session: Session, event: ServerEvent): void {
    session.stream.emit({ method: "realtime.event", params: { session_id: session.id, event } });
  }

  /** Usage and transcripts on their way past. */
  #note(session: Session, event: ServerEvent): void {
    const { actor, model, refId, conversationId } = session;
    const reading = readServerEvent(event);
    if (
      reading?.kind === "usage" &&
      (reading.promptTokens + reading.completionTokens > 0 || refId !== null)
    ) {
      const { promptTokens, completionTokens } = reading;
      const row = { requestId: this.options.ids.uuid(), actor, model, promptTokens, completionTokens, refId };
      Promise.resolve(this.options.record(row)).catch((error) =>
        this.options.log.error("usage of a realtime response could not be recorded", { usage: row, error }),
      );
    }
    if (reading?.kind === "transcript" && conversationId !== null) {
      this.options.conversations
        .append(conversationId, [{ role: "assistant", content: reading.text }])
        .catch((error) =>
          this.options.log.error("a transcript could not be stored", { session_id: session.id, error }),
        );
    }
  }
}
