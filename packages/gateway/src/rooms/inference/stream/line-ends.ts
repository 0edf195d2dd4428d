const BYTE_ORDER_MARK = Buffer.from("\ufeff");
const CR = 13;
const LF = 10;
const CARRIAGE_RETURN = Uint8Array.of(CR);

/**
 * An event stream with lines that end in LF or CRLF, without a byte order mark: a stream may begin with one, and a line
 * may end in CR alone. Almost no server does either, and the bytes of others pass as they are.
 */
export class LineEnds {
  /** What may be the beginning of a byte order mark; null once the stream has begun. */
  #opening: Uint8Array | null = new Uint8Array();
  /** The last piece ended with a CR, which the next one may complete. */
  #heldCr = false;

  /** Takes a piece and returns what is known of it. */
  feed(bytes: Uint8Array): Uint8Array {
    const begun = this.#opening === null ? bytes : this.#begin(Buffer.concat([this.#opening, bytes]));
    if (!this.#heldCr && begun.indexOf(CR) === -1) return begun;
    return this.#withLineFeeds(this.#heldCr ? Buffer.concat([CARRIAGE_RETURN, begun]) : begun);
  }

  /** The stream has ended: what was held back. */
  end(): Uint8Array {
    const rest = this.#opening ?? new Uint8Array();
    this.#opening = null;
    return this.#heldCr ? Uint8Array.of(LF) : rest;
  }

  #begin(bytes: Buffer): Uint8Array {
    const length = Math.min(bytes.length, BYTE_ORDER_MARK.length);
    const mayBeMark = bytes.subarray(0, length).equals(BYTE_ORDER_MARK.subarray(0, length));
    const isWhole = length === BYTE_ORDER_MARK.length;
    this.#opening = mayBeMark && !isWhole ? bytes : null;
    if (!mayBeMark) return bytes;
    return bytes.subarray(isWhole ? BYTE_ORDER_MARK.length : bytes.length);
  }

  #withLineFeeds(bytes: Uint8Array): Uint8Array {
    this.#heldCr = bytes.at(-1) === CR;
    const known = this.#heldCr ? bytes.subarray(0, -1) : bytes;
    let changed: Uint8Array | null = null;
    for (let at = known.indexOf(CR); at !== -1; at = known.indexOf(CR, at + 1)) {
      if (known[at + 1] === LF) continue;
      changed ??= Uint8Array.from(known);
      changed[at] = LF;
    }
    return changed ?? known;
  }
}
