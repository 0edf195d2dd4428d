/** An event larger than this is not ours; the stream is closed instead of buffering without limit. */
const EVENT_LENGTH_MAX = 16 * 1024 * 1024;

export interface ServerSentEvent {
  data: string;
  /** The last id of the stream so far; null when there was none. */
  lastId: string | null;
}

/** The `data` of each server-sent event of a byte stream. */
export async function* sseData(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  for await (const { data } of sseEvents(body)) if (data !== "") yield data;
}

/**
 * The server-sent events of a byte stream; one without data only brings an id. Characters and line ends may be cut
 * anywhere between chunks. Ends when the stream does; leaving early cancels it.
 */
export async function* sseEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerSentEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  let lastId: string | null = null;
  let isNewId = false;
  try {
    while (true) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      if (rest.length > EVENT_LENGTH_MAX) throw new Error("an event of the stream is too large");
      // A lone CR at the very end may be the first half of CRLF.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line.startsWith("id:")) {
          lastId = line.slice(line[3] === " " ? 4 : 3);
          isNewId = true;
        } else if (line === "" && (data.length > 0 || isNewId)) {
          yield { data: data.join("\n"), lastId };
          data = [];
          isNewId = false;
        }
      }
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
