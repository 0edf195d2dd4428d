/** Below this a byte loop is faster than creating a view of words. */
const WORDS_FROM_BYTES = 128;

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
