/** Takes secrets out of what engines write before it leaves the machine. */

const HIDDEN = "[hidden]";
/** Shorter values would be found in ordinary words. */
const SECRET_CHARS_MIN = 6;

const NAMED = "(?:api[-_]?key|token|secret|passw(?:or)?d|credential)";
/** Neither a number, such as the id of a token, nor what was hidden before. */
const VALUE = String.raw`(?!\[hidden\]|\d+\b)\[?["']?)[^\s"',;\]})]{8,}`;

/** Tokens that are known by their form, and values that follow a name such as `api_key`. */
const PATTERNS: readonly [RegExp, string][] = [
  [/\b(hf|sk|gh[opsu]|glpat|xox[abp]|agent)[-_][A-Za-z0-9_-]{16,}/g, HIDDEN],
  [/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}/g, `$1 ${HIDDEN}`],
  [/(:\/\/)[^\s/@:]*:[^\s/@]+@/g, `$1${HIDDEN}@`],
  [new RegExp(String.raw`(${NAMED}["']?\s*[=:]\s*${VALUE}`, "gi"), `$1${HIDDEN}`],
  [new RegExp(String.raw`(--[\w-]*${NAMED}\s+${VALUE}`, "gi"), `$1${HIDDEN}`],
];

/** Values of environment variables whose names say that they are secret. */
export const secretsIn = (env: Record<string, string | undefined>): string[] =>
  Object.entries(env).flatMap(([name, value]) =>
    value && /key|token|secret|passw|credential/i.test(name) ? value : [],
  );

export function withoutSecrets(text: string, secrets: Iterable<string>): string {
  let shown = text;
  for (const secret of secrets)
    if (secret.length >= SECRET_CHARS_MIN) shown = shown.replaceAll(secret, HIDDEN);
  for (const [pattern, by] of PATTERNS) shown = shown.replace(pattern, by);
  return shown;
}
