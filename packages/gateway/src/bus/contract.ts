import type { z } from "zod";
import type { SignedIn } from "../kernel/context.ts";
import { type ErrorName, fail, toServiceError } from "../kernel/errors.ts";
import type { NotificationDefinition } from "../kernel/method.ts";

/** What instances tell each other: in process, over Redis, or over the supervisor's socket. At most once, in order per publisher. */
export interface Bus {
  /** Whether other instances may be there at all. */
  readonly shared: boolean;
  /** False while messages from other instances do not arrive; caches then expire within about a second. */
  readonly connected: boolean;
  publish(topic: string, message: string): void;
  subscribe(topic: string, receive: Receive): Subscription;
  /** Resolves when this process has done what it was told so far. */
  done(): Promise<unknown>;
  /** Resolves when every current subscription is active on the shared bus. */
  ready(): Promise<void>;
  /** How many instances are subscribed, this one included; 1 while the others cannot be reached. */
  listenerCount(topic: string): Promise<number>;
  /** Messages may have been missed: caches that depend on them must be cleared. */
  onGap(forget: () => void): void;
  close(): Promise<void>;
}

/** What it returns resolves when the process knows what it was told. */
export type Receive = (message: string) => unknown;

export interface Subscription {
  (): void;
  /** Resolves when messages of every instance arrive. */
  ready: Promise<void>;
}

export interface Requests {
  /** Null when nobody answered in time. Requests on one topic arrive in the order in which they were sent. */
  ask(topic: string, question: string, timeoutMs: number): Promise<string | null>;
  /** The answers of every instance that serves the topic, this one included, as far as they come in time. */
  askAll(topic: string, question: string, timeoutMs: number): Promise<string[]>;
  /** Resolves when every instance has done what this one has told it before, or after this time. */
  allDone(timeoutMs: number): Promise<unknown>;
  serve(topic: string, answer: (question: string) => string | Promise<string>): Subscription;
}

/** What the instance that serves the topic answers, or the refusal it threw; null when none answers in time. */
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

/** Answers such calls with what `work` returns, or refuses as it does. */
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

/** Checks what goes on for a key, user or group again; for null, everything. */
export type Recheck = (id: string | null) => Promise<void>;

/** Tells when rights may have been taken away, so that what goes on because of them can end. */
export interface Revocations {
  onChange(recheck: Recheck): void;
}

/** At most `max` hits within any `windowMs`. */
export interface RateLimit {
  key: string;
  max: number;
  windowMs: number;
}

/** A limit that had no room: which of those asked for, and the milliseconds after which the next hit may be. */
export interface Exceeded {
  at: number;
  waitMs: number;
}

/** An amount of money and of tokens, in whole numbers; an unused measure is 0. */
export interface Quantity {
  money: number;
  tokens: number;
}

/** Not `Infinity`, which JSON does not have. */
export const NO_LIMIT = Number.MAX_VALUE;

/** What has been spent, as last read from the database. Instances learn of it at different times. */
export interface Spent extends Quantity {
  /** Grows with every change, so that of two the newer one is known. */
  version: number;
}

/** What a grant takes: `fixed`, and `perUnit` for each unit. Need not be whole numbers; what is reserved is rounded up. */
export interface Cost {
  fixed: Quantity;
  perUnit: Quantity;
}

export interface Purse {
  name: string;
  /** `NO_LIMIT` where there is none. */
  limit: Quantity;
  spent: Spent;
  /** Null: the whole grant must fit. Otherwise it may exceed what is left by this many units. */
  unitsBeyond: number | null;
  /** What the grant takes from this purse, where that is counted otherwise: dollars beside points. */
  cost?: Cost;
}

export interface Asking extends Cost {
  purses: readonly Purse[];
  /** Further names on which the grant is reserved, without a limit of their own. */
  alsoOn: readonly string[];
  unitsMin: number;
  unitsMax: number;
}

/** Floating-point products can land just above the intended whole number; that must not round up. */
export const HAIR = 0.001;

