/**
 * What handlers answer with. A web `Response` will do anywhere; these are for what is answered often, or is
 * written as it comes into being: the listener puts them on the wire as they are.
 */
export interface ReplyHead {
  readonly status: number;
  readonly contentType: string;
  readonly requestId: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An answer that is all there; a large one may come in parts, so that none is copied to put them together. */
export class Reply {
  constructor(
    readonly head: ReplyHead,
    readonly body: string | Uint8Array | readonly Uint8Array[],
    /** Called once the client's connection has taken it all, or will not: large memory is better given back at once. */
    readonly release: (() => void) | null = null,
  ) {}
}

/** Where the bytes of a streamed answer go. */
export interface ReplyWriter {
  /** False when the client does not keep up: this was taken, and the source hears when there is room again. */
  write(bytes: Uint8Array | string): boolean;
  /** The answer is complete. */
  end(last?: Uint8Array): void;
  /** The answer breaks off, and the client can tell. */
  terminate(): void;
}

/** Who writes a streamed answer. */
export interface ReplySource {
  /** The head is on its way. */
  begin(writer: ReplyWriter): void;
  /** The client has taken everything that was written. */
  drained(): void;
  /** The client has left; nothing that is written arrives any more. Not called after the end. */
  left(): void;
}

/** An answer that is written as it comes into being. */
export class StreamedReply {
  constructor(
    readonly head: ReplyHead,
    readonly source: ReplySource,
  ) {}
}

export const JSON_TYPE = "application/json";
export const EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8";
/** Nothing on the way may hold an event back or change it. */
export const EVENT_STREAM_HEADERS = {
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
} as const;

export const jsonReply = (
  body: string | Uint8Array,
  requestId: string,
  status = 200,
  headers?: Record<string, string>,
): Reply => new Reply({ status, contentType: JSON_TYPE, requestId, ...(headers && { headers }) }, body);
