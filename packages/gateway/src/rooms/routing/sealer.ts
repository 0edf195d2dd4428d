import { derivedKey } from "../../kernel/keyed-hash.ts";

export type Sealer = ReturnType<typeof createSealer>;

const CIPHER = "aes-256-gcm";
const IV_BYTES = 12;
const TAG_BYTES = 16;
const PREFIX = "sealed:v1:";

/** Loaded on first use: many services have nothing sealed. */
const ciphers = () => process.getBuiltinModule("node:crypto");

/**
 * Encrypts secrets in the database that must be read again, such as upstream keys.
 * Derives its own key, so that sealing reveals nothing about other uses of `secret`.
 */
export function createSealer(secret: Uint8Array) {
  const key = derivedKey(secret, "secrets at rest");
  return {
    /** `context` names what the secret belongs to; opening it needs the same context. */
    seal(text: string, context: string): string {
      const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
      const cipher = ciphers().createCipheriv(CIPHER, key, iv).setAAD(Buffer.from(context));
      const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
      return PREFIX + Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString("base64url");
    },
    /** Null: sealed with another key or context. A text that was never sealed is returned as it is. */
    open(text: string, context: string): string | null {
      if (!text.startsWith(PREFIX)) return text;
      const bytes = Buffer.from(text.slice(PREFIX.length), "base64url");
      try {
        const decipher = ciphers()
          .createDecipheriv(CIPHER, key, bytes.subarray(0, IV_BYTES))
          .setAAD(Buffer.from(context))
          .setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
        return Buffer.concat([
          decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)),
          decipher.final(),
        ]).toString();
      } catch {
        return null;
      }
    },
  };
}
