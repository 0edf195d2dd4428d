import { BackendError, type RealtimeCapability } from "../../backends/contract.ts";
import { callInstance, type EventStream, type Subscription, serveCalls } from "../../bus/contract.ts";
import type { Actor, SignedIn } from "../../kernel/context.ts";
import { type ErrorName, fail, ServiceError, toServiceError } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import { hideSecrets, hideSecretsIn } from "../../kernel/secrets.ts";
import type { Billing } from "../billing/index.ts";
import type { Conversations } from "../conversations/index.ts";
import type { Needs } from "../foundation.ts";
import { modelRefusal, type Principal, payerOf } from "../keys/index.ts";
import type { Admission, AdmitOptions, Metering } from "../metering/index.ts";
import { type Route, type Routing, reportTo } from "../routing/index.ts";
import { EventQueue } from "./event-queue.ts";
import { SessionMeter } from "./metering/meter.ts";
import { realtimeEvent } from "./notifications.ts";
import { type ServerEvent, transcriptIn } from "./server-events.ts";

const SESSIONS_MAX = 2_000;
const SESSIONS_PER_USER_MAX = 250;
/** A session whose client has sent nothing for this long is over: nobody may be paying attention to it. */
const CLIENT_SILENCE_MS = 10 * 60_000;
const SILENCE_CHECK_MS = 30_000;
const STOP_EVENT = "session.stop";
/** The instance that holds a session answers in a millisecond; when none does, there is no such session. */
const ANSWER_WITHIN_MS = 2_000;
const topicOf = (sessionId: string) => `realtime:${sessionId}`;
/** Of what an upstream says when it hangs up. */
const REASON_CHARS_MAX = 500;
/** What an upstream says about the session or a failure, where its key may be repeated; the rest is sound and text. */
const TELLING_TYPE = /error|fail|session|rate_limits|^response\.done$/;

const tellsOfItself = (event: ServerEvent): boolean =>
  TELLING_TYPE.test(String(event.type)) || "error" in event;

const REVOKED = "The account may no longer use the service";
const QUEUE_FULL = "The session's queue is full because the upstream is too slow; send less or wait";
const TOO_MANY_EVENTS = "The upstream sent events faster than they could be admitted; start another session";
const UNPAID: ReadonlySet<ErrorName> = new Set(["payment_required", "quota_exceeded", "unavailable"]);

interface RealtimeOptions extends Needs<"instances" | "events" | "clock" | "ids" | "log" | "revocations"> {
  routing: Pick<Routing, "aliases" | "router" | "plan" | "suspect">;
  metering: Pick<Metering, "payerOf" | "admit" | "record" | "checkRate">;
  billing: Pick<Billing, "pricing">;
  conversations: Pick<Conversations, "access" | "append">;
  isInForce(payer: Pick<Payer, "keyId" | "userId">): Promise<boolean>;
}

/** What another instance asks of the one that holds a session. */
interface RemoteCall {
  userId: string;
  /** Null: the session is to be stopped. */
  event: Record<string, unknown> | null;
}

interface StartOptions {
  model: string;
  config?: Record<string, unknown>;
  conversationId?: string;
  refId?: string;
  record?: RequestRecord | null;
}

/** Whose session it is: who pays, and whether they may still. */
interface Owner {
  userId: string;
  /** Who may follow it, with the sign-in that opened it. */
  opener: SignedIn;
  /** Besides the user, whose rights it depends on. */
  keyId: string | null;
  groupId: string | null;
  payer(model: string): Promise<Payer>;
  isInForce(): Promise<boolean>;
  refusal(model: string): string | null;
  /** Who paid last, whatever they may now. */
  lastPayer?: Payer;
}

interface SessionEnd {
  reason: string;
  code?: string;
}

type Left = SessionEnd & { leftBy: "upstream" | "us" };

interface SessionListener {
  event(session: VoiceSession, event: ServerEvent): void;
  ended(session: VoiceSession, end: SessionEnd): void;
}

