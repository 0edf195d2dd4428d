import { BackendError } from "../contract.ts";
import { errorEvent } from "./chat-events.ts";
import { transportError } from "./upstream-http.ts";

type JsonObject = Record<string, unknown>;

/** Turns the objects of an upstream's own stream into events of a chat, one at a time. */
export interface StreamConverter {
  /** True once the answer is complete; nothing after that is looked at. */
  readonly done: boolean;
  /** An empty text when there is nothing to send. */
  convert(object: JsonObject): string;
  /** The stream has ended: what closes an answer that is complete all the same; empty: it was cut off. */
  ended?(): string;
  failureOf(object: JsonObject): BackendError | null;
}

interface ConvertedStreamOptions {
  body: ReadableStream<Uint8Array>;
  objects: { push(bytes: Uint8Array): JsonObject[]; end(): JsonObject[] };
  converter: StreamConverter;
  signal: AbortSignal;
  abortUpstream: () => void;
}

/** An upstream's own stream as chat events. Resolves with the first object, so a failure there fails the call. */
export async function convertedStream({
  body,
  objects,
  converter,
  signal,
  abortUpstream,
}: ConvertedStreamOptions): Promise<ReadableStream<Uint8Array>> {
  const reader = body.getReader();
  const encoder = new TextEncoder();

  /** The objects of the next piece that has any; null at the end. */
  const next = async (): Promise<JsonObject[] | null> => {
    for (;;) {
      const { value, done } = await reader.read();
      const found = done ? objects.end() : objects.push(value);
      if (found.length > 0) return found;
      if (done) return null;
    }
  };
  const failed = (error: unknown) => {
    abortUpstream();
    return transportError(error, signal);
  };

  let first: JsonObject[] | null;
  try {
    first = await next();
    if (!first) throw new BackendError("transport", "the upstream's stream ended before its first line");
    const failure = first[0] && converter.failureOf(first[0]);
    if (failure) throw failure;
  } catch (error) {
    throw failed(error);
  }

  let waiting: JsonObject[] | null = first;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const batch = waiting ?? (await next());
            waiting = null;
            let events = batch === null ? (converter.ended?.() ?? "") : "";
            if (batch === null && events === "")
              throw new BackendError("transport", "the upstream's stream ended before its last line");
            let failure: BackendError | null = null;
            for (const object of batch ?? []) {
              failure = converter.failureOf(object);
              events += failure ? errorEvent(failure.detail) : converter.convert(object);
              if (failure || converter.done) break;
            }
            if (events) controller.enqueue(encoder.encode(events));
            if (failure || converter.done) {
              controller.close();
              reader.cancel().catch(() => {});
              return;
            }
            if (events) return;
          }
        } catch (error) {
          controller.error(failed(error));
        }
      },
      cancel: abortUpstream,
    },
    // Nothing is read ahead of the reader: its pace is the upstream's.
    { highWaterMark: 0 },
  );
}
