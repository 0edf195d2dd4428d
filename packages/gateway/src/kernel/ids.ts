/** Randomness, injected so that tests can make it repeatable. */
export interface Ids {
  uuid(): string;
  /**
   * A UUID whose order is the order of time: for what becomes the key of a row in a large table, where random
   * keys would touch another page with each row. It reveals when it was made, so it cannot be used as a secret.
   */
  ordered(): string;
  /** `byteCount` random bytes as base64url: for secrets that a person copies. */
  secret(byteCount: number): string;
}

export const randomIds: Ids = {
  uuid: () => crypto.randomUUID(),
  ordered: () => Bun.randomUUIDv7(),
  secret: (byteCount) =>
    crypto.getRandomValues(new Uint8Array(byteCount)).toBase64({ alphabet: "base64url", omitPadding: true }),
};

/** Whether `ordered` made it; ids of any other kind say nothing of their time. */
export const isOrderedId = (id: string): boolean => id[14] === "7";

export const sha256Hex = (text: string): string => Bun.SHA256.hash(text, "hex");

/** Equality whose time does not depend on where the two differ. */
export function constantTimeEqual(a: string, b: string): boolean {
  // Comparing digests makes the lengths equal without revealing which one was longer.
  return crypto.timingSafeEqual(Bun.SHA256.hash(a), Bun.SHA256.hash(b));
}

const TIME_HEX_DIGITS = 12;
const HYPHEN_AT = 8;
const [CODE_OF_0, CODE_OF_A] = [48, 97];

/** When an ordered id was made; there is one for every request, so no texts are made of its parts. */
export function timeOfId(id: string): number {
  let ms = 0;
  for (let i = 0; i <= TIME_HEX_DIGITS; i++) {
    if (i === HYPHEN_AT) continue;
    const code = id.charCodeAt(i);
    ms = ms * 16 + (code < CODE_OF_A ? code - CODE_OF_0 : code - CODE_OF_A + 10);
  }
  return ms;
}

/** The smallest id of an instant: ids of requests that came then or later are not below it. */
export function firstIdAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(TIME_HEX_DIGITS, "0").slice(-TIME_HEX_DIGITS);
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
