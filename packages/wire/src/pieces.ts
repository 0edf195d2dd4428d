/** Pieces from this size on are kept as they arrived; smaller ones are copied together. */
const KEEP_FROM_BYTES = 4 * 1024;
const BLOCK_BYTES_MIN = 1024;
const BLOCK_BYTES_MAX = 64 * 1024;

/**
 * A part of what a read brought. A small one is copied: for a view, the runtime first moves all the bytes of a small
 * read into an `ArrayBuffer` object, which costs more than the copy, and the view then keeps the whole read alive.
 */
export function partOf(bytes: Buffer, from: number, to: number): Buffer {
  if (to - from >= KEEP_FROM_BYTES) return bytes.subarray(from, to);
  const part = Buffer.allocUnsafeSlow(to - from);
  bytes.copy(part, 0, from, to);
  return part;
}

/**
 * Pieces of one body or message, joined once at the end. Uses at most about twice their bytes, however small they are
 * and whatever else arrived in the same reads.
 */
export class Pieces {
  readonly #list: Buffer[] = [];
  /** The free part of the block that small pieces are copied into, and how much of it is in use. */
  #block: Buffer | null = null;
  #blockUsedBytes = 0;
  bytes = 0;

  add(piece: Buffer): void {
    this.bytes += piece.length;
    // A view keeps the whole read alive, so it must be most of it.
    if (piece.length >= KEEP_FROM_BYTES && piece.length * 2 >= piece.buffer.byteLength) {
      this.#seal();
      this.#list.push(piece);
    } else this.#copy(piece);
  }

  join(): Buffer {
    this.#seal();
    return this.#list.length === 1 ? this.#list[0]! : Buffer.concat(this.#list, this.bytes);
  }

  #copy(piece: Buffer): void {
    let at = 0;
    while (at < piece.length) {
      if (this.#block === null || this.#blockUsedBytes === this.#block.length) {
        this.#seal();
        const roomBytes = Math.min(Math.max(this.bytes, BLOCK_BYTES_MIN), BLOCK_BYTES_MAX);
        this.#block = Buffer.allocUnsafe(roomBytes);
      }
      const copiedBytes = piece.copy(this.#block, this.#blockUsedBytes, at);
      this.#blockUsedBytes += copiedBytes;
      at += copiedBytes;
    }
  }

  /** Adds the copied pieces to the list; the rest of their block is for the next ones. */
  #seal(): void {
    if (this.#block === null || this.#blockUsedBytes === 0) return;
    this.#list.push(this.#block.subarray(0, this.#blockUsedBytes));
    this.#block = this.#block.subarray(this.#blockUsedBytes);
    this.#blockUsedBytes = 0;
  }
}
