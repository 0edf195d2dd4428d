/**
 * What handlers answer with. A web `Response` works too (see web-reply.ts); these are for replies that are sent often
 * or produced bit by bit, and the server writes them to the socket without converting them.
 */
export interface ReplyHead {
  readonly status: number;
  readonly contentType: string;
  readonly requestId: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A complete reply. A large body may come in parts, so that nobody has to copy them into one buffer. */
export class Reply {
  constructor(
    readonly head: ReplyHead,
    readonly body: string | Uint8Array | readonly Uint8Array[],
    /** Called once the body is sent or dropped. Freeing large buffers early beats waiting for the collector. */
    readonly release: (() => void) | null = null,
  ) {}
}

/** Where the bytes of a streamed reply go. */
export interface ReplyWriter {
  /** False when the client is slow: the bytes were accepted, and `drained` says when to write more. */
  write(bytes: Uint8Array | string): boolean;
  /** The reply is complete. */
  end(last?: Uint8Array): void;
  /** Cuts the reply off in a way that the client notices. */
  terminate(): void;
}

/** Produces a streamed reply. */
export interface ReplySource {
  /** The head has been queued. */
  begin(writer: ReplyWriter): void;
  /** The client has read everything written so far. */
  drained(): void;
  /** The client has disconnected; further writes go nowhere. Not called after the end. */
  left(): void;
}

/** A reply whose body is written while it is produced. */
export class StreamedReply {
  constructor(
    readonly head: ReplyHead,
    readonly source: ReplySource,
  ) {}
}

/** A content type without its parameters, in lower case; "" if there is none. */
export const mediaTypeOf = (contentType: string | null | undefined): string =>
  (contentType ?? "").split(";", 1)[0]!.trim().toLowerCase();
/** Whether it is one JSON value: not several, as in `application/json-seq`. */
export const isJsonType = (contentType: string | null | undefined): boolean =>
  /[/+]json$/.test(mediaTypeOf(contentType));
export const isEventStream = (contentType: string | null | undefined): boolean =>
  mediaTypeOf(contentType) === "text/event-stream";
export const JSON_TYPE = "application/json";
export const EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8";
/** Keeps proxies from buffering or rewriting events. */
export const EVENT_STREAM_HEADERS = {
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
} as const;

export const jsonReply = (
  body: Reply["body"],
  requestId: string,
  status = 200,
  headers?: Record<string, string>,
): Reply => new Reply({ status, contentType: JSON_TYPE, requestId, ...(headers && { headers }) }, body);
