import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";

export interface FileServer {
  url: string;
  port: number;
  /** Every request: its path and its Range header, if any. */
  requests: { path: string; range: string | null; authorization: string | null }[];
  file: Buffer;
  etag: string;
  /** What to do with the next requests, first one first; then the file is served. */
  faults: Fault[];
  close(): Promise<void>;
}

export type Fault =
  | { kind: "cut"; afterBytes: number }
  | { kind: "stall"; afterBytes: number }
  | { kind: "status"; status: number }
  | { kind: "redirect"; location: string };

function listen(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" && address ? address.port : 0);
    });
  });
}

function closer(server: Server, sockets: Set<Socket>): () => Promise<void> {
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
  });
  return () =>
    new Promise((resolve) => {
      for (const socket of sockets) socket.destroy();
      server.close(() => resolve());
    });
}

function serveFile(state: FileServer, request: IncomingMessage, response: ServerResponse): void {
  const range = request.headers.range ?? null;
  state.requests.push({
    path: request.url ?? "",
    range,
    authorization: request.headers.authorization ?? null,
  });
  const fault = state.faults.shift();
  if (fault?.kind === "status") {
    response.writeHead(fault.status, { "content-length": 0 }).end();
    return;
  }
  if (fault?.kind === "redirect") {
    response.writeHead(302, { location: fault.location, "content-length": 0 }).end();
    return;
  }
  const wanted = /^bytes=(\d+)-$/.exec(range ?? "")?.[1];
  const start = wanted && request.headers["if-range"] === state.etag ? Number(wanted) : 0;
  const body = state.file.subarray(start);
  const headers: Record<string, string | number> = { "content-length": body.length, etag: state.etag };
  if (start > 0) headers["content-range"] = `bytes ${start}-${state.file.length - 1}/${state.file.length}`;
  response.writeHead(start > 0 ? 206 : 200, headers);
  if (fault) {
    response.write(body.subarray(0, fault.afterBytes), () => {
      if (fault.kind === "cut") request.socket.end();
    });
    return;
  }
  response.end(body);
}

/** Serves one file under every path, with ranges, and misbehaves on request. */
export async function startFileServer(file: Buffer): Promise<FileServer> {
  const state = { file, etag: '"one"', requests: [], faults: [] } as unknown as FileServer;
  const server = createHttpServer((request, response) => serveFile(state, request, response));
  state.close = closer(server as unknown as Server, new Set());
  state.port = await listen(server as unknown as Server);
  state.url = `http://127.0.0.1:${state.port}`;
  return state;
}

export interface TestProxy {
  port: number;
  /** host:port of every connection that was asked for. */
  targets: string[];
  close(): Promise<void>;
}

export interface ProxyOptions {
  /** "user:password" that is demanded. */
  credentials?: string;
  tls?: { key: string; cert: string };
  /** Names that this proxy knows, so that a test sees who resolves them. */
  hosts?: Record<string, string>;
}

function join(client: Socket, upstream: Socket): void {
  upstream.on("error", () => client.destroy());
  client.on("error", () => upstream.destroy());
  client.pipe(upstream);
  upstream.pipe(client);
}

/** An HTTP proxy: CONNECT tunnels and whole-URL requests. */
export async function startHttpProxy(options: ProxyOptions = {}): Promise<TestProxy> {
  const targets: string[] = [];
  const onConnection = (client: Socket) => {
    client.once("data", (chunk: Buffer) => {
      const end = chunk.indexOf("\r\n\r\n");
      const [line = "", ...headers] = chunk.toString("latin1", 0, end).split("\r\n");
      const [method, target = ""] = line.split(" ");
      const given = headers.find((header) => /^proxy-authorization:/i.test(header))?.split(" ")[2];
      if (options.credentials && given !== btoa(options.credentials)) {
        client.end(
          'HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="test"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n',
        );
        return;
      }
      const url = new URL(method === "CONNECT" ? `http://${target}` : target);
      const port = Number(url.port) || 80;
      targets.push(`${url.hostname}:${port}`);
      const upstream = connect(port, options.hosts?.[url.hostname] ?? url.hostname, () => {
        if (method === "CONNECT") client.write("HTTP/1.1 200 Connection established\r\n\r\n");
        else {
          const kept = headers.filter((header) => !/^(proxy-|connection:)/i.test(header));
          upstream.write(
            [`${method} ${url.pathname} HTTP/1.1`, ...kept, "connection: close", "", ""].join("\r\n"),
          );
        }
        join(client, upstream);
      });
      upstream.on("error", () => client.destroy());
    });
  };
  const server = options.tls ? createTlsServer(options.tls, onConnection) : createServer(onConnection);
  const close = closer(server, new Set());
  return { port: await listen(server), targets, close };
}

/** A SOCKS5 proxy: no authentication or a password, CONNECT to addresses and names. */
export async function startSocksProxy(options: ProxyOptions = {}): Promise<TestProxy> {
  const targets: string[] = [];
  const server = createServer((client) => {
    let buffered = Buffer.alloc(0);
    let stage: "hello" | "password" | "request" = "hello";
    const onData = (chunk: Buffer) => {
      buffered = Buffer.concat([buffered, chunk]);
      if (stage === "hello" && buffered.length >= 2 + buffered[1]!) {
        const offered = buffered.subarray(2, 2 + buffered[1]!);
        buffered = buffered.subarray(2 + offered.length);
        const method = options.credentials ? 2 : 0;
        client.write(Buffer.from([5, offered.includes(method) ? method : 0xff]));
        stage = options.credentials ? "password" : "request";
      }
      if (stage === "password" && buffered.length > 2) {
        const userEnd = 2 + buffered[1]!;
        if (buffered.length <= userEnd || buffered.length < userEnd + 1 + buffered[userEnd]!) return;
        const user = buffered.toString("utf8", 2, userEnd);
        const password = buffered.toString("utf8", userEnd + 1, userEnd + 1 + buffered[userEnd]!);
        buffered = buffered.subarray(userEnd + 1 + buffered[userEnd]!);
        const right = `${user}:${password}` === options.credentials;
        client.write(Buffer.from([1, right ? 0 : 1]));
        if (!right) client.end();
        stage = "request";
      }
      if (stage === "request" && buffered.length >= 10) {
        const isName = buffered[3] === 3;
        const addressEnd = isName ? 5 + buffered[4]! : 8;
        if (buffered.length < addressEnd + 2) return;
        const host = isName ? buffered.toString("utf8", 5, addressEnd) : buffered.subarray(4, 8).join(".");
        const port = buffered.readUInt16BE(addressEnd);
        client.off("data", onData).pause();
        targets.push(`${host}:${port}`);
        const upstream = connect(port, options.hosts?.[host] ?? host, () => {
          client.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
          join(client, upstream);
        });
        upstream.on("error", () => client.end(Buffer.from([5, 5, 0, 1, 0, 0, 0, 0, 0, 0])));
      }
    };
    client.on("data", onData);
  });
  const close = closer(server, new Set());
  return { port: await listen(server), targets, close };
}
