export interface Ids {
  uuid(): string;
  /** A time-ordered UUID, for keys of large tables. Not a secret: it can be guessed from the time. */
  ordered(): string;
  /** Random bytes as base64url: for secrets that a person copies. */
  secret(byteCount: number): string;
}

export const randomIds: Ids = {
  uuid: () => crypto.randomUUID(),
  ordered: () => Bun.randomUUIDv7(),
  secret: (byteCount) =>
    crypto.getRandomValues(new Uint8Array(byteCount)).toBase64({ alphabet: "base64url", omitPadding: true }),
};

/** Clients match a tool's result to its call by id, so a call that the upstream gave no id gets one here. */
export const newCallId = (): string => `call_${crypto.randomUUID().replaceAll("-", "").slice(0, 24)}`;

/** Whether it came from `ordered`, so that `timeOfId` can read it. */
export const isOrderedId = (id: string): boolean => id[14] === "7";

export const isUuid = (text: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

export const sha256Hex = (text: string): string => Bun.SHA256.hash(text, "hex");

export function constantTimeEqual(a: string, b: string): boolean {
  // Digests have equal lengths, so the lengths of the texts stay secret, too.
  return crypto.timingSafeEqual(Bun.SHA256.hash(a), Bun.SHA256.hash(b));
}

const TIME_HEX_DIGITS = 12;

export const timeOfId = (id: string): number => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

/** The smallest id of that time: ids made then or later are not below it. */
export function firstIdAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(TIME_HEX_DIGITS, "0").slice(-TIME_HEX_DIGITS);
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
