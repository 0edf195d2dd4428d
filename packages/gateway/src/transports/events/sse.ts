import type { EventHub, Subscriber } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Authenticator } from "../../kernel/context.ts";
import { ServiceError, toRestResponse } from "../../kernel/errors.ts";
import { bearerOf } from "../../kernel/http.ts";

const KEEP_ALIVE_MS = 15_000;
/** What may wait for a subscriber that reads slowly; beyond that it is cut off. */
const BUFFER_BYTES_MAX = 1024 * 1024;
/** Notifications that may come between the subscription and the first byte of its answer. */
const EARLY_MAX = 100;
const SESSION_ID_LENGTH_MAX = 64;
const SUBSCRIBED = ": subscribed\n\n";
const KEEP_ALIVE = ": keep-alive\n\n";

export const SSE_HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
} as const;

export interface SseOptions {
  events: EventHub;
  authenticator: Authenticator;
  clock: Clock;
}

/** The runtime's own stream type: text goes to the socket as it comes, and an idle stream holds no queue. */
interface Sink {
  /** A promise when the client does not read fast enough; what was written is kept until it does. */
  write(text: string): number | Promise<number>;
  flush(): unknown;
  close(error: Error): void;
}

/**
 * One open subscription: what the hub delivers to and what the runtime reads from in one object, since there may
 * be very many of them that only wait.
 */
class EventResponse implements Subscriber {
  readonly type = "direct";
  #sink: Sink | null = null;
  /** What was delivered before the runtime asked for the body. */
  #early: string[] | null = null;
  /** Written since the client stopped reading. */
  #behindBytes = 0;
  #isBehind = false;
  #unsubscribe: (() => void) | null = null;

  constructor(readonly open: Set<EventResponse>) {}

  /** False when the session may not be subscribed to. */
  subscribe(events: EventHub, sessionId: string, userId: string | null): boolean {
    this.#unsubscribe = events.subscribe({ sessionId, userId, subscriber: this });
    if (this.#unsubscribe) this.open.add(this);
    return this.#unsubscribe !== null;
  }

  /** Called by the runtime when the headers are on their way. The stream stays open without a promise. */
  pull(sink: Sink): void {
    // A reader within the process asks again for every piece.
    if (this.#sink === sink) return;
    this.#sink = sink;
    // Written at once, so that the client knows that it is subscribed.
    this.#write(SUBSCRIBED);
    for (const json of this.#early ?? []) this.deliver(json);
    this.#early = null;
  }

  /** Called by the runtime when the client has left. */
  cancel(): void {
    this.open.delete(this);
    this.#sink = null;
    this.#unsubscribe?.();
    this.#unsubscribe = null;
  }

  deliver(json: string): boolean {
    if (this.#sink) return this.#write(`data: ${json}\n\n`);
    this.#early ??= [];
    this.#early.push(json);
    return this.#early.length <= EARLY_MAX;
  }

  keepAlive(): void {
    if (this.#sink) this.#write(KEEP_ALIVE);
  }

  closed(): void {
    const sink = this.#sink;
    this.cancel();
    sink?.close(new Error("the subscriber read too slowly"));
  }

  #write(text: string): boolean {
    const written = this.#sink!.write(text);
    this.#sink!.flush();
    if (this.#isBehind) this.#behindBytes += text.length;
    else if (written instanceof Promise) this.#fallBehind(written, text.length);
    return this.#behindBytes <= BUFFER_BYTES_MAX;
  }

  #fallBehind(caughtUp: Promise<unknown>, bytes: number): void {
    this.#isBehind = true;
    this.#behindBytes = bytes;
    const end = () => {
      this.#isBehind = false;
      this.#behindBytes = 0;
    };
    caughtUp.then(end, end);
  }
}

/** `GET /api/rpc/events?session=<id>`: the notifications of one session, one `data:` line each. */
export class EventsTransport {
  readonly #open = new Set<EventResponse>();

  constructor(readonly options: SseOptions) {
    // One timer for all streams keeps an idle subscription as small as its socket.
    options.clock.every(KEEP_ALIVE_MS, () => {
      for (const response of this.#open) response.keepAlive();
    });
  }

  get subscriberCount(): number {
    return this.#open.size;
  }

  async handle(
    request: Request,
    { query, requestId }: { query: URLSearchParams; requestId: string },
  ): Promise<Response> {
    const sessionId = query.get("session") ?? "";
    if (sessionId === "" || sessionId.length > SESSION_ID_LENGTH_MAX) {
      return toRestResponse(
        new ServiceError(
          "missing_fields",
          "`session` is required: the stream_id or stream_session that a call returned",
        ),
        requestId,
      );
    }
    const { actor } = await this.options.authenticator.identify(bearerOf(request) ?? query.get("token"));
    const source = new EventResponse(this.#open);
    if (!source.subscribe(this.options.events, sessionId, actor?.userId ?? null)) {
      return toRestResponse(
        new ServiceError("not_found", "No such session, or it has too many subscribers"),
        requestId,
      );
    }
    return new Response(new ReadableStream(source as unknown as UnderlyingSource<Uint8Array>), {
      headers: { ...SSE_HEADERS, "x-request-id": requestId },
    });
  }
}
