import { ConnectionError, isAbort, RestError, restErrorOf } from "./errors.ts";
import type { Notifications } from "./notifications.gen.ts";
import type { Fetch } from "./rpc.ts";
import { sseEvents } from "./sse.ts";

const RETRY_FIRST_MS = 250;
const RETRY_MAX_MS = 10_000;

export type Notification = {
  [Name in keyof Notifications]: { method: Name; params: Notifications[Name] };
}[keyof Notifications];
export type ChatStream = Notifications["chat.stream"];
export type ModelsProgress = Notifications["models.progress"];

export interface EventsOptions {
  signal?: AbortSignal;
  /** Default true. Without it the iterator throws when the connection breaks. */
  reconnect?: boolean;
  /** The id of the last event that was seen: what came since then is delivered first. */
  lastEventId?: string | null;
  /** Called with the id of each event, before it is delivered. */
  onEventId?: (id: string) => void;
  /** Called once the subscription stands: notifications from here on are seen. */
  onOpen?: () => void;
  /**
   * Called after each later connection. What was notified in between follows, unless it was too long ago: the service
   * keeps the last two minutes.
   */
  onReconnect?: () => void;
}

export interface EventsSource {
  fetch: Fetch;
  baseUrl: string;
  token(): Promise<string | null>;
}

async function subscribe(
  { fetch, baseUrl, token }: EventsSource,
  sessionId: string,
  { lastId, signal }: { lastId: string | null; signal?: AbortSignal },
) {
  const bearer = await token();
  const response = await fetch(`${baseUrl}/api/rpc/events?session=${encodeURIComponent(sessionId)}`, {
    headers: {
      accept: "text/event-stream",
      ...(bearer !== null && { authorization: `Bearer ${bearer}` }),
      ...(lastId !== null && { "last-event-id": lastId }),
    },
    signal,
  });
  if (!response.ok || !response.body) throw await restErrorOf(response);
  return response.body;
}

function pause(delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, delayMs);
    signal?.addEventListener("abort", finish);
  });
}

/** Errors that the next attempt would meet again: the service refused, or speaks something else. */
const isFinal = (error: unknown) =>
  (error instanceof RestError && error.status < 500) || error instanceof SyntaxError;

/** The notifications of one session, for as long as the caller iterates or until `signal` fires. */
export async function* sessionEvents(
  source: EventsSource,
  sessionId: string,
  { signal, reconnect = true, lastEventId = null, onEventId, onOpen, onReconnect }: EventsOptions = {},
): AsyncGenerator<Notification, void, undefined> {
  let delayMs = RETRY_FIRST_MS;
  let wasOpen = false;
  let lastId = lastEventId;
  while (!signal?.aborted) {
    try {
      const body = await subscribe(source, sessionId, { lastId, signal });
      if (wasOpen) onReconnect?.();
      else onOpen?.();
      wasOpen = true;
      for await (const event of sseEvents(body)) {
        delayMs = RETRY_FIRST_MS;
        lastId = event.lastId ?? lastId;
        if (event.lastId !== null) onEventId?.(event.lastId);
        if (event.data === "") continue;
        const message = JSON.parse(event.data) as Partial<Notification>;
        // Responses that were pushed onto the session carry no method.
        if (message.method) yield message as Notification;
      }
      if (!reconnect) throw new ConnectionError("the notification stream ended");
    } catch (error) {
      if (isAbort(error) || signal?.aborted) return;
      if (isFinal(error)) throw error;
      if (!reconnect) throw new ConnectionError("the connection was lost", { cause: error });
    }
    await pause(delayMs * (0.5 + Math.random() / 2), signal);
    delayMs = Math.min(delayMs * 2, RETRY_MAX_MS);
  }
}
