/** OWASP's argon2id figures: 19 MiB and two passes. */
const ARGON = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
const SALT_BYTES = 32;
const HASH_BYTES = 32;

export const hashPassword = (password: string): Promise<string> => Bun.password.hash(password, ARGON);

const randomBase64 = (byteCount: number): string =>
  crypto.getRandomValues(new Uint8Array(byteCount)).toBase64({ omitPadding: true });

/** A hash that matches no password. Verifying against it takes as long as against a real one. */
export const decoyHash = (): string =>
  `$argon2id$v=19$m=${ARGON.memoryCost},t=${ARGON.timeCost},p=1$${randomBase64(SALT_BYTES)}$${randomBase64(HASH_BYTES)}`;
