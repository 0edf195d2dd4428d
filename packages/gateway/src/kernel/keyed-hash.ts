/** Uses Bun's own hasher, because node:crypto takes several milliseconds to load. */

const HASH_BYTES = 32;
const FIRST_BLOCK = Uint8Array.of(1);

export const hmacSha256 = (key: Uint8Array, text: string): Buffer =>
  new Bun.CryptoHasher("sha256", key).update(text).digest();

/** A separate key for one purpose (HKDF-SHA256, RFC 5869, without salt, one block) that reveals nothing about `secret`. */
export function derivedKey(secret: Uint8Array, purpose: string): Uint8Array {
  const extracted = new Bun.CryptoHasher("sha256", new Uint8Array(HASH_BYTES)).update(secret).digest();
  const expanded = new Bun.CryptoHasher("sha256", extracted).update(purpose).update(FIRST_BLOCK).digest();
  return Uint8Array.from(expanded);
}
