import {
  isEventStream,
  Reply,
  type ReplyHead,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "./reply.ts";

const FRAMING_HEADERS = ["connection", "content-length", "date", "keep-alive", "transfer-encoding"];

/** A web `Response` as a reply: event streams are streamed, anything else is sent whole. */
export function replyOf(response: Response): StreamedReply | Promise<Reply> {
  const headers = Object.fromEntries(response.headers);
  const contentType = take(headers, "content-type");
  const requestId = take(headers, "x-request-id");
  // The connection decides how the body is framed.
  for (const name of FRAMING_HEADERS) delete headers[name];
  const head: ReplyHead = { status: response.status, contentType, requestId, headers };
  if (response.body && isEventStream(contentType))
    return new StreamedReply(head, new WebSource(response.body));
  return response.bytes().then((body) => new Reply(head, body));
}

function take(headers: Record<string, string>, name: string): string {
  const value = headers[name] ?? "";
  delete headers[name];
  return value;
}

/** Reads a web stream at the client's pace. */
export class WebSource implements ReplySource {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #wake: (() => void) | null = null;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  begin(writer: ReplyWriter): void {
    this.#pump(writer).catch(() => writer.terminate());
  }

  async #pump(writer: ReplyWriter): Promise<void> {
    for (;;) {
      const { done, value } = await this.#reader.read();
      if (done) break;
      if (!writer.write(value)) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
    writer.end();
  }

  drained(): void {
    this.#wake?.();
    this.#wake = null;
  }

  left(): void {
    void this.#reader.cancel().catch(() => {});
    this.drained();
  }
}
