import { isObject } from "../../kernel/json.ts";

/** The provider's claims about a person, from the ID token and the userinfo endpoint. */
export type Claims = Readonly<Record<string, unknown>>;

/** A claim and the value in it that gives a right. */
export interface ClaimRule {
  claim: string;
  value: string;
}

const VALUES_MAX = 200;
const VALUE_LENGTH_MAX = 256;
const NAME_LENGTH_MAX = 80;
const EMAIL_LENGTH_MAX = 254;
/** The Kelvin sign and the dotted I become plain letters in lower case, and so could become someone else's address. */
const FOLDS_TO_ASCII = /[\u212a\u0130]/;
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/;

const own = (claims: Claims, name: string): unknown =>
  Object.hasOwn(claims, name) ? claims[name] : undefined;

/** Found by its full name, or by a path such as `realm_access.roles`. Names may contain dots, as Auth0's URLs do. */
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
  return values
    .filter(
      (item): item is string => typeof item === "string" && item !== "" && item.length <= VALUE_LENGTH_MAX,
    )
    .slice(0, VALUES_MAX);
}

/** Providers send booleans as such; a claim that is `true` matches the value "true". */
export function hasRight(claims: Claims, { claim, value }: ClaimRule): boolean {
  return valuesOf(claims, claim).includes(value) || (value === "true" && claimAt(claims, claim) === true);
}

/** The email in lower case, as accounts have it; null if it is missing or malformed. */
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
  for (const value of [claims.name, claims.preferred_username]) {
    const text = typeof value === "string" ? value.trim().slice(0, NAME_LENGTH_MAX) : "";
    if (text !== "") return text;
  }
  return undefined;
}
