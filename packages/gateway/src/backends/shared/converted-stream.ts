import { BackendError } from "../contract.ts";
import type { ChatAnswer } from "../dialects/dialect.ts";
import { type ChatDelta, ChatEvents, type ChatIdentity, errorEvent } from "./chat-events.ts";
import { transportError } from "./upstream-http.ts";

type JsonObject = Record<string, unknown>;

/** Reads the objects of an upstream's own stream, one at a time. */
export interface StreamConverter {
  /** Set once it is complete; nothing after that is looked at. */
  readonly answer: ChatAnswer | null;
  /** What the object adds to the answer. */
  deltas(object: JsonObject): ChatDelta[];
  /** The stream has ended: an answer may be complete all the same. */
  ended?(): void;
  failureOf(object: JsonObject): BackendError | null;
}

interface ConvertedStreamOptions {
  body: ReadableStream<Uint8Array>;
  objects: { push(bytes: Uint8Array): JsonObject[]; end(): JsonObject[] };
  converter: StreamConverter;
  identity: ChatIdentity;
  completed(answer: ChatAnswer): void;
  signal: AbortSignal;
  abortUpstream: () => void;
}

/** An upstream's own stream as chat events. Resolves with the first object, so a failure there fails the call. */
export async function convertedStream({
  body,
  objects,
  converter,
  identity,
  completed,
  signal,
  abortUpstream,
}: ConvertedStreamOptions): Promise<ReadableStream<Uint8Array>> {
  const reader = body.getReader();
  const encoder = new TextEncoder();
  const chat = new ChatEvents(identity);

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
            if (batch === null) converter.ended?.();
            if (batch === null && !converter.answer)
              throw new BackendError("transport", "the upstream's stream ended before its last line");
            let events = "";
            let failure: BackendError | null = null;
            for (const object of batch ?? []) {
              failure = converter.failureOf(object);
              if (failure) events += errorEvent(failure.detail, failure.usage);
              else for (const delta of converter.deltas(object)) events += chat.delta(delta);
              if (failure || converter.answer) break;
            }
            const { answer } = converter;
            if (answer) {
              completed(answer);
              events += chat.end(answer.finishReason, answer.usage, answer.stopSequence);
            }
            if (events) controller.enqueue(encoder.encode(events));
            if (failure || answer) {
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
