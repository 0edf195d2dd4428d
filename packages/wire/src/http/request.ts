/** A request as handlers see it. Smaller than a web `Request`, because one is made for every request. */
export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  /** The query without its question mark; empty when there is none. */
  readonly search: string;
  readonly isHttp10: boolean;
  /** By lower-case name. Repeated headers are joined with commas. */
  header(name: string): string | null;
  /** Those whose lower-case names match. */
  headersLike(names: RegExp): Record<string, string>;
  /**
   * The whole body; synchronous when it has already arrived. Throws or rejects with a BadRequest: 413 as soon as
   * the body is known to exceed `bytesMax`, 400 when it cannot be read.
   */
  body(bytesMax: number): Buffer | Promise<Buffer>;
  /** Fires when the client disconnects before its reply is complete. Created on first use. */
  readonly signal: AbortSignal;
  /** Calls `run` once when that happens: a cheaper listener on `signal`. There can be only one. */
  whenGone(run: () => void): void;
  /** Says that the caller is known, so that limits for strangers no longer apply to its connection. */
  vouch(): void;
}

/** What is wrong with a request, and the status code that says so. */
export class BadRequest extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export const tooLarge = (bytesMax: number): BadRequest =>
  new BadRequest(413, `The request body is larger than ${bytesMax} bytes; send a smaller one`);

const BEARER = /^bearer /i;

/** The value of `Authorization: Bearer <value>`; the scheme is case-insensitive. */
export function bearerOf(request: Pick<HttpRequest, "header">): string | null {
  const header = request.header("authorization");
  if (!header || !BEARER.test(header)) return null;
  return header.slice(7).trim() || null;
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

/** A header's value as its sender wrote it. Headers are bytes: most programs send UTF-8, browsers Latin-1. */
export function textOfHeader(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  try {
    return strictUtf8.decode(Buffer.from(value, "latin1"));
  } catch {
    return value;
  }
}
