import { expect } from "bun:test";
import net from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Reply, type ReplySource, type ReplyWriter } from "../../src/http/reply.ts";
import { BadRequest } from "../../src/http/request.ts";
import type { WireLog } from "../../src/log.ts";
import type { ConnectionOptions } from "../../src/server/connection.ts";
import type { IncomingRequest } from "../../src/server/incoming-request.ts";
import { Listener, type ListenerOptions } from "../../src/server/listener.ts";

const PATIENCE_MS = 15_000;
export const BODY_BYTES_MAX = 8 * 1024 * 1024;

export type Handle = ConnectionOptions["handle"];

export const text = (body: string | Uint8Array, status = 200, headers: Record<string, string> = {}): Reply =>
  new Reply({ status, contentType: "text/plain", requestId: "r1", headers }, body);

/** A handler that turns its failures into replies, as handlers should. */
export async function answered(answering: () => Promise<Reply>): Promise<Reply> {
  try {
    return await answering();
  } catch (error) {
    return text(String(error), error instanceof BadRequest ? error.status : 500);
  }
}

/** Answers with what was asked, so that a mixed-up answer shows. */
export const echo = (request: IncomingRequest): Promise<Reply> =>
  answered(async () => {
    const body = await request.body(BODY_BYTES_MAX);
    return text(Buffer.concat([Buffer.from(`${request.method} ${request.path}?${request.search}\n`), body]));
  });

export class TestServer {
  readonly listener: Listener;
  readonly clock = new ManualClock();
  readonly errors: string[] = [];
  readonly requests: IncomingRequest[] = [];
  refused = 0;
  readonly #clients: RawClient[] = [];

  constructor(
    handle: Handle,
    options: Partial<
      Pick<
        ListenerOptions,
        | "port"
        | "reusePort"
        | "connectionsMax"
        | "strangers"
        | "messageBytesMax"
        | "bufferBytesMax"
        | "certificate"
      >
    > = {},
  ) {
    const note = (message: string, fields?: Record<string, unknown>) =>
      void this.errors.push(`${message}: ${String(fields?.error)}`);
    const log: WireLog = { warn: note, error: note };
    this.listener = new Listener({
      host: "127.0.0.1",
      port: options.port ?? 0,
      reusePort: options.reusePort ?? false,
      connectionsMax: options.connectionsMax ?? 100_000,
      strangers: options.strangers ?? null,
      ...(options.certificate && { certificate: options.certificate }),
      refused: () => {
        this.refused++;
      },
      handle: (request) => {
        this.requests.push(request);
        return handle(request);
      },
      newRequestId: () => "refused",
      messageBytesMax: options.messageBytesMax ?? 1024 * 1024,
      bufferBytesMax: options.bufferBytesMax ?? 1024 * 1024,
      clock: this.clock,
      log,
    });
  }

  get port(): number {
    return this.listener.port;
  }
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async connect(): Promise<RawClient> {
    const client = await RawClient.connect(this.port);
    this.#clients.push(client);
    return client;
  }

  /** One conversation: everything is sent, and everything that comes back until the end is returned. */
  async talk(request: string | Buffer): Promise<string> {
    const client = await this.connect();
    client.send(request);
    return (await client.everything()).toString("latin1");
  }

  untilEmpty(): Promise<void> {
    return until("all connections are gone", () => this.listener.connectionCount === 0);
  }

  /** Ends it, and fails the test when something went wrong that nobody expected. */
  async stop(expectedErrors: readonly string[] = []): Promise<void> {
    await this.listener.stop(true);
    for (const client of this.#clients) client.reset();
    expect(this.listener.connectionCount).toBe(0);
    expect(this.errors).toEqual([...expectedErrors]);
  }
}

export interface Answer {
  status: number;
  headers: Map<string, string>;
  body: Buffer;
}

/** A client that does what it is told, byte by byte. */
export class RawClient {
  /** What has come and is not part of an answer that was handed out. */
  bytes = Buffer.alloc(0);
  /** The server has ended its side. */
  isEnded = false;
  isClosed = false;
  isReset = false;
  #wake: () => void = () => {};

  private constructor(readonly socket: net.Socket) {
    const noted = (note: () => void) => () => {
      note();
      this.#wake();
    };
    socket.setNoDelay(true);
    socket.on("data", (bytes: Buffer) => {
      this.bytes = Buffer.concat([this.bytes, bytes]);
      this.#wake();
    });
    socket.on(
      "end",
      noted(() => {
        this.isEnded = true;
      }),
    );
    socket.on(
      "close",
      noted(() => {
        this.isClosed = true;
      }),
    );
    socket.on(
      "error",
      noted(() => {
        this.isReset = true;
      }),
    );
  }

  static async connect(port: number): Promise<RawClient> {
    const socket = net.connect({ host: "127.0.0.1", port, allowHalfOpen: true });
    const client = new RawClient(socket);
    await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    return client;
  }

  send(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes);
  }

