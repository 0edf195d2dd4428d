/** Removes secrets, above all upstreams' keys, from texts of upstreams: one may repeat its key, even encoded. */

/** Shorter ones would match ordinary words. */
const SECRET_CHARS_MIN = 4;
const HIDDEN_CHARS_MIN = 8;
/** How much of a text is searched for encoded secrets, and how many nested encodings are undone. */
const SEARCHED_CHARS_MAX = 64 * 1024;
const LAYERS_MAX = 3;
const CODE_POINT_MAX = 0x10ffff;

const REDACTED = "[redacted]";
const WITHHELD = "[redacted: the upstream's words contain its key]";

const kept = new Map<string, number>();

/** Hides the secret in texts of upstreams until the returned function is called, when the backend that uses it is removed. */
export function keepSecret(secret: string | null | undefined, charsMin = SECRET_CHARS_MIN): () => void {
  // Some vendors' keys have two parts, separated by a colon, that are used separately.
  const parts = new Set([secret ?? "", ...(secret ?? "").split(":")]);
  const long = [...parts].filter((part) => part.length >= charsMin);
  const count = (by: number) => {
    for (const part of long) {
      const keepers = (kept.get(part) ?? 0) + by;
      if (keepers > 0) kept.set(part, keepers);
      else kept.delete(part);
    }
  };
  count(1);
  return () => count(-1);
}

/** An upstream's text with secrets redacted; withheld as a whole if it contains an encoded one. */
export function hideSecrets(text: string): string {
  if (kept.size === 0 || text === "") return text;
  let shown = text;
  for (const secret of kept.keys()) shown = shown.replaceAll(secret, REDACTED);
  return isAnyIn(shown.slice(0, SEARCHED_CHARS_MAX), LAYERS_MAX) ? WITHHELD : shown;
}

export function hideSecretsIn<T>(value: T): T {
  if (typeof value === "string") return hideSecrets(value) as T;
  if (Array.isArray(value)) return value.map(hideSecretsIn) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [hideSecrets(key), hideSecretsIn(item)]),
  ) as T;
}

function isAnyIn(text: string, layers: number): boolean {
  const plain = text.replace(/\s+/g, "").toLowerCase();
  const isHidden = (secret: string) =>
    secret.length >= HIDDEN_CHARS_MIN && plain.includes(secret.toLowerCase());
  if (kept.keys().some(isHidden)) return true;
  return layers > 0 && decodings(text).some((decoded) => isAnyIn(decoded, layers - 1));
}

/** The text, and runs of it, decoded in every way that changes it. */
function decodings(text: string): string[] {
  const runs = (pattern: RegExp, decode: (run: string) => string) =>
    [...text.matchAll(pattern)].map(([run]) => decode(run)).join("\n");
  const decoded = new Set([
    unescaped(text),
    // Encoded texts are often broken into lines.
    text.replace(/\s+/g, ""),
    runs(/(?:(?:0x)?[0-9a-f]{2}[\s:,-]{0,3}){8,}/gi, fromHex),
    runs(/(?:\d{1,3}[\s,;]{1,3}){7,}\d{1,3}/g, fromNumbers),
    runs(/[\w+/-]{10,}/g, fromBase64),
  ]);
  decoded.delete(text);
  decoded.delete("");
  return [...decoded];
}

/** Escaped characters of URLs, programming languages, HTML and mail. */
const ESCAPED =
  /%([0-9a-f]{2})|\\u\{?([0-9a-f]{4,6})\}?|\\x([0-9a-f]{2})|\\([0-7]{2,3})|\\(.)|&#x([0-9a-f]{1,6});|&#(\d{1,7});|=([0-9a-f]{2})/gi;

function unescaped(text: string): string {
  return text.replace(ESCAPED, (whole, percent, long, short, octal, itself, hex, decimal, mail) => {
    if (itself !== undefined) return /[bfnrt]/.test(itself) ? " " : itself;
    const code =
      octal !== undefined ? Number.parseInt(octal, 8) : decimal !== undefined ? Number(decimal) : null;
    const point = code ?? Number.parseInt(percent ?? long ?? short ?? hex ?? mail, 16);
    return point <= CODE_POINT_MAX ? String.fromCodePoint(point) : whole;
  });
}

const fromHex = (run: string): string =>
  Buffer.from(run.replace(/0x|[^0-9a-f]/gi, ""), "hex").toString("latin1");
const fromNumbers = (run: string): string => Buffer.from(run.match(/\d+/g)!.map(Number)).toString("latin1");

/** Decoded from each of the four possible positions of a group, because a run may start before the encoded part. */
const fromBase64 = (run: string): string =>
  [0, 1, 2, 3].map((from) => Buffer.from(run.slice(from), "base64").toString("latin1")).join("\n");
