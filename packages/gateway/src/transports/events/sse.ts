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
import {
  type EventHub,
  type EventReader,
  type Revocations,
  SESSION_ID_LENGTH_MAX,
  type Subscriber,
} from "../../bus/contract.ts";
import { askedOnce } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type Authenticator, nameOf, type SignedIn } from "../../kernel/context.ts";
import { type ErrorName, ServiceError, toRestReply } from "../../kernel/errors.ts";

const KEEP_ALIVE_MS = 15_000;
/** While the instance stops: how often streams are checked, and after how many quiet checks one is closed. */
const RETIRING_SWEEP_MS = 500;
const QUIET_SWEEPS_MAX = 6;
/** An anonymous stream ends after this long without events, unless its session has an owner. */
const STRANGER_IDLE_MS = 60_000;
/** The last id of a subscriber that has got nothing yet. */
const FIRST_ID = "0";
const EVENT_ID = /^[\w-]{1,64}$/;
const KEEP_ALIVE = ": keep-alive\n\n";

interface SseOptions {
  events: EventHub;
  authenticator: Authenticator;
  revocations: Revocations;
  clock: Clock;
}

/** One open subscription. Reader and writer are one object, to save memory: very many streams only wait. */
class Subscription implements Subscriber, ReplySource {
  #writer: ReplyWriter | null = null;
  #place: EventReader | null = null;
  #lastId: string | null = null;
  #quietSweeps = 0;
  #idleSinceMs: number;
  readonly #stranger: { vouch(): void } | null = null;

  constructor(
    readonly open: Set<Subscription>,
    readonly clock: Clock,
    readonly sessionId: string,
    readonly reader: SignedIn | null,
    connection: { vouch(): void },
  ) {
    this.#idleSinceMs = clock.now();
    if (reader) connection.vouch();
    else this.#stranger = connection;
  }

  subscribe(events: EventHub, lastId: string | null): boolean {
    const { sessionId, reader } = this;
    this.#lastId = lastId;
    this.#place = events.subscribe({ sessionId, userId: reader?.userId ?? null, lastId, subscriber: this });
    if (this.#place) this.open.add(this);
    return this.#place !== null;
  }

  begin(writer: ReplyWriter): void {
    this.#writer = writer;
    // Tells the client that it is subscribed, and the id to reconnect with.
    writer.write(`: subscribed\nid: ${this.#place?.lastId ?? this.#lastId ?? FIRST_ID}\n\n`);
    this.#place?.resume();
  }

  drained(): void {
    this.#place?.resume();
  }

  left(): void {
    const place = this.#place;
    this.open.delete(this);
    this.#writer = null;
    this.#place = null;
    place?.leave();
  }

  deliver(json: string, id: string): boolean {
    this.#quietSweeps = 0;
    this.#idleSinceMs = this.clock.now();
    return this.#writer?.write(`id: ${id}\ndata: ${json}\n\n`) ?? false;
  }

  /** Called periodically: keeps the stream alive, or ends it. */
  tend(events: EventHub): void {
    if (!this.reader) {
      // The session has an owner, so the reader must have got its id from someone.
      if (events.openerOf(this.sessionId) !== null) this.#stranger?.vouch();
      else if (this.clock.now() - this.#idleSinceMs >= STRANGER_IDLE_MS) {
        this.end();
        return;
      }
    }
    this.#writer?.write(KEEP_ALIVE);
  }

  isQuiet(): boolean {
    return this.#quietSweeps++ >= QUIET_SWEEPS_MAX;
  }

  end(): void {
    this.#place?.finish();
    this.#over()?.end();
  }

  closed(): void {
    this.#over()?.terminate();
  }

  #over(): ReplyWriter | null {
    const writer = this.#writer;
    this.left();
    return writer;
  }
}

/** `GET /api/rpc/events?session=<id>`: the notifications of one session, one `data:` line each. */
export class EventsTransport {
  readonly #open = new Set<Subscription>();
  readonly #ends: (() => void)[] = [];

  constructor(readonly options: SseOptions) {
    options.revocations.onChange((id) => this.#recheck(id));
    // One timer for all streams keeps an idle subscription as small as its socket.
    this.#ends.push(
      options.clock.every(KEEP_ALIVE_MS, () => {
        for (const response of [...this.#open]) response.tend(options.events);
      }),
    );
  }

  get subscriberCount(): number {
    return this.#open.size;
  }

  /** The instance stops: streams end when nothing can emit on them, and readers reconnect elsewhere. */
  retire(isBusy: () => boolean): void {
    const sweep = () => {
      for (const subscription of [...this.#open]) if (!isBusy() || subscription.isQuiet()) subscription.end();
    };
    sweep();
    this.#ends.push(this.options.clock.every(RETIRING_SWEEP_MS, sweep));
  }

  /** Whose rights count: the reader's, or for strangers those of the session's owner. */
  #holderOf({ reader, sessionId }: Subscription): SignedIn | null {
    return reader ?? this.options.events.openerOf(sessionId);
  }

  async #recheck(id: string | null): Promise<void> {
    const isInForce = askedOnce(nameOf, (holder: SignedIn) => this.options.authenticator.isInForce(holder));
    for (const subscription of [...this.#open]) {
      const holder = this.#holderOf(subscription);
      if (!holder || (id !== null && holder.userId !== id)) continue;
      if (!(await isInForce(holder))) this.#shutOut(subscription);
    }
  }

  #shutOut(subscription: Subscription): void {
    // The reader still knows the id.
    if (subscription.reader) this.options.events.closeToStrangers(subscription.sessionId);
    subscription.end();
  }

  close(): void {
    for (const end of this.#ends.splice(0)) end();
  }

  async handle(
    request: HttpRequest,
    { query, requestId }: { query: URLSearchParams; requestId: string },
  ): Promise<Reply | StreamedReply> {
    const { events, authenticator, clock } = this.options;
    const refuse = (kind: ErrorName, message: string) =>
      toRestReply(new ServiceError(kind, message), requestId);
    const sessionId = query.get("session") ?? "";
    if (sessionId === "" || sessionId.length > SESSION_ID_LENGTH_MAX)
      return refuse(
        "missing_fields",
        "`session` is required: the stream_id or stream_session that a call returned",
      );
    const token = bearerOf(request) ?? query.get("token");
    const { actor, sessionId: signedInAs } = await authenticator.identify(token);
    const reader = actor && { userId: actor.userId, sessionId: signedInAs };
    const subscription = new Subscription(this.#open, clock, sessionId, reader, request);
    // Browsers send the header when they reconnect; a page that was reloaded cannot set it.
    const given = request.header("last-event-id") ?? query.get("last_event_id") ?? "";
    const lastId = EVENT_ID.test(given) ? given : null;
    const notFound = () => refuse("not_found", "No such session, or it has too many subscribers");
    if (!subscription.subscribe(events, lastId)) return notFound();
    // Checked after subscribing: a right that is revoked from now on ends the subscription.
    const holder = this.#holderOf(subscription);
    if (holder && !(await authenticator.mayGoOn(holder))) {
      subscription.left();
      return notFound();
    }
    return new StreamedReply(
      { status: 200, contentType: EVENT_STREAM_TYPE, requestId, headers: EVENT_STREAM_HEADERS },
      subscription,
    );
  }
}