export interface SocketSession {
  send(event: Record<string, unknown>): Promise<void>;
  close(): void;
}

export interface SocketListener {
  event(event: Record<string, unknown>): void;
  ended(end: SessionEnd): void;
}

interface VoiceSession {
  id: string;
  owner: Owner;
  listener: SessionListener;
  meter: SessionMeter;
  /** Client events to the upstream, and upstream events to the client; each may have to wait for a hold. */
  up: EventQueue;
  down: EventQueue;
  conversationId: string | null;
  /** Opened once the upstream is connected: from then on the first events wait briefly for the subscriber. */
  stream: EventStream | null;
  link: { send(event: Record<string, unknown>): boolean; close(): void } | null;
  lastClientEventMs: number;
  /** Ends the answering of other instances about it. */
  served: Subscription | null;
  record: RequestRecord | null;
}

/** The open voice sessions of this process: one forwarder each, from the upstream to the owner's channel. */
export class Realtime {
  readonly #sessions = new Map<string, VoiceSession>();
  readonly #endWatch: () => void;

  constructor(readonly options: RealtimeOptions) {
    options.revocations.onChange((id) => this.#recheck(id));
    this.#endWatch = options.clock.every(SILENCE_CHECK_MS, () => this.#closeSilent());
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  /** `realtime.start`: the events go to the owner's channel. */
  async start(actor: Actor, options: StartOptions): Promise<{ session_id: string; stream_session: string }> {
    const { conversations, metering, isInForce } = this.options;
    const { userId } = actor;
    const { record, refId, conversationId } = options;
    if (record) {
      record.modelAsked = options.model;
      if (refId !== undefined) record.addDetails({ refId });
    }
    if (conversationId) await conversations.access(userId, conversationId);
    const owner: Owner = {
      userId,
      opener: actor,
      keyId: null,
      groupId: null,
      payer: () => metering.payerOf(actor),
      isInForce: () => isInForce({ userId, keyId: null }),
      refusal: () => null,
    };
    const session = await this.#open(owner, options, this.#channel);
    // The client's first event may arrive at another instance and must reach this one.
    await session.served?.ready;
    return { session_id: session.id, stream_session: this.#streamOf(session).sessionId };
  }

  /** `GET /v1/realtime`: a session of an API key, on a WebSocket of its own. */
  async openSocket(
    holder: () => Promise<Principal>,
    asked: { model: string; record: RequestRecord | null; listener: SocketListener },
  ): Promise<SocketSession> {
    const { model, record, listener: socket } = asked;
    const { isInForce } = this.options;
    if (record) record.modelAsked = model;
    // Asked for each response: the key may have expired since, or its owner may have limited it.
    const payerNow = (principal: Principal, used: string): Payer => {
      const refusal = modelRefusal(principal, used);
      if (refusal !== null) fail("model_not_allowed", refusal);
      return payerOf(principal);
    };
    const principal = await holder();
    const { userId, keyId, groupId } = payerOf(principal);
    const owner: Owner = {
      userId,
      opener: { userId },
      keyId,
      groupId,
      payer: async (used) => payerNow(await holder(), used),
      isInForce: () => isInForce({ userId, keyId }),
      refusal: (name) => modelRefusal(principal, name),
    };
    const listener: SessionListener = {
      event: (_, event) => socket.event(event),
      ended: (_, end) => socket.ended(end),
    };
    const { id } = await this.#open(owner, { model, record }, listener);
    return {
      send: (event) => this.#sendHere(userId, id, event),
      close: () => void this.#stopHere(userId, id),
    };
  }

  /** On the model's backend, or on the first target of a model route that opens a session. */
  async #open(owner: Owner, options: StartOptions, listener: SessionListener): Promise<VoiceSession> {
    const { routing } = this.options;
    const model = routing.aliases.resolve(options.model);
    const request = { capability: "realtime" as const, payer: owner };
    const plan = routing.plan(model, request, owner.refusal);
    let route = await (plan ? plan.first() : routing.router.acquire({ ...request, model }));
    for (;;) {
      const openWithinMs = plan?.hasNext ? plan.beginWithinMs : null;
      try {
        return await this.#openOn({ route, openWithinMs }, owner, options, listener);
      } catch (error) {
        const next = error instanceof ServiceError && error.kind === "bad_gateway" ? plan?.next() : null;
        if (!next) throw error;
        route = next;
      }
    }
  }

  async #openOn(
    { route, openWithinMs }: { route: Route; openWithinMs: number | null },
    owner: Owner,
    { config = {}, conversationId, refId, record = null }: StartOptions,
    listener: SessionListener,
  ): Promise<VoiceSession> {
    const { ids, clock } = this.options;
    // The router only picks backends with the capability.
    const realtime = route.backend.realtime!;
    const sessionId = ids.uuid();
    let meter: SessionMeter;
    try {
      meter = this.#meter(owner, { route, realtime, refId: refId ?? null, record });
      meter.configure(config);
      const first = { requestId: sessionId, model: route.model, bound: meter.firstBound, refId: null };
      // Each response is admitted separately; the session itself is free.
      (await this.#admit(owner, first)).release();
      // Last, so that no other session starts between the count and taking the slot.
      this.#checkRoom(owner);
    } catch (error) {
      route.abandoned();
      throw error;
    }
    const session: VoiceSession = {
      id: sessionId,
      owner,
      listener,
      meter,
      up: new EventQueue(),
      down: new EventQueue(),
      conversationId: conversationId ?? null,
      stream: null,
      link: null,
      lastClientEventMs: clock.now(),
      served: this.#serve(sessionId),
      record,
    };
    record?.sent(route);
    this.#sessions.set(sessionId, session);
    const giveUp = new AbortController();
    const inTime =
      openWithinMs === null
        ? null
        : clock.after(openWithinMs, () => giveUp.abort(new Error(`it took longer than ${openWithinMs} ms`)));
    try {
      session.link = await realtime.open(
        {
          sessionId,
          model: route.model,
          config,
          onEvent: (event) => this.#forward(session, tellsOfItself(event) ? hideSecretsIn(event) : event),
          onClose: (reason) => this.#hungUp(session, reason),
        },
        giveUp.signal,
      );
      if (!this.#sessions.has(sessionId)) {
        session.link.close();
        throw new Error("the connection was closed while it was being opened");
      }
      route.succeeded();
    } catch (error) {
      const { message } = error as Error;
      reportTo(route, error instanceof BackendError ? error : new BackendError("transport", message));
      record?.broke(error);
      this.#sessions.delete(sessionId);
      meter.close("upstream");
      session.served?.();
      session.stream?.end();
      fail("bad_gateway", `The realtime session could not be opened: ${message}`, { cause: error });
    } finally {
      inTime?.();
    }
    if (record) record.detached = true;
    // Rights that were taken away before the session was listed are checked here.
    if (!(await owner.isInForce())) {
      if (record) record.detached = false;
      this.#close(session);
      fail("auth_required", REVOKED);
    }
    return session;
  }

  #meter(
    owner: Owner,
    terms: { route: Route; realtime: RealtimeCapability; refId: string | null; record: RequestRecord | null },
  ): SessionMeter {
    const { route, realtime, refId, record } = terms;
    const { rates, known } = realtime;
    const { ids, clock, routing, billing, metering } = this.options;
    const { model } = route;
    return new SessionMeter({
      model,
      refId,
      rates,
      known,
      ids,
      clock,
      limits: billing.pricing.limitsOf(model),
      admit: (requestId, bound) => this.#admit(owner, { requestId, model, isOwn: route.isOwn, bound, refId }),
      owe: (requestId, usage) =>
        metering.record(
          { requestId, model, isOwn: route.isOwn, refId, payer: owner.lastPayer! },
          { backend: "realtime", ...usage },
        ),
      pace: async () => metering.checkRate(await owner.payer(model)),
      suspect: (problem, requestId) => routing.suspect(route, problem, requestId),
      settled: ({ estimated, ...tokens }, costNanoUsd) =>
        record?.used({ ...tokens, isEstimated: estimated }, costNanoUsd),
    });
  }

  async #admit(owner: Owner, response: Omit<AdmitOptions, "payer">): Promise<Admission> {
    const payer = await owner.payer(response.model);
    owner.lastPayer = payer;
    return this.options.metering.admit({ ...response, payer });
  }

