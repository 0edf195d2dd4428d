import type { z } from "zod";
import type { SignedIn } from "../kernel/context.ts";
import { type ErrorName, fail, toServiceError } from "../kernel/errors.ts";
import type { NotificationDefinition } from "../kernel/method.ts";

/** Messages between instances, delivered at most once and in order per publisher: in process, over Redis or a supervisor. */
export interface Bus {
  readonly shared: boolean;
  /** False while other instances cannot be reached; caches then expire within about a second. */
  readonly connected: boolean;
  publish(topic: string, message: string): void;
  subscribe(topic: string, receive: Receive): Subscription;
  /** Resolves when this process has handled all messages so far. */
  done(): Promise<unknown>;
  /** Resolves when every current subscription is active on the shared bus. */
  ready(): Promise<void>;
  /** How many instances are subscribed, including this one; 1 while the others cannot be reached. */
  listenerCount(topic: string): Promise<number>;
  /** `forget` must clear caches that depend on messages: some may have been missed. */
  onGap(forget: () => void): void;
  close(): Promise<void>;
}

/** A returned promise resolves when the message has been handled. */
export type Receive = (message: string) => unknown;

export interface Subscription {
  (): void;
  /** Resolves when messages of all instances arrive. */
  ready: Promise<void>;
}

export interface Requests {
  /** Null if nobody answers in time. Requests on one topic arrive in the order in which they were sent. */
  ask(topic: string, question: string, timeoutMs: number): Promise<string | null>;
  /** The answers that come in time from the instances that serve the topic, including this one. */
  askAll(topic: string, question: string, timeoutMs: number): Promise<string[]>;
  /** Resolves when all instances have handled this one's earlier messages, or after this time. */
  allDone(timeoutMs: number): Promise<unknown>;
  serve(topic: string, answer: (question: string) => string | Promise<string>): Subscription;
}

/** The answer of the instance that serves the topic; throws its refusal. Null if none answers in time. */
export async function callInstance(
  requests: Requests | null,
  topic: string,
  question: object,
  timeoutMs: number,
): Promise<{ result?: unknown } | null> {
  const text = await requests?.ask(topic, JSON.stringify(question), timeoutMs);
  if (!text) return null;
  const { refusal, ...answer } = JSON.parse(text) as CallAnswer;
  return refusal ? fail(refusal.kind, refusal.message) : answer;
}

interface CallAnswer {
  result?: unknown;
  refusal?: { kind: ErrorName; message: string };
}

/** Answers `callInstance` with the result of `work`, or the error it throws. */
export const serveCalls = (
  requests: Requests,
  topic: string,
  work: (question: unknown) => unknown,
): Subscription =>
  requests.serve(topic, async (text) => {
    let answer: CallAnswer;
    try {
      answer = { result: await work(JSON.parse(text)) };
    } catch (error) {
      const { kind, message } = toServiceError(error);
      answer = { refusal: { kind, message } };
    }
    return JSON.stringify(answer);
  });

/** Checks the rights behind running work of a key, user or group; for null, of everyone. */
export type Recheck = (id: string | null) => Promise<void>;

export interface Revocations {
  onChange(recheck: Recheck): void;
}

export interface RateLimit {
  key: string;
  max: number;
  windowMs: number;
}

/** A full limit: its index, and the milliseconds until the next hit is allowed. */
export interface Exceeded {
  at: number;
  waitMs: number;
}

/** An amount of money and of tokens, as whole numbers; an unused measure is 0. */
export interface Quantity {
  money: number;
  tokens: number;
}

/** JSON has no `Infinity`. */
export const NO_LIMIT = Number.MAX_VALUE;

/** What has been spent, as last read from the database. Instances read it at different times. */
export interface Spent extends Quantity {
  /** Grows with every change, to find the newer of two. */
  version: number;
}

/** The cost of a grant. Need not be whole numbers; reservations are rounded up. */
export interface Cost {
  fixed: Quantity;
  perUnit: Quantity;
}

export interface Purse {
  name: string;
  limit: Quantity;
  spent: Spent;
  /** Null: the whole grant must fit. Otherwise it may exceed what is left by this many units. */
  unitsBeyond: number | null;
  /** The cost in this purse's currency, if that differs from the grant's: dollars instead of points. */
  cost?: Cost;
}

export interface Asking extends Cost {
  purses: readonly Purse[];
  /** Further names on which the grant is reserved, without a limit of their own. */
  alsoOn: readonly string[];
  unitsMin: number;
  unitsMax: number;
}

/** Floating-point products just above a whole number must not be rounded up. */
export const HAIR = 0.001;

