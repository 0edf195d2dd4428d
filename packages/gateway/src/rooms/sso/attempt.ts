import { EncryptJWT, jwtDecrypt } from "jose";
import { z } from "zod";
import type { Clock } from "../../kernel/clock.ts";
import { derivedKey } from "../../kernel/keyed-hash.ts";

/** How long someone may take at the provider. */
export const ATTEMPT_SECONDS = 600;
const SEALED_LENGTH_MAX = 4_000;

const Attempt = z.object({
  id: z.string(),
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
  /** Links the provider's account to this one instead of signing in. */
  linksTo: z.string().optional(),
  setupToken: z.string().optional(),
  /** An invitation of this service, or to a group: it lets a newcomer in. */
  invitation: z.string().optional(),
});

/** One sign-in on its way to the provider and back. */
export type Attempt = z.infer<typeof Attempt>;

/**
 * Attempts travel sealed in a cookie of the browser that began them. No instance has to remember them, so any
 * instance can finish one, and a flood of them fills nothing.
 */
export class Attempts {
  readonly #key: Uint8Array;

  constructor(
    secret: Uint8Array,
    readonly clock: Clock,
  ) {
    this.#key = derivedKey(secret, "sign-in attempts");
  }

  seal(attempt: Attempt): Promise<string> {
    const nowSeconds = Math.floor(this.clock.now() / 1000);
    return new EncryptJWT({ ...attempt })
      .setProtectedHeader({ alg: "dir", enc: "A256GCM" })
      .setExpirationTime(nowSeconds + ATTEMPT_SECONDS)
      .encrypt(this.#key);
  }

  /** Null when it was not sealed here, was changed, or is too old. */
  async open(sealed: string | null): Promise<Attempt | null> {
    if (sealed === null || sealed.length > SEALED_LENGTH_MAX) return null;
    try {
      const { payload } = await jwtDecrypt(sealed, this.#key, {
        keyManagementAlgorithms: ["dir"],
        contentEncryptionAlgorithms: ["A256GCM"],
        requiredClaims: ["exp"],
        currentDate: new Date(this.clock.now()),
      });
      return Attempt.parse(payload);
    } catch {
      return null;
    }
  }
}
