import { connect, isIP, type Socket } from "node:net";
import { HandshakeReader } from "./relay.ts";

const VERSION = 5;
const METHOD_NONE = 0;
const METHOD_PASSWORD = 2;
const COMMAND_CONNECT = 1;
const ADDRESS_IPV4 = 1;
const ADDRESS_NAME = 3;
const ADDRESS_IPV6 = 4;

const replies: Record<number, string> = {
  1: "it failed for no stated reason",
  2: "its rules do not allow the connection",
  3: "the network is unreachable",
  4: "the host is unreachable",
  5: "the connection was refused",
  6: "it timed out",
  7: "it does not support CONNECT",
  8: "it does not support this kind of address",
};

/** The proxy itself says no; asking again would get the same answer. */
export class SocksRefusal extends Error {}

function addressBytes(host: string): Buffer {
  const kind = isIP(host);
  if (kind === 4) return Buffer.from([ADDRESS_IPV4, ...host.split(".").map(Number)]);
  if (kind === 6) {
    // The URL parser writes every IPv6 address in one canonical form; its groups are filled up here.
    const [head = "", tail] = new URL(`http://[${host}]/`).hostname.slice(1, -1).split("::");
    const left = head === "" ? [] : head.split(":");
    const right = tail ? tail.split(":") : [];
    const groups = [...left, ...Array(8 - left.length - right.length).fill("0"), ...right];
    const bytes = Buffer.alloc(17);
    bytes[0] = ADDRESS_IPV6;
    for (const [index, group] of groups.entries())
      bytes.writeUInt16BE(Number.parseInt(group, 16), 1 + index * 2);
    return bytes;
  }
  const name = Buffer.from(host);
  if (name.length > 255) throw new Error("the host name is too long for SOCKS5");
  return Buffer.concat([Buffer.from([ADDRESS_NAME, name.length]), name]);
}

async function authenticate(socket: Socket, reader: HandshakeReader, proxy: URL): Promise<void> {
  const user = Buffer.from(decodeURIComponent(proxy.username));
  const password = Buffer.from(decodeURIComponent(proxy.password));
  const methods = user.length > 0 ? [METHOD_NONE, METHOD_PASSWORD] : [METHOD_NONE];
  socket.write(Buffer.from([VERSION, methods.length, ...methods]));
  const [version, method] = await reader.take(2);
  if (version !== VERSION) throw new SocksRefusal("it does not speak SOCKS5");
  if (method === METHOD_NONE) return;
  if (method !== METHOD_PASSWORD || user.length === 0)
    throw new SocksRefusal("it wants credentials; put them into the proxy URL as user:password@");
  if (user.length > 255 || password.length > 255)
    throw new SocksRefusal("its credentials are too long for SOCKS5");
  socket.write(
    Buffer.concat([Buffer.from([1, user.length]), user, Buffer.from([password.length]), password]),
  );
  const answer = await reader.take(2);
  if (answer[1] !== 0) throw new SocksRefusal("it refused the user name or password");
}

interface Destination {
  host: string;
  port: number;
}

/** A connection through a SOCKS5 proxy. Names are resolved by the proxy, as browsers do it. */
export async function connectThroughSocks5(proxy: URL, { host, port }: Destination): Promise<Socket> {
  const socket = connect({
    host: proxy.hostname.replace(/^\[|\]$/g, ""),
    port: Number(proxy.port) || 1080,
  });
  const reader = new HandshakeReader(socket);
  try {
    await authenticate(socket, reader, proxy);
    const portBytes = Buffer.from([port >> 8, port & 0xff]);
    socket.write(Buffer.concat([Buffer.from([VERSION, COMMAND_CONNECT, 0]), addressBytes(host), portBytes]));
    const [, reply = 1, , kind] = await reader.take(4);
    if (reply !== 0) throw new Error(replies[reply] ?? `it answered with code ${reply}`);
    const addressLength = kind === ADDRESS_IPV4 ? 4 : kind === ADDRESS_IPV6 ? 16 : (await reader.take(1))[0]!;
    await reader.take(addressLength + 2);
    reader.release();
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
