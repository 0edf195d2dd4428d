import { fail } from "./errors.ts";

/** One request as handlers see it. Less than a web `Request`, because this is made for every one of them. */
export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  /** The query without its question mark; empty when there is none. */
  readonly search: string;
  /** By its lower-case name; several lines of one name are joined by commas. */
  header(name: string): string | null;
  /** The whole body: at once when it is here. Refused as soon as it is known to be larger than `bytesMax`. */
  body(bytesMax: number): Buffer | Promise<Buffer>;
  /** Fires when the client leaves before its answer is complete. Made when it is first asked for. */
  readonly signal: AbortSignal;
  /** Calls back once when that happens: what a listener on `signal` does, for less. Takes one. */
  whenGone(run: () => void): void;
}

const BEARER = /^bearer /i;

/** The value of `Authorization: Bearer <value>`; the scheme is case-insensitive. */
export function bearerOf(request: Pick<HttpRequest, "header">): string | null {
  const header = request.header("authorization");
  if (!header || !BEARER.test(header)) return null;
  return header.slice(7).trim() || null;
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

/** A header's text as its sender wrote it. The wire has bytes: most programs put UTF-8 there, browsers Latin-1. */
export function textOfHeader(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  try {
    return strictUtf8.decode(Buffer.from(value, "latin1"));
  } catch {
    return value;
  }
}

export const refuseLarge = (bytesMax: number): never =>
  fail("body_too_large", `The request body is larger than ${bytesMax} bytes; send a smaller one`);

/** A request that is the same as another one but for some of its headers, and its body if one is given. */
export class DerivedRequest implements HttpRequest {
  constructor(
    readonly origin: HttpRequest,
    readonly headers: Readonly<Record<string, string | null>>,
    readonly bytes?: Buffer,
  ) {}

  get method(): string {
    return this.origin.method;
  }
  get path(): string {
    return this.origin.path;
  }
  get search(): string {
    return this.origin.search;
  }
  get signal(): AbortSignal {
    return this.origin.signal;
  }
  header(name: string): string | null {
    const own = this.headers[name];
    return own === undefined ? this.origin.header(name) : own;
  }
  body(bytesMax: number): Buffer | Promise<Buffer> {
    return this.bytes ?? this.origin.body(bytesMax);
  }
  whenGone(run: () => void): void {
    this.origin.whenGone(run);
  }
}
