import { isObject, textOf } from "../../kernel/json.ts";

/** The provider's claims about a person, from the ID token and the userinfo endpoint. */
export type Claims = Readonly<Record<string, unknown>>;

export interface ClaimRule {
  claim: string;
  value: string;
}

const VALUES_MAX = 200;
const VALUE_LENGTH_MAX = 256;
const NAME_LENGTH_MAX = 80;
const EMAIL_LENGTH_MAX = 254;
/** In lower case the Kelvin sign and the dotted I become plain letters, perhaps of someone else's address. */
const FOLDS_TO_ASCII = /[\u212a\u0130]/;
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/;

const own = (claims: Claims, name: string): unknown =>
  Object.hasOwn(claims, name) ? claims[name] : undefined;

/** By its full name, which may contain dots like Auth0's URLs, or by a path such as `realm_access.roles`. */
function claimAt(claims: Claims, path: string): unknown {
  const whole = own(claims, path);
  if (whole !== undefined) return whole;
  let value: unknown = claims;
  for (const name of path.split(".")) value = isObject(value) ? own(value, name) : undefined;
  return value;
}

/** The claim's values: a list, or one string. Other values are ignored. */
export function valuesOf(claims: Claims, path: string): string[] {
  const value = claimAt(claims, path);
  const values = Array.isArray(value) ? value : [value];
  return values.filter((item) => textOf(item) !== "" && item.length <= VALUE_LENGTH_MAX).slice(0, VALUES_MAX);
}

/** A claim that is `true` matches the value "true". */
export function hasRight(claims: Claims, { claim, value }: ClaimRule): boolean {
  return valuesOf(claims, claim).includes(value) || (value === "true" && claimAt(claims, claim) === true);
}

/** In lower case, as accounts have it; null: missing or malformed. */
export function emailOf(claims: Claims): string | null {
  const { email } = claims;
  if (typeof email !== "string" || FOLDS_TO_ASCII.test(email)) return null;
  const text = email.trim().toLowerCase();
  return text.length <= EMAIL_LENGTH_MAX && EMAIL.test(text) ? text : null;
}

/** Some providers write the boolean as text. */
export const isEmailVerified = ({ email_verified }: Claims): boolean =>
  email_verified === true || email_verified === "true";

export function nameOf(claims: Claims): string | undefined {
  const texts = [claims.name, claims.preferred_username].map((value) => textOf(value).trim());
  return texts.find((text) => text !== "")?.slice(0, NAME_LENGTH_MAX);
}
