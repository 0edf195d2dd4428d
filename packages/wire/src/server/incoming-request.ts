import { type HttpRequest, tooLarge } from "../http/request.ts";
import { RequestBody } from "./request-body.ts";
import type { RequestHead } from "./request-head.ts";

/** What a request needs of its connection. */
export interface RequestCarrier {
  readonly remoteAddress: string;
  /** The client is known: its connection is no stranger's any more. */
  vouched(): void;
  /** The handler waits for the body; `expectsContinue`: the client waits for a 100 before sending it. */
  bodyAwaited(expectsContinue: boolean): void;
}

const CLIENT_GONE = "the client left";

/** A request on one of the server's connections. */
export class IncomingRequest implements HttpRequest {
  #controller: AbortController | null = null;
  #whenGone: (() => void) | null = null;
  #isGone = false;

  constructor(
    readonly head: RequestHead,
    /** The body if it came with the head, or its collector. */
    readonly content: Buffer | RequestBody,
    readonly carrier: RequestCarrier,
  ) {}

  get method(): string {
    return this.head.method;
  }
  get path(): string {
    return this.head.path;
  }
  get isHttp10(): boolean {
    return this.head.isHttp10;
  }
  get search(): string {
    return this.head.search;
  }
  /** The address at the other end of the connection. */
  get remoteAddress(): string {
    return this.carrier.remoteAddress;
  }

  header(name: string): string | null {
    return this.head.header(name);
  }
  headersLike(names: RegExp): Record<string, string> {
    return this.head.headersLike(names);
  }

  body(bytesMax: number): Buffer | Promise<Buffer> {
    const { content } = this;
    if (content instanceof RequestBody) {
      const taken = content.take(bytesMax);
      if (taken instanceof Promise) this.carrier.bodyAwaited(this.head.expectsContinue);
      return taken;
    }
    if (content.length > bytesMax) throw tooLarge(bytesMax);
    return content;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#isGone) this.#controller.abort(new Error(CLIENT_GONE));
    }
    return this.#controller.signal;
  }

  whenGone(run: () => void): void {
    if (this.#isGone) run();
    else this.#whenGone = run;
  }

  vouch(): void {
    this.carrier.vouched();
  }

  /** The connection ended before the reply did. */
  gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    if (this.content instanceof RequestBody) this.content.failed(CLIENT_GONE);
    this.#whenGone?.();
    this.#controller?.abort(new Error(CLIENT_GONE));
  }
}