/** The reservation for a grant of this many units, as whole numbers, so that sums stay exact. */
export const grantedAmount = ({ fixed, perUnit }: Cost, units: number): Quantity => ({
  money: Math.ceil(fixed.money + units * perUnit.money - HAIR),
  tokens: Math.ceil(fixed.tokens + units * perUnit.tokens - HAIR),
});

/** A change of the reservation on a name; `spent` is its new database row, if known. */
export interface ReservedChange {
  name: string;
  amount: Quantity;
  spent?: Spent;
}

export const REFUSED = -1;

/** The most units of a grant that fit into every purse, where `leftIn` returns what is left in one; or `REFUSED`. */
export function unitsThatFit(asking: Asking, leftIn: (purse: Purse) => Quantity): number {
  let units = asking.unitsMax;
  for (const purse of asking.purses) {
    const left = leftIn(purse);
    for (const measure of ["money", "tokens"] as const)
      units = Math.min(units, unitsIn(left[measure], measure, purse.cost ?? asking, purse.unitsBeyond));
  }
  return units < asking.unitsMin ? REFUSED : units;
}

/** The same as `units_that_fit` in the script of the Redis counter. */
function unitsIn(
  left: number,
  measure: keyof Quantity,
  { fixed, perUnit }: Cost,
  unitsBeyond: number | null,
): number {
  let room = left;
  if (unitsBeyond !== null) {
    if (left <= 0) return REFUSED;
    room = Math.floor(left + unitsBeyond * perUnit[measure]);
  }
  room += HAIR - fixed[measure];
  if (room < 0) return REFUSED;
  return perUnit[measure] > 0 ? Math.floor(room / perUnit[measure]) : Number.POSITIVE_INFINITY;
}

/** Rate limits and reservations over all instances; while these cannot be reached, of this one alone. */
export interface Counter {
  /** Counts a hit on each limit up to the first full one; those before it stay counted. Null: none is full. */
  hit(limits: readonly RateLimit[]): Promise<Exceeded | null>;
  /** Reserves as many units as fit into every purse, on all names or none; `REFUSED` if fewer than `unitsMin` fit. */
  grant(asking: Asking): Promise<number>;
  /** Reserves more, or releases (a negative amount), without checking limits. */
  change(changes: readonly ReservedChange[]): void;
}

export interface EventStream {
  readonly sessionId: string;
  /** Held until a subscriber connects, at most for a grace period. */
  emit<Definition extends NotificationDefinition>(
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** Resolves when someone has subscribed, or after the grace period. */
  whenHeard(): Promise<void>;
  /** Called when the owner cancels the work behind this stream. */
  onStop(run: () => void): void;
  /** No more notifications will come; subscribers stay until they leave. */
  end(): void;
}

export interface Subscriber {
  /** Takes one JSON text and its id. Returns false to get no more until it calls `resume`. */
  deliver(json: string, id: string): boolean;
  closed(): void;
}

export interface EventReader {
  /** The id of the notification before the next one; null if it is not known. */
  readonly lastId: string | null;
  /** The subscriber is ready. Before the first call nothing is delivered, and it does not count as subscribed. */
  resume(): void;
  /** Delivers everything, even if the subscriber is not ready, and leaves. */
  finish(): void;
  leave(): void;
}

export interface SubscribeOptions {
  sessionId: string;
  userId: string | null;
  /** For reconnecting: the last notification it got. It gets those since, or all that are kept if the id is unknown. */
  lastId?: string | null;
  subscriber: Subscriber;
}

export const SESSION_ID_LENGTH_MAX = 64;

/** Notification channels by session id. Whoever knows an id may subscribe to it. */
export interface EventHub {
  /** Opens a channel that belongs to the opener, with a new id unless one is given. */
  open(opener: SignedIn, sessionId?: string): EventStream;
  /** The owner of the session: who opened it, or pushed into it first; null if there is none. */
  openerOf(sessionId: string): SignedIn | null;
  /** From now on, on all instances, only signed-in users can subscribe to the session. */
  closeToStrangers(sessionId: string): void;
  /** Sends one JSON text to the session's subscribers; a session that was just opened holds it for the grace period. */
  push(sessionId: string, json: string): void;
  /** The same on behalf of a user or a stranger: reaches that user's readers, and claims a session without an owner. */
  pushAs(userId: string | null, sessionId: string, json: string): void;
  notify<Definition extends NotificationDefinition>(
    sessionId: string,
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** The same, only to subscribers who are this user. */
  notifyUser<Definition extends NotificationDefinition>(
    userId: string,
    sessionId: string,
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** Stops the work behind a session of `userId`, on whichever instance it runs. */
  stop(sessionId: string, userId: string): void;
  /** Null if the session belongs to another user, is closed to strangers, or has too many subscribers. */
  subscribe(options: SubscribeOptions): EventReader | null;
}
