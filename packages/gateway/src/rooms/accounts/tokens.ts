import { jwtVerify, SignJWT } from "jose";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";

export const ACCESS_TOKEN_SECONDS = 15 * 60;
const ISSUER = "model-gateway";
const ALGORITHM = "HS256";
/** Verified tokens are remembered until they expire, so that a busy caller's signature is checked once. */
const VERIFIED_MAX = 10_000;
/** Longer ones are not ours; refusing them early bounds the work of a hostile header. */
const TOKEN_LENGTH_MAX = 2_048;

export interface AccessTokens {
  issue(userId: string): Promise<string>;
  /** The user id of a token that was verified before and is still valid; null says nothing. */
  remembered(token: string): string | null;
  /** The user id, or null for anything that is not a valid token of ours. */
  verify(token: string): string | null | Promise<string | null>;
}

export function createAccessTokens({
  secret,
  clock,
  ids,
}: {
  secret: Uint8Array;
  clock: Clock;
  ids: Ids;
}): AccessTokens {
  const verified = new BoundedMap<string, { userId: string; expiresAtMs: number }>(VERIFIED_MAX);

  async function check(token: string): Promise<string | null> {
    try {
      const { payload } = await jwtVerify(token, secret, {
        algorithms: [ALGORITHM],
        issuer: ISSUER,
        requiredClaims: ["sub", "iat", "exp", "jti"],
        currentDate: new Date(clock.now()),
      });
      verified.set(token, { userId: payload.sub!, expiresAtMs: payload.exp! * 1000 });
      return payload.sub!;
    } catch {
      return null;
    }
  }

  return {
    issue(userId) {
      const nowSeconds = Math.floor(clock.now() / 1000);
      return new SignJWT()
        .setProtectedHeader({ alg: ALGORITHM, typ: "JWT" })
        .setSubject(userId)
        .setIssuer(ISSUER)
        .setIssuedAt(nowSeconds)
        .setExpirationTime(nowSeconds + ACCESS_TOKEN_SECONDS)
        .setJti(ids.uuid())
        .sign(secret);
    },
    remembered(token) {
      const known = verified.get(token);
      return known && known.expiresAtMs > clock.now() ? known.userId : null;
    },
    verify(token) {
      if (token.length > TOKEN_LENGTH_MAX) return null;
      const known = verified.get(token);
      if (!known) return check(token);
      if (known.expiresAtMs > clock.now()) return known.userId;
      verified.delete(token);
      return null;
    },
  };
}
