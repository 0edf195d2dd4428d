/**
 * Secrets that this process sends to others, above all the keys of upstreams, and their removal from texts that come
 * back from there. An upstream that refuses a key may repeat it, as it is or encoded in some way.
 */

/** Beyond this the oldest is no longer looked for. */
const SECRETS_MAX = 10_000;
/** Shorter ones would be found in ordinary words. */
const SECRET_CHARS_MIN = 4;
const HIDDEN_CHARS_MIN = 8;
/** How much of a text is searched for encoded secrets, and how many encodings around each other are undone. */
const SEARCHED_CHARS_MAX = 64 * 1024;
const LAYERS_MAX = 3;

const REDACTED = "[redacted]";
const WITHHELD = "[redacted: the upstream's words contain its key]";

const secrets = new Set<string>();

/** From now on this is taken out of what upstreams say. */
export function keepSecret(secret: string | null | undefined): void {
  // Some vendors' keys are two parts with a colon between, which are used one by one.
  for (const part of [secret ?? "", ...(secret ?? "").split(":")]) {
    if (part.length < SECRET_CHARS_MIN || secrets.has(part)) continue;
    if (secrets.size >= SECRETS_MAX) secrets.delete(secrets.values().next().value as string);
    secrets.add(part);
  }
}

/** A text of an upstream without the secrets that it was sent; one that hides them in an encoding is withheld. */
export function hideSecrets(text: string): string {
  if (secrets.size === 0 || text === "") return text;
  let shown = text;
  for (const secret of secrets) shown = shown.replaceAll(secret, REDACTED);
  return isAnyIn(shown.slice(0, SEARCHED_CHARS_MAX), LAYERS_MAX) ? WITHHELD : shown;
}

/** The same for every text in a JSON value. */
export function hideSecretsIn<T>(value: T): T {
  if (typeof value === "string") return hideSecrets(value) as T;
  if (Array.isArray(value)) return value.map(hideSecretsIn) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [hideSecrets(key), hideSecretsIn(item)]),
  ) as T;
}

/** Whether a secret stands in the text, in any case and with any spaces, or in something encoded in it. */
function isAnyIn(text: string, layers: number): boolean {
  const plain = text.replace(/\s+/g, "").toLowerCase();
  for (const secret of secrets) {
    if (secret.length < HIDDEN_CHARS_MIN) continue;
    if (plain.includes(secret.toLowerCase())) return true;
  }
  return layers > 0 && decodings(text).some((decoded) => isAnyIn(decoded, layers - 1));
}

/** What the text says when it, or parts of it, are read as encodings; only those that say something else. */
function decodings(text: string): string[] {
  const decoded = new Set([
    text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
    text.replace(/\\u([0-9a-f]{4})|\\x([0-9a-f]{2})/gi, (_, long, short) =>
      String.fromCharCode(Number.parseInt(long ?? short, 16)),
    ),
    text.replace(/&#(?:x([0-9a-f]{1,6})|(\d{1,7}));/gi, (_, hex, decimal) =>
      String.fromCharCode(hex ? Number.parseInt(hex, 16) : Number(decimal)),
    ),
    [...text.matchAll(/(?:[0-9a-f]{2}){8,}/gi)].map(([run]) => fromHex(run)).join("\n"),
    [...text.matchAll(/[\w+/-]{10,}/g)].map(([run]) => fromBase64(run)).join("\n"),
  ]);
  decoded.delete(text);
  decoded.delete("");
  return [...decoded];
}

const fromHex = (run: string): string => Buffer.from(run, "hex").toString("latin1");

/** Read from each of the four places where a group may begin, since a run may start before the encoded part. */
const fromBase64 = (run: string): string =>
  [0, 1, 2, 3].map((from) => Buffer.from(run.slice(from), "base64").toString("latin1")).join("\n");
