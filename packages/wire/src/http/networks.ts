import { BlockList, isIP } from "node:net";

const PREFIX_MAX = { 4: 32, 6: 128 } as const;
const familyOf = (address: string) => (isIP(address) === 6 ? "ipv6" : "ipv4");

/** Whether a text is an address (`10.0.0.7`, `::1`) or a network (`10.0.0.0/8`). */
export function isNetwork(text: string): boolean {
  const [address = "", prefix, ...more] = text.split("/");
  const family = isIP(address);
  if (family === 0 || more.length > 0) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= PREFIX_MAX[family as 4 | 6]);
}

/** Addresses and networks, each of them `isNetwork`. */
export class Networks {
  readonly #list = new BlockList();
  readonly isEmpty: boolean;

  constructor(texts: readonly string[]) {
    this.isEmpty = texts.length === 0;
    for (const text of texts) {
      const [address = "", prefix] = text.split("/");
      if (prefix === undefined) this.#list.addAddress(address, familyOf(address));
      else this.#list.addSubnet(address, Number(prefix), familyOf(address));
    }
  }

  has(address: string): boolean {
    return !this.isEmpty && isIP(address) !== 0 && this.#list.check(address, familyOf(address));
  }
}
