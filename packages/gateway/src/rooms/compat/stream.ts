import type { Clock } from "../../kernel/clock.ts";
import { toServiceError } from "../../kernel/errors.ts";
import type { TokenCounts } from "./chat-answer.ts";
import { type ChatEvent, ChatStream } from "./chat-stream.ts";
import { failureOf } from "./failure.ts";
import { type SseItem, SseReader } from "./sse-reader.ts";

/** Writes the events of one answer in one API's words. */
export interface StreamWriter {
  write(event: ChatEvent): string;
  /** What keeps a silent connection alive. */
  readonly ping: string;
}

export const sseEvent = (name: string, data: unknown): string =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

/** Proxies cut connections that are silent for a minute or less. */
const SILENCE_MS_MAX = 10_000;

export interface ConvertOptions {
  source: ReadableStream<Uint8Array>;
  writer: StreamWriter;
  clock: Clock;
  /** Counts for an upstream that reports no usage. */
  estimate(answerBytes: number): TokenCounts;
}

/**
 * A chat-completions stream in another API's events. It reads only when its own reader asks for more, and
 * cancelling it cancels the source, so a client that goes away or reads slowly is felt at the upstream.
 */
export function convertStream({
  source,
  writer,
  clock,
  estimate,
}: ConvertOptions): ReadableStream<Uint8Array> {
  const reader = source.getReader();
  const sse = new SseReader();
  const chat = new ChatStream(estimate);
  const encoder = new TextEncoder();
  let wroteAtMs = clock.now();

  const written = (events: readonly ChatEvent[]) => events.map((event) => writer.write(event)).join("");
  const convert = (items: readonly SseItem[]) =>
    items.map((item) => (item.data === null ? writer.ping : written(chat.read(item)))).join("");

  /** The next piece of output, which may be empty; null at the end. */
  async function next(): Promise<string | null> {
    const { done, value } = await reader.read();
    if (!done) return convert(sse.feed(value));
    return convert(sse.end()) + written(chat.end()) || null;
  }

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          let text: string | null;
          try {
            text = await next();
          } catch (error) {
            const { message } = toServiceError(error);
            text = written(chat.fail(failureOf(message, 502))) || null;
            if (text !== null) controller.enqueue(encoder.encode(text));
            void reader.cancel(error).catch(() => {});
            controller.close();
            return;
          }
          if (text === null) {
            controller.close();
            return;
          }
          // Thoughts that the client did not ask for are no output, yet the line must not fall silent.
          if (text === "" && clock.now() - wroteAtMs >= SILENCE_MS_MAX) text = writer.ping;
          if (text === "") continue;
          wroteAtMs = clock.now();
          controller.enqueue(encoder.encode(text));
          return;
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}
