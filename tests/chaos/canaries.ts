/** The forms in which a secret may leak: as it is, in hexadecimal, and in Base64 at any offset. */
export function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const inBase64 = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64url");
    // Without what depends on the neighbours.
    return text.slice(Math.ceil((offset * 4) / 3), -3);
  });
  return [secret, bytes.toString("hex"), ...inBase64, ...inBase64.map(toClassic)];
}

const toClassic = (text: string) => text.replaceAll("-", "+").replaceAll("_", "/");

/** Which of the secrets are in the text, in any form. */
export const leaked = (text: string, secrets: readonly string[]): string[] =>
  secrets.filter((secret) => formsOf(secret).some((form) => text.includes(form)));
