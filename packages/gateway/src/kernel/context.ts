import type { Log } from "./log.ts";
import type { RequestRecord } from "./request-record.ts";

/** Every room's public face, by name; rooms/index.ts lists them. */
// biome-ignore lint/suspicious/noEmptyInterface: filled in by declaration merging
export interface Rooms {}

/** A signed-in person; rights come from the account as it is now, never from the token. */
export interface Actor extends SignedIn {
  email: string;
  name: string;
  isAdmin: boolean;
}

/** Who an API key stands for. The keys room says what that is, by declaration merging in its index.ts. */
// biome-ignore lint/suspicious/noEmptyInterface: the keys room fills it in by declaration merging
export interface Principal {}

/** Who a handler can count on, by the declared auth. */
export type ActorFor<Auth extends string> = Auth extends "jwt" | "admin" ? Actor : Actor | null;

/** What a bearer stands for: at most one of the two is set. */
export interface Identity {
  actor: Actor | null;
  adminToken: boolean;
  sessionId?: string;
  /** The service never issued this bearer. An expired or signed-out token is not a guess. */
  isGuess?: boolean;
}

/** Someone who was identified; without a session, any session of that account. */
export interface SignedIn {
  userId: string;
  sessionId?: string;
}

export const nameOf = ({ userId, sessionId = "" }: SignedIn): string => `${userId} ${sessionId}`;

export interface CallSource {
  readonly ip: string;
  readonly userAgent: string | null;
  /** From this machine, to a name of this machine, and through no proxy. */
  readonly isLocal: boolean;
}

export interface Caller extends Identity, CallSource {}

/** Looks the address up only when asked: that costs more than a whole call. A class, to allocate no getters. */
class SourcedCaller implements Caller {
  readonly actor: Actor | null;
  readonly adminToken: boolean;
  readonly sessionId?: string;
  readonly #source: CallSource;

  constructor({ actor, adminToken, sessionId }: Identity, source: CallSource) {
    this.actor = actor;
    this.adminToken = adminToken;
    this.sessionId = sessionId;
    this.#source = source;
  }

  get ip(): string {
    return this.#source.ip;
  }
  get userAgent(): string | null {
    return this.#source.userAgent;
  }
  get isLocal(): boolean {
    return this.#source.isLocal;
  }
}

export const callerFrom = (identity: Identity, source: CallSource): Caller =>
  new SourcedCaller(identity, source);

export interface Authenticator {
  /** Turns a bearer value into an identity; a bearer that does not verify is anonymous. */
  identify(bearer: string | null): Identity | Promise<Identity>;
  /** Whether someone who was identified once still is, as the database has it now. Tokens may expire meanwhile. */
  isInForce(signedIn: SignedIn): Promise<boolean>;
  /** The same as it was known a moment ago; true while the database cannot be asked. */
  mayGoOn(signedIn: SignedIn): Promise<boolean>;
}

export interface CallContext {
  caller: Caller;
  requestId: string;
  log: Log;
  rooms: Rooms;
  /** What is noted of a call to a model; null for every other call, and when no records are kept. */
  record: RequestRecord | null;
}
