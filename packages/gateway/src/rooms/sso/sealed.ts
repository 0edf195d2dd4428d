import { EncryptJWT, jwtDecrypt } from "jose";
import type { z } from "zod";
import { derivedKey } from "../../kernel/keyed-hash.ts";
import type { Needs } from "../foundation.ts";

const SEALED_LENGTH_MAX = 4_000;

interface SealedOptions<T> extends Needs<"jwtSecret" | "clock"> {
  schema: z.ZodType<T>;
  /** Data sealed for one purpose cannot be opened for another. */
  purpose: string;
  seconds: number;
}

/** Encrypted data that a browser carries, so that no instance has to remember it. */
export class Sealed<T extends Record<string, unknown>> {
  readonly #key: Uint8Array;

  constructor(readonly options: SealedOptions<T>) {
    this.#key = derivedKey(options.jwtSecret, options.purpose);
  }

  seal(value: T): Promise<string> {
    const { clock, seconds } = this.options;
    return new EncryptJWT({ ...value })
      .setProtectedHeader({ alg: "dir", enc: "A256GCM" })
      .setExpirationTime(Math.floor(clock.now() / 1000) + seconds)
      .encrypt(this.#key);
  }

  async open(sealed: string | null): Promise<T | null> {
    if (sealed === null || sealed.length > SEALED_LENGTH_MAX) return null;
    try {
      const { payload } = await jwtDecrypt(sealed, this.#key, {
        keyManagementAlgorithms: ["dir"],
        contentEncryptionAlgorithms: ["A256GCM"],
        requiredClaims: ["exp"],
        currentDate: new Date(this.options.clock.now()),
      });
      return this.options.schema.parse(payload);
    } catch {
      return null;
    }
  }
}
