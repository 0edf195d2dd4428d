/** Secrets of keys made in this tab, so that the next page can show them once more; a reload forgets them. */
const secrets = new Map<string, string>();
const SECRETS_MAX = 20;

export function rememberSecret(keyId: string, secret: string): void {
  if (secrets.size >= SECRETS_MAX) secrets.delete(secrets.keys().next().value as string);
  secrets.set(keyId, secret);
}

/** Of the key that was made last in this tab. */
export const latestSecret = (): string | null => [...secrets.values()].at(-1) ?? null;

export const secretOf = (keyId: string): string | null => secrets.get(keyId) ?? null;
