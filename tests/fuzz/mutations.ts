import { Seeded } from "@model-gateway/testing/seeded.ts";

/** The same seed makes the same inputs. */
export class Chance extends Seeded {
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  of<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }
}

const BYTES_MAX = 4 * 1024;
const CHANGES_MAX = 6;
/** Bytes that formats give a meaning to. */
const TELLING = [
  0, 9, 10, 13, 32, 34, 44, 45, 47, 58, 59, 61, 91, 92, 93, 123, 125, 127, 128, 0xc3, 0xef, 0xff,
];

type Change = (bytes: Buffer, chance: Chance, words: readonly Buffer[]) => Buffer;

const spliced = (bytes: Buffer, at: number, removed: number, added: Uint8Array): Buffer =>
  Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + removed)]);

/** A place where something may begin: after a byte that means something. */
function boundaryIn(bytes: Buffer, chance: Chance): number {
  const from = chance.below(bytes.length + 1);
  const at = bytes.findIndex((byte, index) => index >= from && TELLING.includes(byte));
  return at === -1 ? from : at + 1;
}

const CHANGES: readonly Change[] = [
  // Another byte, one that means something, one bit.
  (bytes, chance) => spliced(bytes, chance.below(bytes.length), 1, Uint8Array.of(chance.below(256))),
  (bytes, chance) => spliced(bytes, chance.below(bytes.length), 1, Uint8Array.of(chance.of(TELLING))),
  (bytes, chance) => {
    const at = chance.below(bytes.length);
    return spliced(bytes, at, 1, Uint8Array.of((bytes[at] ?? 0) ^ (1 << chance.below(8))));
  },
  (bytes, chance) => spliced(bytes, chance.below(bytes.length + 1), 0, Uint8Array.of(chance.of(TELLING))),
  // Less, more of the same, a word of the format.
  (bytes, chance) => spliced(bytes, chance.below(bytes.length), 1 + chance.below(8), Buffer.alloc(0)),
  (bytes, chance) => bytes.subarray(0, chance.below(bytes.length)),
  (bytes, chance) => {
    const from = chance.below(bytes.length);
    const piece = bytes.subarray(from, from + 1 + chance.below(32));
    return spliced(bytes, chance.below(bytes.length + 1), 0, piece);
  },
  (bytes, chance, words) => spliced(bytes, chance.below(bytes.length + 1), 0, chance.of(words)),
  (bytes, chance, words) => spliced(bytes, boundaryIn(bytes, chance), 0, chance.of(words)),
  (bytes, chance, words) => {
    const word = chance.of(words);
    return spliced(bytes, chance.below(bytes.length + 1), word.length, word);
  },
];

export function mutated(seed: Buffer, chance: Chance, words: readonly Buffer[]): Buffer {
  let bytes = seed;
  // Mostly one: what is changed all over is refused at the first look.
  const changes = chance.below(3) === 0 ? 1 + chance.below(CHANGES_MAX) : 1;
  for (let left = changes; left > 0; left--) {
    bytes = chance.of(CHANGES)(bytes, chance, words).subarray(0, BYTES_MAX);
    if (bytes.length === 0) bytes = Buffer.from(chance.of(words));
  }
  return bytes;
}

/** The same bytes in pieces, as a network may deliver them. */
export function inPieces(bytes: Buffer, chance: Chance): Buffer[] {
  const pieces: Buffer[] = [];
  const most = chance.of([1, 2, 7, 64, 1_024]);
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + 1 + chance.below(most));
    pieces.push(Buffer.from(bytes.subarray(at, end)));
    at = end;
  }
  return pieces;
}

/** A smaller input that still fails: halves, quarters and so on are left out while it does. */
export async function reduced(bytes: Buffer, fails: (bytes: Buffer) => Promise<boolean>): Promise<Buffer> {
  let best = bytes;
  for (let size = Math.ceil(best.length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < best.length; ) {
      const smaller = spliced(best, at, size, Buffer.alloc(0));
      if (smaller.length > 0 && (await fails(smaller))) best = smaller;
      else at += size;
    }
  }
  return best;
}
