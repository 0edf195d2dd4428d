import {
  bearerOf,
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  type HttpRequest,
  type Reply,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "@model-gateway/wire/http";
import type { EventHub, Subscriber } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Authenticator } from "../../kernel/context.ts";
import { ServiceError, toRestReply } from "../../kernel/errors.ts";

const KEEP_ALIVE_MS = 15_000;
/** What may wait for a subscriber that reads slowly; beyond that it is cut off. */
const BUFFER_BYTES_MAX = 1024 * 1024;
/** While the instance stops: how often its streams are looked at, and for how long nothing must have come on one. */
const RETIRING_SWEEP_MS = 500;
const QUIET_SWEEPS_MAX = 6;
const SESSION_ID_LENGTH_MAX = 64;
const SUBSCRIBED = ": subscribed\n\n";
const KEEP_ALIVE = ": keep-alive\n\n";

export interface SseOptions {
  events: EventHub;
  authenticator: Authenticator;
  clock: Clock;
}

/**
 * One open subscription: what the hub delivers to and what the listener reads from in one object, since there may
 * be very many of them that only wait.
 */
class Subscription implements Subscriber, ReplySource {
  #writer: ReplyWriter | null = null;
  /** What was delivered before the answer had begun. */
  #early: string[] | null = null;
  /** Waits for the answer to begin, or for the client to read. */
  #behindBytes = 0;
  #isCutOff = false;
  #unsubscribe: (() => void) | null = null;
  /** Since something was delivered. */
  #quietSweeps = 0;

  constructor(readonly open: Set<Subscription>) {}

  /** False when the session may not be subscribed to. */
  subscribe(events: EventHub, sessionId: string, userId: string | null): boolean {
    this.#unsubscribe = events.subscribe({ sessionId, userId, subscriber: this });
    if (this.#unsubscribe) this.open.add(this);
    return this.#unsubscribe !== null;
  }

  begin(writer: ReplyWriter): void {
    if (this.#isCutOff) {
      writer.terminate();
      return;
    }
    this.#writer = writer;
    this.#behindBytes = 0;
    // Written at once, so that the client knows that it is subscribed.
    this.#write(SUBSCRIBED);
    for (const json of this.#early ?? []) this.deliver(json);
    this.#early = null;
  }

  drained(): void {
    this.#behindBytes = 0;
  }

  left(): void {
    this.open.delete(this);
    this.#writer = null;
    this.#unsubscribe?.();
    this.#unsubscribe = null;
  }

  deliver(json: string): boolean {
    this.#quietSweeps = 0;
    if (this.#writer) return this.#write(`data: ${json}\n\n`);
    this.#early ??= [];
    this.#early.push(json);
    this.#behindBytes += json.length;
    return this.#behindBytes <= BUFFER_BYTES_MAX;
  }

  keepAlive(): void {
    if (this.#writer) this.#write(KEEP_ALIVE);
  }

  isQuiet(): boolean {
    return this.#quietSweeps++ >= QUIET_SWEEPS_MAX;
  }

  end(): void {
    const writer = this.#writer;
    this.left();
    writer?.end();
  }

  /** It read too slowly. */
  closed(): void {
    const writer = this.#writer;
    this.#isCutOff = true;
    this.left();
    writer?.terminate();
  }

  #write(text: string): boolean {
    const isTaken = this.#writer!.write(text);
    // How much of the first one the socket has taken is not known; it counts as a whole.
    if (!isTaken) this.#behindBytes += text.length;
    return this.#behindBytes <= BUFFER_BYTES_MAX;
  }
}

/** `GET /api/rpc/events?session=<id>`: the notifications of one session, one `data:` line each. */
export class EventsTransport {
  readonly #open = new Set<Subscription>();

  constructor(readonly options: SseOptions) {
    // One timer for all streams keeps an idle subscription as small as its socket.
    options.clock.every(KEEP_ALIVE_MS, () => {
      for (const response of this.#open) response.keepAlive();
    });
  }

  get subscriberCount(): number {
    return this.#open.size;
  }

  /**
   * The instance is stopping. Its streams would keep it until their readers leave; they end once nothing is under
   * way that could say something, or nothing has been said for a while, and their readers ask another instance.
   */
  retire(isBusy: () => boolean): void {
    const sweep = () => {
      for (const subscription of [...this.#open]) if (!isBusy() || subscription.isQuiet()) subscription.end();
    };
    sweep();
    this.options.clock.every(RETIRING_SWEEP_MS, sweep);
  }

  async handle(
    request: HttpRequest,
    { query, requestId }: { query: URLSearchParams; requestId: string },
  ): Promise<Reply | StreamedReply> {
    const refuse = (error: ServiceError) => toRestReply(error, requestId);
    const sessionId = query.get("session") ?? "";
    if (sessionId === "" || sessionId.length > SESSION_ID_LENGTH_MAX) {
      return refuse(
        new ServiceError(
          "missing_fields",
          "`session` is required: the stream_id or stream_session that a call returned",
        ),
      );
    }
    const { actor } = await this.options.authenticator.identify(bearerOf(request) ?? query.get("token"));
    const subscription = new Subscription(this.#open);
    if (!subscription.subscribe(this.options.events, sessionId, actor?.userId ?? null))
      return refuse(new ServiceError("not_found", "No such session, or it has too many subscribers"));
    return new StreamedReply(
      { status: 200, contentType: EVENT_STREAM_TYPE, requestId, headers: EVENT_STREAM_HEADERS },
      subscription,
    );
  }
}
