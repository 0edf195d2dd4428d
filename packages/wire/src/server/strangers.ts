import type { Connection } from "./connection.ts";

export interface StrangerLimits {
  /** Connections of callers that nobody has vouched for, all together. */
  max: number;
  /** Those of one address; for IPv6, of one /64 network. */
  perAddressMax: number;
  /** Addresses that many callers share, such as a proxy's. */
  isShared(address: string): boolean;
}

/** One subscriber usually has a whole /64 of IPv6. An IPv4 address inside an IPv6 one counts as itself. */
export function networkOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, "").replace(/%.*$/, "");
  if (!plain.includes(":")) return plain;
  const [head = "", tail] = plain.toLowerCase().split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail ? tail.split(":") : [];
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - before.length - after.length);
  const groups = [...before, ...Array<string>(zeros).fill("0"), ...after];
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":")}::/64`;
}

/**
 * Connections of callers that are not signed in, as far as is known. A new caller says who it is only after it was
 * accepted, so when there are too many strangers an older one makes room rather than the new one being refused.
 */
export class Strangers {
  /** Oldest first. */
  readonly #all = new Set<Connection>();
  readonly #byNetwork = new Map<string, Set<Connection>>();

  constructor(readonly limits: StrangerLimits) {}

  get size(): number {
    return this.#all.size;
  }

  /** Notes a new connection, after making room for it. False when no other one can go. */
  admit(connection: Connection): boolean {
    const { max, perAddressMax, isShared } = this.limits;
    const network = networkOf(connection.remoteAddress);
    const neighbours = this.#byNetwork.get(network);
    if (neighbours && neighbours.size >= perAddressMax && !isShared(network)) {
      if (!removeOldest(neighbours)) return false;
    } else if (this.#all.size >= max && !this.makeRoom()) return false;
    this.#all.add(connection);
    const known = this.#byNetwork.get(network);
    if (known) known.add(connection);
    else this.#byNetwork.set(network, new Set([connection]));
    return true;
  }

  /** Ends the oldest stranger of the network that has the most of them. */
  makeRoom(): boolean {
    const networks = [...this.#byNetwork.values()].sort((a, b) => b.size - a.size);
    return networks.some(removeOldest);
  }

  /** It is known now, or gone. */
  delete(connection: Connection): void {
    if (!this.#all.delete(connection)) return;
    const network = networkOf(connection.remoteAddress);
    const neighbours = this.#byNetwork.get(network);
    neighbours?.delete(connection);
    if (neighbours?.size === 0) this.#byNetwork.delete(network);
  }
}

/** Requests that are being answered are let finish; those that only wait, or are told something, end. */
function removeOldest(connections: Set<Connection>): boolean {
  for (const connection of connections) {
    if (connection.isAnswering) continue;
    connection.terminate();
    return true;
  }
  return false;
}
