import type { BlockList } from "node:net";
import { ipFamily } from "./ip-family.ts";

const PREFIX_MAX = { 4: 32, 6: 128 } as const;
const familyOf = (address: string) => (ipFamily(address) === 6 ? "ipv6" : "ipv4");

/** Whether a text is an address (`10.0.0.7`, `::1`) or a network (`10.0.0.0/8`). */
export function isNetwork(text: string): boolean {
  const [address = "", prefix, ...more] = text.split("/");
  const family = ipFamily(address);
  if (family === 0 || more.length > 0) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= PREFIX_MAX[family]);
}

/** Addresses and networks, each of them `isNetwork`. */
export class Networks {
  /** Null when there are none. */
  readonly #list: BlockList | null;

  constructor(texts: readonly string[]) {
    this.#list = texts.length === 0 ? null : new (process.getBuiltinModule("node:net").BlockList)();
    for (const text of texts) {
      const [address = "", prefix] = text.split("/");
      if (prefix === undefined) this.#list?.addAddress(address, familyOf(address));
      else this.#list?.addSubnet(address, Number(prefix), familyOf(address));
    }
  }

  get isEmpty(): boolean {
    return this.#list === null;
  }

  has(address: string): boolean {
    return this.#list !== null && ipFamily(address) !== 0 && this.#list.check(address, familyOf(address));
  }
}
