import { randomBytes, timingSafeEqual } from "node:crypto";
import type { Socket } from "node:net";
import { messageOf } from "./errors.ts";
import { openRelay } from "./relay.ts";
import { connectThroughSocks5 } from "./socks5.ts";

const HEAD_BYTES_MAX = 16 * 1024;

export interface SocksBridge {
  /** An HTTP proxy URL with credentials that only this process knows. */
  proxyUrl: string;
  /** Why the last connection could not be made; HTTP clients hide it behind an error of their own. */
  lastFailure(): Error | null;
  close(): void;
}

interface RequestHead {
  method: string;
  target: string;
  headers: string[];
  rest: Buffer;
}

function readHead(socket: Socket): Promise<RequestHead> {
  return new Promise((resolve, reject) => {
    let buffered = Buffer.alloc(0);
    const onData = (chunk: Buffer) => {
      buffered = Buffer.concat([buffered, chunk]);
      const end = buffered.indexOf("\r\n\r\n");
      if (end < 0 && buffered.length <= HEAD_BYTES_MAX) return;
      socket.off("data", onData).pause();
      if (end < 0) return reject(new Error("the request head is too long"));
      const [line = "", ...headers] = buffered.toString("latin1", 0, end).split("\r\n");
      const [method = "", target = ""] = line.split(" ");
      resolve({ method, target, headers, rest: buffered.subarray(end + 4) });
    };
    socket.on("data", onData);
  });
}

function headerValue(headers: string[], name: string): string {
  const prefix = `${name}:`;
  const line = headers.find((header) => header.toLowerCase().startsWith(prefix));
  return line?.slice(prefix.length).trim() ?? "";
}

/** Plain http requests reach a proxy with the whole URL; the server behind it wants only the path. */
function forwardedHead({ method, headers }: RequestHead, url: URL): string {
  const kept = headers.filter((header) => !/^(proxy-[^:]*|connection):/i.test(header));
  return [`${method} ${url.pathname}${url.search} HTTP/1.1`, ...kept, "Connection: close", "", ""].join(
    "\r\n",
  );
}

/**
 * Bun's fetch speaks to HTTP proxies but not to SOCKS5, and Chromium to SOCKS5 only without a login. This small
 * HTTP proxy on loopback takes their connections and makes them through the SOCKS5 proxy; a random password keeps
 * other programs out.
 */
export async function openSocksBridge(proxy: URL): Promise<SocksBridge> {
  const token = randomBytes(24).toString("hex");
  const expected = Buffer.from(`Basic ${btoa(`bridge:${token}`)}`);
  let failure: Error | null = null;

  const pass = async (client: Socket, join: (client: Socket, upstream: Socket) => void) => {
    const head = await readHead(client);
    const given = Buffer.from(headerValue(head.headers, "proxy-authorization"));
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      client.end(
        'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="bridge"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n',
      );
      return;
    }
    const tunnel = head.method === "CONNECT";
    const url = new URL(tunnel ? `http://${head.target}` : head.target);
    // The URL parser drops port 80, which for a tunnel is as good as any other.
    const port = Number(url.port) || 80;
    const upstream = await connectThroughSocks5(proxy, { host: url.hostname.replace(/^\[|\]$/g, ""), port });
    if (tunnel) client.write("HTTP/1.1 200 Connection established\r\n\r\n");
    else upstream.write(forwardedHead(head, url));
    if (head.rest.length > 0) upstream.write(head.rest);
    join(client, upstream);
  };
  const { port, close } = await openRelay((client, { join }) =>
    pass(client, join).catch((error) => {
      failure = error instanceof Error ? error : new Error(messageOf(error));
      client.end("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }),
  );
  return { proxyUrl: `http://bridge:${token}@127.0.0.1:${port}`, lastFailure: () => failure, close };
}
