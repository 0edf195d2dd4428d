import type { Log } from "./log.ts";

/** Every room's public face, by name. A room adds itself here by declaration merging in its index.ts. */
// biome-ignore lint/suspicious/noEmptyInterface: rooms fill it in by declaration merging
export interface Rooms {}

/** A signed-in person; rights come from the account as it is now, never from the token. */
export interface Actor {
  userId: string;
  email: string;
  name: string;
  isAdmin: boolean;
}

/** Who is calling: at most one of `actor` and `adminToken` is set. */
export interface Caller {
  actor: Actor | null;
  adminToken: boolean;
  ip: string;
}

export interface Authenticator {
  /** Turns a bearer value into a caller; anything that does not verify is an anonymous caller. */
  caller(bearer: string | null, ip: string): Caller | Promise<Caller>;
}

export interface CallContext {
  caller: Caller;
  requestId: string;
  log: Log;
  rooms: Rooms;
}
