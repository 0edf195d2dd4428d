/** The metadata at the beginning of a GGUF file. */

/** Bytes per value of each type with a fixed size, by the type's number. */
const FIXED_BYTES: Readonly<Record<number, number>> = {
  ...{ 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 },
};
const STRING = 8;
const ARRAY = 9;

export type GgufValue = number | string | number[];

/** As much as the bytes hold: a file's beginning ends somewhere in the tokenizer's words, which nobody needs. */
export function readGguf(bytes: Uint8Array): Map<string, GgufValue> {
  const found = new Map<string, GgufValue>();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (count: number): number => {
    const from = at;
    at += count;
    if (at > bytes.byteLength) throw new RangeError("the rest is not here");
    return from;
  };
  const u32 = () => view.getUint32(take(4), true);
  const u64 = () => Number(view.getBigUint64(take(8), true));
  const text = () => {
    const length = u64();
    const from = take(length);
    return new TextDecoder().decode(bytes.subarray(from, from + length));
  };
  const fixed = (type: number): number => {
    const size = FIXED_BYTES[type];
    if (size === undefined) throw new RangeError(`a value of unknown type ${type}`);
    const from = take(size);
    if (type === 6) return view.getFloat32(from, true);
    if (type === 12) return view.getFloat64(from, true);
    if (size === 8) return Number(view.getBigInt64(from, true));
    return size === 4 ? view.getUint32(from, true) : size === 2 ? view.getUint16(from, true) : bytes[from]!;
  };
  const value = (type: number): GgufValue => {
    if (type === STRING) return text();
    if (type !== ARRAY) return fixed(type);
    const each = u32();
    const length = u64();
    const values: number[] = [];
    for (let index = 0; index < length; index++) {
      const item = value(each);
      if (typeof item === "number") values.push(item);
    }
    return values;
  };
  try {
    if (new TextDecoder().decode(bytes.subarray(take(4), 4)) !== "GGUF") return found;
    u32();
    u64();
    for (let left = u64(); left > 0; left--) {
      const name = text();
      found.set(name, value(u32()));
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return found;
}
