/**
 * Logins that were written into an address. The browser's own login handling is switched off, because without one
 * it would ask in a window of its own, which takes all input from the page; so the tool sends them along.
 */
const loginsMax = 100;

/** A part of an address as its writer meant it; a stray percent sign is taken as it stands. */
export function unescaped(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export class Logins {
  readonly #headers = new Map<string, string>();

  get origins(): Iterable<string> {
    return this.#headers.keys();
  }

  /** The address without its login, which is kept for all of its origin. */
  take(address: string): { url: string; isNew: boolean } {
    const url = URL.parse(address);
    if (!url || !/^https?:$/.test(url.protocol) || (url.username === "" && url.password === ""))
      return { url: address, isNew: false };
    const login = `${unescaped(url.username)}:${unescaped(url.password)}`;
    url.username = "";
    url.password = "";
    if (this.#headers.size >= loginsMax) this.#headers.clear();
    this.#headers.set(url.origin, `Basic ${Buffer.from(login).toString("base64")}`);
    return { url: url.href, isNew: true };
  }

  headerFor(address: string): string | undefined {
    if (this.#headers.size === 0) return undefined;
    return this.#headers.get(URL.parse(address)?.origin ?? "");
  }
}
