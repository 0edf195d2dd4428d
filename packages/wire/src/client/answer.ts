/** Receives the pieces of an answer as they arrive. */
export interface PieceReader {
  piece(bytes: Uint8Array): void;
  /** No more pieces are at hand for now. */
  flush(): void;
  end(): void;
  /** The client's own error (`OriginOptions.failure`), or the reason of the abort. */
  failed(error: unknown): void;
}

/** Pieces on their way to a reader. Nothing arrives before the first `resume`. */
export interface Flow {
  pause(): void;
  resume(): void;
  /** The reader needs no more; the rest is awaited for a moment, so that the connection can be reused. */
  leave(): void;
  /** Cuts the answer off. */
  cancel(): void;
}

/** A 2xx answer on its way. Its body is taken once: as a whole or in pieces. */
export interface Answer {
  readonly contentType: string;
  /** Headers whose lower-case names match; absent: the answer has none of its own. */
  headersLike?(names: RegExp): Record<string, string>;
  /** Synchronous when it has arrived. A body that breaks off or exceeds `bytesMax` is an error. */
  bytes(bytesMax: number): Buffer | Promise<Buffer>;
  pipe(reader: PieceReader): Flow;
}

/** An answer of any status. */
export interface HttpAnswer extends Answer {
  readonly status: number;
  readonly statusText: string;
  readonly retryAfter: string | null;
}

/**
 * Why there is no answer.
 * - `connect`: nothing was sent, so the request can be tried elsewhere
 * - `transport`: the connection or the answer broke after that
 * - `too_large`: the answer is larger than was asked for
 * - `request`: the request cannot be sent as it is
 */
export type FailureKind = "connect" | "transport" | "too_large" | "request";

export interface OriginOptions {
  /** Scheme, host and port; only http. */
  url: string;
  /** Sent with every request. */
  headers: Readonly<Record<string, string>>;
  /** Makes the error that a failed request rejects with. */
  failure(kind: FailureKind, message: string): Error;
  /** Makes the error for an answer with a status other than 2xx. */
  errorOf(answer: HttpAnswer): Promise<Error>;
}

export interface Abort {
  /** Calls `run` once, with the reason, when the caller gives up or already has. */
  whenAborted(run: (reason: unknown) => void): void;
  /** Told when the caller gave up before anything was sent: the server has done nothing. */
  unsent?(): void;
}

/** One plain-http server. */
export interface Origin {
  /** A 2xx answer. `headers` are sent besides those of the options. Rejects with an error from the options, or the reason of the abort. */
  post(
    path: string,
    body: Uint8Array | string,
    abort: Abort,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Answer>;
  close(): void;
}

/** How long the rest of an answer that nobody reads may take before its connection is given up. */
export const ANSWER_LINGER_MS = 1_000;

export const answerTooLarge = (bytesMax: number): string =>
  `the upstream's answer is larger than ${bytesMax} bytes`;