/** What is reserved for a grant of this many units: whole numbers, so that sums stay exact. */
export const grantedAmount = ({ fixed, perUnit }: Cost, units: number): Quantity => ({
  money: Math.ceil(fixed.money + units * perUnit.money - HAIR),
  tokens: Math.ceil(fixed.tokens + units * perUnit.tokens - HAIR),
});

/** One change of what is reserved on a name, and what its database row has become, where that is known. */
export interface ReservedChange {
  name: string;
  amount: Quantity;
  spent?: Spent;
}

/** What `grant` returns when nothing was reserved. */
export const REFUSED = -1;

/** As many units of a grant as fit every purse, of which `leftIn` says what is left; or `REFUSED`. */
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

/** Rate limits and reservations over all instances. One turn's asks are decided together; unreachable: decides alone. */
export interface Counter {
  /** Counts one hit on each limit up to the first that is full; those before it stay counted. Null: all had room. */
  hit(limits: readonly RateLimit[]): Promise<Exceeded | null>;
  /** Reserves as many units as fit every purse, on all names or none; `REFUSED` when fewer than `unitsMin`. */
  grant(asking: Asking): Promise<number>;
  /** Reserves more, or releases (a negative amount), without checking limits. */
  change(changes: readonly ReservedChange[]): void;
}

/** One session's channel, as the code that emits on it sees it. */
export interface EventStream {
  readonly sessionId: string;
  /** Held until a subscriber connects, at most for the grace period. */
  emit<Definition extends NotificationDefinition>(
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** Resolves when someone listens, or after that grace period. */
  whenHeard(): Promise<void>;
  /** Called when the owner cancels the work behind this stream. */
  onStop(run: () => void): void;
  /** No more notifications will come; subscribers stay until they leave. */
  end(): void;
}

export interface Subscriber {
  /** Receives one complete JSON text and its id. Returning false means: no more until it calls `resume`. */
  deliver(json: string, id: string): boolean;
  /** It fell too far behind and is cut off. */
  closed(): void;
}

export interface EventReader {
  /** The id of what came just before; null when that is not known. */
  readonly lastId: string | null;
  /** The subscriber can take notifications. Nothing is delivered, and nobody counts as listening, before the first call. */
  resume(): void;
  /** Delivers what is there, whether the subscriber can take it or not, and leaves. */
  finish(): void;
  leave(): void;
}

export interface SubscribeOptions {
  sessionId: string;
  userId: string | null;
  /** The last notification it has had, if it comes back: it gets what was kept since, or everything if that is unknown. */
  lastId?: string | null;
  subscriber: Subscriber;
}

export const SESSION_ID_LENGTH_MAX = 64;

/** Notification channels by session id. Ids are capabilities: knowing one is the right to listen to it. */
export interface EventHub {
  /** Opens a channel that belongs to the opener; its id is made here unless the caller has one. */
  open(opener: SignedIn, sessionId?: string): EventStream;
  /** Whose session it is, with the sign-in that opened it, or by pushing into it first; null when it is nobody's. */
  openerOf(sessionId: string): SignedIn | null;
  /** From now on, on every instance, the session can be subscribed to only by someone who is signed in. */
  closeToStrangers(sessionId: string): void;
  /** Sends one JSON text to the session's subscribers; a session just opened holds it for the grace period. */
  push(sessionId: string, json: string): void;
  /** The same on behalf of a user, or of nobody: reaches that user's readers, and an unclaimed session becomes the user's. */
  pushAs(userId: string | null, sessionId: string, json: string): void;
  notify<Definition extends NotificationDefinition>(
    sessionId: string,
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** The same, only for those who have subscribed as this user. */
  notifyUser<Definition extends NotificationDefinition>(
    userId: string,
    sessionId: string,
    definition: Definition,
    params: z.input<Definition["params"]>,
  ): void;
  /** Asks what `userId` opened the session for to stop, whichever instance runs it. Nothing happens to one that is over. */
  stop(sessionId: string, userId: string): void;
  /** Null when the session belongs to someone other than `userId`, is closed to strangers, or has too many subscribers. */
  subscribe(options: SubscribeOptions): EventReader | null;
}
