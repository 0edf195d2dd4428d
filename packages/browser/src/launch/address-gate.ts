/**
 * The browser's way out: a SOCKS5 server on loopback that looks names up itself and connects to the address that it
 * has checked. So no name leads to a link-local or metadata address, however often its answer changes, for pages,
 * fetch, pictures, workers and WebSockets alike. Loopback and private addresses are reached without it.
 */
import { lookup } from "node:dns/promises";
import { connect, isIP, type Socket } from "node:net";
import {
  hasHostList,
  isLinkLocalHost,
  isPrivateAddress,
  type UrlPolicy,
  whyHostBlocked,
} from "../policy/url-policy.ts";
import { HandshakeReader, openRelay, type Relay } from "../resolve/relay.ts";

const connectTimeoutMs = 30_000;
/** The next address of a name is tried this long after the one before. */
const nextAddressMs = 250;
const addressesMax = 8;
const failuresMax = 200;
/** When so many are known, every other name counts as one: a page could ask for names until its own is forgotten. */
const publicNamesMax = 20_000;

/** Answers of SOCKS5, which the browser shows as one and the same error. */
const replies = { done: 0, failed: 1, notAllowed: 2, unreachable: 4, refused: 5 } as const;

export interface AddressGate {
  /** The proxy setting for the browser. */
  server: string;
  /** Hosts and ranges of addresses that it reaches directly. */
  bypass: readonly string[];
  /** Why a connection to a host could not be made, as the browser words it; null when it was not for this gate. */
  failureOf(host: string): string | null;
  close(): void;
}

const bypass = [
  "localhost",
  "*.localhost",
  "127.0.0.0/8",
  "::1/128",
  "10.0.0.0/8",
  "172.16.0.0/12",
  "192.168.0.0/16",
] as const;

/** Prefix of failures that are not network failures. */
export const blockedMark = "blocked: ";

class Refusal extends Error {
  readonly reply: number;
  /** As the browser would have said it. */
  readonly netError: string;

  constructor(reply: number, netError: string) {
    super(netError);
    this.reply = reply;
    this.netError = netError;
  }
}

interface Destination {
  host: string;
  port: number;
}

async function readGreeting(reader: HandshakeReader): Promise<void> {
  const [version, methods = 0] = await reader.take(2);
  if (version !== 5) throw new Error("no SOCKS5 request");
  await reader.take(methods);
}

async function readDestination(reader: HandshakeReader): Promise<Destination> {
  const [version, command, , kind] = await reader.take(4);
  if (version !== 5 || command !== 1) throw new Refusal(replies.failed, "net::ERR_FAILED");
  let host: string;
  if (kind === 1) host = [...(await reader.take(4))].join(".");
  else if (kind === 4) {
    const bytes = await reader.take(16);
    const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(i * 2).toString(16));
    host = groups.join(":");
  } else host = (await reader.take((await reader.take(1))[0]!)).toString();
  return { host, port: (await reader.take(2)).readUInt16BE(0) };
}

export type ResolveHost = (host: string) => Promise<string[]>;

/** As every other program on this machine looks names up. */
const systemResolve: ResolveHost = async (host) =>
  (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address);

/** The addresses of a host that may be connected to. */
async function checkedAddresses(host: string, { resolve, policy, publicNames }: Lookup): Promise<string[]> {
  const reason = policy && whyHostBlocked(host, policy);
  if (reason) throw new Refusal(replies.notAllowed, `${blockedMark}${reason}`);
  const found = isIP(host)
    ? [host]
    : await resolve(host).catch(() => {
        throw new Refusal(replies.unreachable, "net::ERR_NAME_NOT_RESOLVED");
      });
  if (!isIP(host) && !found.every(isPrivateAddress) && publicNames.size < publicNamesMax)
    publicNames.add(host);
  // Its pages could read, as their own, what a service of this network answers to everyone in it.
  const isRebound = publicNames.has(host) || (publicNames.size >= publicNamesMax && !isIP(host));
  // A name that is allowed may still lead to an address that is blocked.
  const isOpen = (address: string) =>
    (policy?.allowLinkLocal || !isLinkLocalHost(address)) &&
    !isListedAddress(address, policy) &&
    !(isRebound && isPrivateAddress(address));
  const open = found.filter(isOpen);
  if (open.length > 0) return open.slice(0, addressesMax);
  const kind = isLinkLocalHost(found[0] ?? "")
    ? "a link-local or metadata address"
    : isRebound
      ? "an address of this network; it had a public one"
      : "a blocked one";
  throw new Refusal(replies.notAllowed, `${blockedMark}${host} is ${found[0]}, ${kind}`);
}

