/** How long the server waits for a client, and how much may be buffered for one connection. */

/** Time for the head of a request, and the longest pause within its body. */
export const HEAD_MS = 30_000;
export const BODY_SILENCE_MS = 60_000;
/** A body must arrive at this rate on average, or a slow client could hold its connection forever. */
export const BODY_BYTES_PER_SECOND_MIN = 500;
/** How long an idle connection is kept: longer than proxies in front of us keep theirs. */
export const IDLE_MS = 120_000;
/**
 * The same while the server stops: a client that was not told that its connection closes may send its next request at
 * the same moment, which would be lost. That request's answer tells it.
 */
export const IDLE_RETIRING_MS = 500;
/** How long a client may read nothing of its reply. */
export const UNREAD_MS = 120_000;
/** How long a client has to close its half after we closed ours. */
export const LINGER_MS = 2_000;
/** The same for a client that is still sending a body: it may read the reply only after that. */
export const LINGER_SENDING_MS = 10_000;
/** How much of an unwanted body is read and discarded to keep the connection for the next request. */
export const DISCARDED_BYTES_MAX = 256 * 1024;
/** Buffered bytes of pipelined requests, or of a body that the handler has not asked for. */
export const WAITING_BYTES_MAX = 64 * 1024;
/** Pipelined requests answered in a row before other connections get their turn. */
export const STREAK_MAX = 64;
/** At the connection limit, idle connections are closed to admit new ones after this long. */
export const IDLE_AFTER_MS = 5_000;
