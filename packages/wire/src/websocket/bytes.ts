/** Below this a byte loop is faster than creating a view of words. */
const WORDS_FROM_BYTES = 128;
/** Pieces from this size on are kept as they arrived; smaller ones are copied together. */
const KEEP_FROM_BYTES = 4 * 1024;
const BLOCK_BYTES_MIN = 1024;
const BLOCK_BYTES_MAX = 64 * 1024;

/** The mask for what follows `count` bytes; its lowest byte applies to the next byte. */
export function rotateMask(mask: number, count: number): number {
  const bits = (count & 3) * 8;
  return bits === 0 ? mask : (mask >>> bits) | (mask << (32 - bits));
}

/** Unmasks in place. The mask's lowest byte applies to the first byte. */
export function unmask(bytes: Buffer, mask: number): void {
  let rest = mask;
  let at = 0;
  if (bytes.length >= WORDS_FROM_BYTES) {
    // Words must be aligned in memory, so the mask is rotated to match.
    const leading = -bytes.byteOffset & 3;
    for (; at < leading; at++) bytes[at] = bytes[at]! ^ (rest >>> (at * 8));
    rest = rotateMask(rest, leading);
    // Little-endian, like every machine that Bun runs on.
    const words = new Int32Array(bytes.buffer, bytes.byteOffset + at, (bytes.length - at) >>> 2);
    const count = words.length;
    for (let word = 0; word < count; word++) words[word] = words[word]! ^ rest;
    at += count * 4;
  }
  const end = bytes.length;
  for (; at < end; at++) {
    bytes[at] = bytes[at]! ^ rest;
    rest = (rest >>> 8) | (rest << 24);
  }
}

/**
 * Pieces of one payload, joined once at the end. Uses at most about twice the payload's bytes, however small the
 * pieces are and whatever else arrived in the same reads.
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
