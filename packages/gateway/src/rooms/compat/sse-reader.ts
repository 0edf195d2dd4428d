import { fail } from "../../kernel/errors.ts";

/** One image in one chunk is several megabytes of base64. */
const EVENT_CHARS_MAX = 32 * 1024 * 1024;
const LINE_END = /\r\n|\n|\r/g;

/** The data of one event, or a comment, which says only that the connection lives. */
export type SseItem = { data: string } | { data: null };
const COMMENT: SseItem = { data: null };

/** Reads server-sent events from bytes that may be cut anywhere, even inside a character. */
export class SseReader {
  readonly #decoder = new TextDecoder();
  #line = "";
  #data: string[] = [];
  #size = 0;
  /** The last text ended in CR; an LF that comes next belongs to it. */
  #endedInCr = false;

  feed(bytes: Uint8Array): SseItem[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  /** What the stream still held when it ended; a last event may lack its blank line. */
  end(): SseItem[] {
    return this.#take(`${this.#decoder.decode()}\n\n`);
  }

  #take(text: string): SseItem[] {
    const items: SseItem[] = [];
    if (text === "") return items;
    let start = this.#endedInCr && text.startsWith("\n") ? 1 : 0;
    this.#endedInCr = text.endsWith("\r");
    LINE_END.lastIndex = start;
    for (let match = LINE_END.exec(text); match; match = LINE_END.exec(text)) {
      const item = this.#endLine(this.#line + text.slice(start, match.index));
      if (item) items.push(item);
      this.#line = "";
      start = match.index + match[0].length;
    }
    this.#line += text.slice(start);
    if (this.#size + this.#line.length > EVENT_CHARS_MAX) {
      fail("bad_gateway", `The upstream sent an event of more than ${EVENT_CHARS_MAX} characters`);
    }
    return items;
  }

  #endLine(line: string): SseItem | null {
    if (line === "") {
      if (this.#data.length === 0) return null;
      const data = this.#data.join("\n");
      this.#data = [];
      this.#size = 0;
      return { data };
    }
    if (line.startsWith(":")) return COMMENT;
    if (!line.startsWith("data:")) return null;
    const value = line.slice(line.charCodeAt(5) === 32 ? 6 : 5);
    this.#data.push(value);
    this.#size += value.length;
    return null;
  }
}