  #checkRoom({ userId }: Owner): void {
    if (this.#sessions.size >= SESSIONS_MAX)
      fail("app_error", "This server has reached its limit of realtime sessions; try again later");
    let own = 0;
    for (const { owner } of this.#sessions.values()) if (owner.userId === userId) own++;
    if (own >= SESSIONS_PER_USER_MAX)
      fail("app_error", `You have ${own} open realtime sessions; stop some with realtime.stop`);
  }

  /** Sends one client event to the upstream, on the instance that holds the session; never waits for its answer. */
  async send({ userId }: Actor, sessionId: string, event: Record<string, unknown>): Promise<void> {
    if (this.#sessions.has(sessionId)) return this.#sendHere(userId, sessionId, event);
    if (!(await this.#elsewhere(sessionId, { userId, event }))) notFound();
  }

  #elsewhere(sessionId: string, call: RemoteCall) {
    return callInstance(this.options.instances, topicOf(sessionId), call, ANSWER_WITHIN_MS);
  }

  #serve(sessionId: string): Subscription | null {
    const { instances } = this.options;
    const answer = (call: unknown) => {
      const { userId, event } = call as RemoteCall;
      return event ? this.#sendHere(userId, sessionId, event) : this.#stopHere(userId, sessionId);
    };
    return instances && serveCalls(instances, topicOf(sessionId), answer);
  }

  async #sendHere(userId: string, sessionId: string, event: Record<string, unknown>): Promise<void> {
    const session = this.#sessions.get(sessionId);
    if (session?.owner.userId !== userId) notFound();
    session.lastClientEventMs = this.options.clock.now();
    if (event.type === STOP_EVENT) {
      this.#close(session);
      return;
    }
    session.meter.check(event);
    const send = (sent: Record<string, unknown>) => session.link?.send(sent) ?? false;
    const pass = async () => (await session.meter.client(event, send)) || fail("app_error", QUEUE_FULL);
    try {
      if (!(await session.up.push(event, pass))) fail("app_error", QUEUE_FULL);
    } catch (error) {
      if (UNPAID.has(toServiceError(error).kind)) this.#failed(session, error);
      throw error;
    }
  }

  /** False when there is no such session of the caller's. */
  async stop({ userId }: Actor, sessionId: string): Promise<boolean> {
    if (this.#sessions.has(sessionId)) return this.#stopHere(userId, sessionId);
    return (await this.#elsewhere(sessionId, { userId, event: null }))?.result === true;
  }

  #stopHere(userId: string, sessionId: string): boolean {
    const session = this.#sessions.get(sessionId);
    if (session?.owner.userId !== userId) return false;
    this.#close(session);
    return true;
  }

  async close(): Promise<void> {
    this.#endWatch();
    await Promise.all([...this.#sessions.values()].map((session) => this.#close(session)));
  }

  #close(session: VoiceSession, end: SessionEnd = { reason: "stopped" }): Promise<void> | undefined {
    const settled = this.#remove(session, { ...end, leftBy: "us" });
    session.link?.close();
    return settled;
  }

  /** Ends a session that cannot be paid, or cannot go on for another reason. */
  #failed(session: VoiceSession, error: unknown): void {
    if (!this.#sessions.has(session.id)) return;
    const { kind, message } = toServiceError(error);
    if (session.meter.isAnswering || UNPAID.has(kind)) session.link?.send({ type: "response.cancel" });
    this.#close(session, { reason: message, code: kind });
  }

  /** Events that arrived before the upstream hung up are delivered first. */
  #hungUp(session: VoiceSession, told: string): void {
    const reason = hideSecrets(told).slice(0, REASON_CHARS_MAX);
    // Not waited for: it settles when this one has left the queue.
    const remove = async () => void this.#remove(session, { reason, leftBy: "upstream" });
    session.down.push({}, remove).then((isTaken) => isTaken || remove());
  }

  /** Ends the sessions of this user, key or group, or of anyone, who may no longer use the service. */
  async #recheck(id: string | null): Promise<void> {
    const answers = new Map<string, boolean>();
    for (const session of [...this.#sessions.values()]) {
      const { userId, keyId, groupId, isInForce } = session.owner;
      if (id !== null && ![userId, keyId, groupId].includes(id)) continue;
      const who = keyId ?? userId;
      const mayGoOn = answers.get(who) ?? (await isInForce());
      answers.set(who, mayGoOn);
      if (!mayGoOn) this.#failed(session, new ServiceError("auth_required", REVOKED));
    }
  }

  #closeSilent(): void {
    const limitMs = this.options.clock.now() - CLIENT_SILENCE_MS;
    for (const session of [...this.#sessions.values()])
      if (session.lastClientEventMs < limitMs) this.#close(session);
  }

  #remove(session: VoiceSession, { leftBy, ...end }: Left): Promise<void> | undefined {
    if (!this.#sessions.delete(session.id)) return undefined;
    session.up.end();
    session.served?.();
    // What the upstream has told by now is settled as it was told.
    const settle = async () => {
      session.meter.close(leftBy);
      noteEnd(session, { ...end, leftBy });
    };
    const settled = session.down.push({}, settle).then((isTaken) => (isTaken ? undefined : settle()));
    this.options.log.debug("realtime session ended", { session_id: session.id, reason: end.reason });
    session.listener.ended(session, end);
    return settled;
  }

  #forward(session: VoiceSession, event: ServerEvent): void {
    if (!this.#sessions.has(session.id)) return;
    session.down
      .push(event, () => this.#letThrough(session, event))
      .then((isTaken) => {
        if (!isTaken) fail("app_error", TOO_MANY_EVENTS);
      })
      .catch((error) => this.#failed(session, error));
  }

  async #letThrough(session: VoiceSession, event: ServerEvent): Promise<void> {
    if (!(await session.meter.server(event)) || !this.#sessions.has(session.id)) return;
    this.#keepTranscript(session, event);
    session.listener.event(session, event);
  }

  #streamOf(session: VoiceSession): EventStream {
    session.stream ??= this.options.events.open(session.owner.opener);
    return session.stream;
  }

  readonly #channel: SessionListener = {
    event: (session, event) => {
      this.#streamOf(session).emit(realtimeEvent, { session_id: session.id, event });
    },
    ended: (session, { reason, code }) => {
      this.#channel.event(session, { type: "session.closed", reason, ...(code && { code }) });
      session.stream?.end();
    },
  };

  #keepTranscript({ id, conversationId }: VoiceSession, event: ServerEvent): void {
    const content = transcriptIn(event);
    if (content === null || conversationId === null) return;
    this.options.conversations
      .append(conversationId, [{ role: "assistant", content }])
      .catch((error) => this.options.log.error("storing a transcript failed", { session_id: id, error }));
  }
}

function notFound(): never {
  fail("not_found", "Realtime session not found; realtime.start opens one");
}

/** A session that was opened has been answered, unless something other than its owner ended it. */
function noteEnd({ record }: VoiceSession, { reason, code, leftBy }: Left): void {
  if (!record?.detached) return;
  if (code) record.refused(new ServiceError(code as ErrorName, reason));
  else if (leftBy === "upstream")
    record.refused(new ServiceError("bad_gateway", `the upstream closed the session: ${reason}`));
  else record.end(200);
}