interface Lookup {
  resolve: ResolveHost;
  policy?: UrlPolicy;
  /** Names that had an address on the internet, and keep to those. */
  publicNames: Set<string>;
}

const isListedAddress = (address: string, policy: UrlPolicy | undefined) =>
  policy !== undefined && whyHostBlocked(address, { ...policy, allowHosts: [] }) !== null;

const netErrors: Record<string, string> = {
  ECONNREFUSED: "net::ERR_CONNECTION_REFUSED",
  ECONNRESET: "net::ERR_CONNECTION_RESET",
  ETIMEDOUT: "net::ERR_CONNECTION_TIMED_OUT",
  EHOSTUNREACH: "net::ERR_ADDRESS_UNREACHABLE",
  ENETUNREACH: "net::ERR_ADDRESS_UNREACHABLE",
};

/** The first of the addresses that answers; each has a head start before the next one. */
function connectFirst(addresses: string[], port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const open = new Set<Socket>();
    let tried = 0;
    let isSettled = false;
    let failure = new Refusal(replies.failed, "net::ERR_CONNECTION_TIMED_OUT");
    const settle = (winner: Socket | null) => {
      isSettled = true;
      clearTimeout(limit);
      clearInterval(pacing);
      for (const socket of open) if (socket !== winner) socket.destroy();
      if (winner) resolve(winner);
      else reject(failure);
    };
    const next = () => {
      const address = addresses[tried++];
      if (address === undefined || isSettled) return;
      const socket = connect({ host: address, port, noDelay: true });
      open.add(socket);
      socket.once("connect", () => {
        if (!isSettled) settle(socket);
      });
      socket.on("error", (error: NodeJS.ErrnoException) => {
        open.delete(socket);
        if (isSettled) return;
        const isRefused = error.code === "ECONNREFUSED";
        failure = new Refusal(
          isRefused ? replies.refused : replies.unreachable,
          netErrors[error.code ?? ""] ?? "net::ERR_CONNECTION_FAILED",
        );
        if (tried < addresses.length) next();
        else if (open.size === 0) settle(null);
      });
    };
    const pacing = setInterval(next, nextAddressMs);
    const limit = setTimeout(() => settle(null), connectTimeoutMs);
    next();
  });
}

const answer = (reply: number) => Buffer.from([5, reply, 0, 1, 0, 0, 0, 0, 0, 0]);

export interface GateOptions {
  onBlocked: (text: string, host: string) => void;
  resolve?: ResolveHost;
  /** With lists of hosts everything passes the gate, loopback and private addresses too. */
  policy?: UrlPolicy;
}

export async function openAddressGate({
  onBlocked,
  resolve = systemResolve,
  policy,
}: GateOptions): Promise<AddressGate> {
  const failures = new Map<string, string>();
  const publicNames = new Set<string>();

  function remember(host: string, netError: string): void {
    failures.delete(host);
    if (failures.size >= failuresMax) failures.delete(failures.keys().next().value!);
    failures.set(host, netError);
  }

  async function serve(client: Socket, { join }: Relay): Promise<void> {
    const reader = new HandshakeReader(client);
    await readGreeting(reader);
    client.write(Buffer.from([5, 0]));
    const { host, port } = await readDestination(reader);
    try {
      const upstream = await connectFirst(
        await checkedAddresses(host, { resolve, policy, publicNames }),
        port,
      );
      failures.delete(host);
      reader.release();
      client.write(answer(replies.done));
      join(client, upstream);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(replies.failed, "net::ERR_FAILED");
      remember(host, refusal.netError);
      if (refusal.reply === replies.notAllowed)
        onBlocked(`A connection was blocked: ${refusal.netError.slice(blockedMark.length)}.`, host);
      client.end(answer(refusal.reply));
    }
  }

  const { port, close } = await openRelay(serve);
  return {
    server: `socks5://127.0.0.1:${port}`,
    bypass: policy && hasHostList(policy) ? [] : bypass,
    failureOf: (host) => failures.get(host) ?? null,
    close,
  };
}
