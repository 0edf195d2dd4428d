import type { OriginOptions } from "./answer.ts";
import { IncomingAnswer } from "./incoming-answer.ts";
import { HttpParseError, ResponseParser } from "./response-parser.ts";

/** One request and its answer on a connection. */
export class Exchange extends IncomingAnswer {
  readonly #parser = new ResponseParser(this);
  /** Part of the answer has arrived. */
  hasBegun = false;

  constructor(
    /** Of the request, in Latin-1. */
    readonly head: string,
    readonly body: Uint8Array,
    errors: Pick<OriginOptions, "failure" | "errorOf">,
  ) {
    super(errors);
  }

  /** Bytes from the connection. */
  received(bytes: Buffer): void {
    this.hasBegun = true;
    try {
      this.#parser.feed(bytes);
    } catch (error) {
      // More than the whole answer: it stands, as it does when the rest comes later, but the connection goes.
      if (this.#parser.isDone && error instanceof HttpParseError) this.over(false);
      else this.failed(this.errors.failure("transport", (error as Error).message));
      return;
    }
    this.flush();
    if (this.#parser.isDone) this.over(this.#parser.isReusable);
  }

  /** The connection is closed. */
  disconnected(error: Error | null): void {
    if (this.isOver) return;
    if (!error && this.#parser.closed()) {
      this.over(false);
      return;
    }
    const how = error ? error.message : "it closed the connection";
    const when = this.hasBegun ? "the upstream broke off its answer" : "the upstream did not answer";
    this.failed(this.errors.failure("transport", `${when}: ${how}`));
  }

  /** Handling the answer threw. */
  broke(error: unknown): void {
    this.failed(this.errors.failure("transport", `the answer could not be read: ${String(error)}`));
  }
}
