/** Free TCP ports for engines. */
import { createServer } from "node:net";

function tryListen(host: string, port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(null));
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      const bound = address && typeof address === "object" ? address.port : null;
      server.close(() => resolve(bound));
    });
  });
}

export interface PortWish {
  host: string;
  /** Tried first: an engine that comes back keeps its address where it can. */
  preferred?: number;
  /** First and last port of the range that the operator has opened. */
  range?: readonly [number, number];
  /** Ports of this node's own engines, even of those that do not listen yet. */
  taken: ReadonlySet<number>;
}

const RANDOM_TRIES_MAX = 20;

export async function findFreePort({ host, preferred, range, taken }: PortWish): Promise<number> {
  if (preferred && !taken.has(preferred) && (await tryListen(host, preferred))) return preferred;
  if (range) {
    for (let port = range[0]; port <= range[1]; port++)
      if (!taken.has(port) && (await tryListen(host, port))) return port;
    throw new Error(`no free port from ${range[0]} to ${range[1]}: widen "ports" in the configuration`);
  }
  for (let attempt = 0; attempt < RANDOM_TRIES_MAX; attempt++) {
    const port = await tryListen(host, 0);
    if (port && !taken.has(port)) return port;
  }
  throw new Error(`no free port on ${host}: check that "bind" is an address of this machine`);
}
