import type { EventHub, Subscriber } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Authenticator } from "../../kernel/context.ts";
import { ServiceError, toRestResponse } from "../../kernel/errors.ts";
import { bearerOf } from "../../kernel/http.ts";

const KEEP_ALIVE_MS = 15_000;
/** What may wait for a subscriber that reads slowly; beyond that it is cut off. */
const BUFFER_BYTES_MAX = 1024 * 1024;
const SESSION_ID_LENGTH_MAX = 64;
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

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

/** `GET /api/rpc/events?session=<id>`: the notifications of one session, one `data:` line each. */
export class EventsTransport {
  #open = new Set<() => void>();
  #encoder = new TextEncoder();

  constructor(readonly options: SseOptions) {
    // One timer for all streams keeps an idle subscription as small as its socket.
    options.clock.every(KEEP_ALIVE_MS, () => {
      for (const ping of this.#open) ping();
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
    const stream = this.#subscribe(sessionId, actor?.userId ?? null);
    if (!stream) {
      return toRestResponse(
        new ServiceError("not_found", "No such session, or it has too many subscribers"),
        requestId,
      );
    }
    return new Response(stream, { headers: { ...SSE_HEADERS, "x-request-id": requestId } });
  }

  #subscribe(sessionId: string, userId: string | null): ReadableStream<Uint8Array> | null {
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
    const ping = () => write(KEEP_ALIVE);
    const write = (bytes: Uint8Array): boolean => {
      if (!controller) return false;
      controller.enqueue(bytes);
      return (controller.desiredSize ?? 0) > -BUFFER_BYTES_MAX;
    };
    const leave = () => {
      controller = null;
      this.#open.delete(ping);
      unsubscribe?.();
    };
    const subscriber: Subscriber = {
      deliver: (json) => write(this.#encoder.encode(`data: ${json}\n\n`)),
      closed: () => {
        const ending = controller;
        leave();
        ending?.error(new Error("the subscriber read too slowly"));
      },
    };
    const unsubscribe = this.options.events.subscribe({ sessionId, userId, subscriber });
    if (!unsubscribe) return null;
    return new ReadableStream<Uint8Array>(
      {
        start: (own) => {
          controller = own;
          this.#open.add(ping);
          // Headers leave at once, so that the client knows that it is subscribed.
          own.enqueue(this.#encoder.encode(": subscribed\n\n"));
        },
        cancel: leave,
      },
      new ByteLengthQueuingStrategy({ highWaterMark: 64 * 1024 }),
    );
  }
}