  /** In the given pieces, each on its way before the next. */
  async sendPieces(pieces: readonly Buffer[]): Promise<void> {
    for (const piece of pieces) {
      if (this.isClosed) return;
      await new Promise<void>((resolve) => this.socket.write(piece, () => resolve()));
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  async #until<T>(look: () => T | null, what: string): Promise<T> {
    const deadlineMs = Date.now() + PATIENCE_MS;
    for (;;) {
      const found = look();
      if (found !== null) return found;
      const leftMs = deadlineMs - Date.now();
      if (leftMs < 0)
        throw new Error(`${what} did not come; so far: ${this.bytes.toString("latin1", 0, 500)}`);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const timer = setTimeout(resolve, leftMs + 1);
      await promise;
      clearTimeout(timer);
    }
  }

  /** The next whole answer; with `toHead` it has no body. */
  answer({ toHead = false } = {}): Promise<Answer> {
    return this.#until(() => {
      const parsed = parseAnswer(this.bytes, { toHead, isEnded: this.isEnded });
      if (parsed) this.bytes = this.bytes.subarray(parsed.to);
      else if (this.isEnded || this.isClosed)
        throw new Error(`ended in the middle of: ${this.bytes.toString("latin1", 0, 500)}`);
      return parsed;
    }, "an answer");
  }

  /** Waits until at least this much is there. */
  atLeast(count: number): Promise<true> {
    return this.#until(() => this.bytes.length >= count || null, `${count} bytes`);
  }
  containing(needle: string): Promise<true> {
    return this.#until(() => this.bytes.includes(needle) || null, needle);
  }
  /** The server has ended its side, or all of it. */
  ended(): Promise<true> {
    return this.#until(() => this.isEnded || this.isClosed || null, "the end");
  }
  closed(): Promise<true> {
    return this.#until(() => this.isClosed || null, "the close");
  }
  async everything(): Promise<Buffer> {
    await this.ended();
    return this.bytes;
  }

  /** Ends our side only. */
  end(): void {
    this.socket.end();
  }
  leave(): void {
    this.socket.destroy();
  }
  reset(): void {
    this.socket.resetAndDestroy();
  }
}

/** Written for these tests, so that the server is not its own judge. */
export function parseAnswer(
  bytes: Buffer,
  { toHead, isEnded }: { toHead: boolean; isEnded: boolean },
): (Answer & { to: number }) | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end === -1) return null;
  const [statusLine = "", ...lines] = bytes.toString("latin1", 0, end).split("\r\n");
  const status = Number(/^HTTP\/1\.1 (\d{3}) [ -~]*$/.exec(statusLine)?.[1]);
  if (!(status >= 100)) throw new Error(`no status line: ${statusLine}`);
  const headers = new Map<string, string>();
  for (const line of lines) {
    const [, name, value] = /^([a-z0-9-]+): ([\t -~\x80-\xff]*)$/i.exec(line) ?? [];
    if (!name || headers.has(name.toLowerCase())) throw new Error(`a bad or doubled header: ${line}`);
    headers.set(name.toLowerCase(), value!);
  }
  const from = end + 4;
  if (toHead || status < 200 || status === 204 || status === 304)
    return { status, headers, body: Buffer.alloc(0), to: from };
  if (headers.get("transfer-encoding") === "chunked") {
    const chunks = parseChunks(bytes, from);
    return chunks && { status, headers, ...chunks };
  }
  const length = headers.get("content-length");
  if (length === undefined)
    return isEnded ? { status, headers, body: bytes.subarray(from), to: bytes.length } : null;
  const to = from + Number(length);
  return bytes.length < to ? null : { status, headers, body: bytes.subarray(from, to), to };
}

function parseChunks(bytes: Buffer, from: number): { body: Buffer; to: number } | null {
  const pieces: Buffer[] = [];
  for (let at = from; ; ) {
    const lineEnd = bytes.indexOf("\r\n", at);
    if (lineEnd === -1) return null;
    const sizeText = bytes.toString("latin1", at, lineEnd);
    if (!/^[0-9a-f]+$/.test(sizeText)) throw new Error(`no chunk size: ${sizeText}`);
    const size = Number.parseInt(sizeText, 16);
    const dataEnd = lineEnd + 2 + size;
    if (bytes.length < dataEnd + 2) return null;
    if (bytes.toString("latin1", dataEnd, dataEnd + 2) !== "\r\n") throw new Error("a chunk without its end");
    pieces.push(bytes.subarray(lineEnd + 2, dataEnd));
    at = dataEnd + 2;
    if (size === 0) return { body: Buffer.concat(pieces), to: at };
  }
}

/** Notes what is called, and lets the test write. */
export class TestSource implements ReplySource {
  readonly calls: string[] = [];
  writer: ReplyWriter | null = null;
  constructor(readonly onBegin: (writer: ReplyWriter) => void = () => {}) {}

  begin(writer: ReplyWriter): void {
    this.calls.push("begin");
    this.writer = writer;
    this.onBegin(writer);
  }
  drained(): void {
    this.calls.push("drained");
  }
  left(): void {
    this.calls.push("left");
  }
}

/** One of a handler's answers, given when the test wants. */
export class Pending<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (error: unknown) => void;
  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.promise = promise;
    this.resolve = resolve;
    this.reject = reject;
  }
}
