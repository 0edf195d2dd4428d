/** How long a client may keep a connection waiting, and how much may wait on one. */

/** How long a client may take for the head of a request, and be silent within its body. */
export const HEAD_MS = 30_000;
export const BODY_SILENCE_MS = 60_000;
/** A body that comes more slowly than this for longer than that would take its time for ever. */
export const BODY_BYTES_PER_SECOND_MIN = 500;
/** How long a connection without a request is kept: longer than the proxies in front of us keep theirs. */
export const IDLE_MS = 120_000;
/** How long a client may take nothing of what is written to it. */
export const UNREAD_MS = 120_000;
/** How long a client has for its end of a connection that we have ended. */
export const LINGER_MS = 2_000;
/** The same for one that is still sending a body, which it may have to do to the end before it reads the answer. */
export const LINGER_SENDING_MS = 10_000;
/** What is read on for the sake of the next request, when nobody wanted the body of this one. */
export const DISCARDED_BYTES_MAX = 256 * 1024;
/** Requests that come while one is being answered wait here, and so does a body that nobody has asked for. */
export const WAITING_BYTES_MAX = 64 * 1024;
/** Requests of one connection that are answered in a row before others have their turn. */
export const STREAK_MAX = 64;
/** How long a connection must have been without a request to be given up for a new one, when there are too many. */
export const SPARE_AFTER_MS = 5_000;
