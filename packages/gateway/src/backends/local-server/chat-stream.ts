import { BackendError } from "../contract.ts";
import { transportError } from "../shared/upstream-http.ts";
import { type ChatLineConverter, errorOf } from "./chat-answer.ts";
import { JsonLines } from "./ndjson.ts";

interface RelayOptions {
  body: ReadableStream<Uint8Array>;
  converter: ChatLineConverter;
  signal: AbortSignal;
  abortUpstream: () => void;
}

/**
 * A native stream as server-sent events. Resolves with the first line, so that a failure reported there is
 * still an error of the call and not of the stream. Reads on only as fast as it is read from.
 */
export async function relayLines({
  body,
  converter,
  signal,
  abortUpstream,
}: RelayOptions): Promise<ReadableStream<Uint8Array>> {
  const reader = body.getReader();
  const lines = new JsonLines();
  const encoder = new TextEncoder();

  /** The lines of the next piece that has any; null at the end. */
  const nextLines = async (): Promise<Record<string, unknown>[] | null> => {
    for (;;) {
      const { value, done } = await reader.read();
      const found = done ? lines.end() : lines.push(value);
      if (found.length > 0) return found;
      if (done) return null;
    }
  };
  const failed = (error: unknown) => {
    abortUpstream();
    return transportError(error, signal);
  };

  let first: Record<string, unknown>[] | null;
  try {
    first = await nextLines();
    if (!first) throw new BackendError("transport", "the upstream's stream ended before its first line");
    const error = first[0] && errorOf(first[0]);
    if (error) throw new BackendError("upstream", error, 500);
  } catch (error) {
    throw failed(error);
  }

  let waiting: Record<string, unknown>[] | null = first;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const batch = waiting ?? (await nextLines());
            waiting = null;
            if (batch === null)
              throw new BackendError("transport", "the upstream's stream ended before its last line");
            const events = batch.map((line) => converter.convert(line)).join("");
            if (events) controller.enqueue(encoder.encode(events));
            if (converter.done) {
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
