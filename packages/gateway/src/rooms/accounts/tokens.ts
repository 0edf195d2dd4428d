import { errors, jwtVerify, SignJWT } from "jose";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { SignedIn } from "../../kernel/context.ts";
import type { Needs } from "../foundation.ts";

export const ACCESS_TOKEN_SECONDS = 15 * 60;
const ISSUER = "model-gateway";
const ALGORITHM = "HS256";
/** Our tokens are never longer; refusing longer ones early bounds the work of a hostile header. */
const TOKEN_LENGTH_MAX = 2_048;

/** Who a token was issued to, and in which session. */
export type TokenHolder = Required<SignedIn>;

/** A token's id begins with that of its session. */
const SESSION_END = ".";

export class AccessTokens {
  /** Verified tokens are remembered until they expire, so that a busy caller's signature is checked once. */
  readonly #verified = new BoundedMap<string, TokenHolder & { expiresAtMs: number }>();

  constructor(readonly options: Needs<"jwtSecret" | "clock" | "ids">) {}

  issue({ userId, sessionId }: TokenHolder): Promise<string> {
    const { jwtSecret, clock, ids } = this.options;
    const iat = Math.floor(clock.now() / 1000);
    const jti = `${sessionId}${SESSION_END}${ids.uuid()}`;
    const claims = { sub: userId, iss: ISSUER, iat, exp: iat + ACCESS_TOKEN_SECONDS, jti };
    return new SignJWT(claims).setProtectedHeader({ alg: ALGORITHM, typ: "JWT" }).sign(jwtSecret);
  }

  /** The holder of a token that was verified before and is still valid; null: not known. */
  remembered(token: string): TokenHolder | null {
    const known = this.#verified.get(token);
    return known && known.expiresAtMs > this.options.clock.now() ? known : null;
  }

  /** The holder; `expired` for an expired token of ours, `foreign` for anything else. */
  async verify(token: string): Promise<TokenHolder | "expired" | "foreign"> {
    if (token.length > TOKEN_LENGTH_MAX) return "foreign";
    const { jwtSecret, clock } = this.options;
    try {
      const { payload } = await jwtVerify(token, jwtSecret, {
        algorithms: [ALGORITHM],
        issuer: ISSUER,
        requiredClaims: ["sub", "iat", "exp", "jti"],
        currentDate: new Date(clock.now()),
      });
      const holder = {
        userId: payload.sub!,
        sessionId: payload.jti!.split(SESSION_END)[0]!,
        expiresAtMs: payload.exp! * 1000,
      };
      this.#verified.set(token, holder);
      return holder;
    } catch (error) {
      this.#verified.delete(token);
      // The signature was valid; only the time is over.
      return error instanceof errors.JWTExpired ? "expired" : "foreign";
    }
  }
}
