import type { Log } from "./log.ts";
import type { RequestRecord } from "./request-record.ts";

// biome-ignore lint/suspicious/noEmptyInterface: filled in by declaration merging
export interface Rooms {}

/** A signed-in person. Rights come from the account as it is now, never from the token. */
export interface Actor extends SignedIn {
  email: string;
  name: string;
  isAdmin: boolean;
}

// biome-ignore lint/suspicious/noEmptyInterface: the keys room fills it in by declaration merging, in its index.ts
export interface Principal {}

export type ActorFor<Auth extends string> = Auth extends "jwt" | "admin" ? Actor : Actor | null;

/** What a bearer stands for: a person or the admin token, never both. */
export interface Identity {
  actor: Actor | null;
  adminToken: boolean;
  sessionId?: string;
  /** The service never issued this bearer. An expired or signed-out token is not a guess. */
  isGuess?: boolean;
}

/** Without a session id, any session of that account. */
export interface SignedIn {
  userId: string;
  sessionId?: string;
}

export const nameOf = ({ userId, sessionId = "" }: SignedIn): string => `${userId} ${sessionId}`;

export interface CallSource {
  readonly ip: string;
  readonly userAgent: string | null;
  /** The request comes from this machine, to a name of this machine, through no proxy. */
  readonly isLocal: boolean;
}

export interface Caller extends Identity, CallSource {}

/** Looks the address up only when asked: that costs more than a whole call. A class, to allocate no getters. */
export class SourcedCaller implements Caller {
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

export interface Authenticator {
  /** A bearer that does not verify is anonymous. */
  identify(bearer: string | null): Identity | Promise<Identity>;
  /** Whether the account and the session are still valid, read from the database. The token may have expired. */
  isInForce(signedIn: SignedIn): Promise<boolean>;
  /** The same, possibly from a cache; true while the database is unavailable. */
  mayGoOn(signedIn: SignedIn): Promise<boolean>;
}

export interface CallContext {
  caller: Caller;
  requestId: string;
  log: Log;
  rooms: Rooms;
  /** Null unless the call asks something of a model, and while no records are kept. */
  record: RequestRecord | null;
}
