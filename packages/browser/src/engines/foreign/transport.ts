import { messageOf, SetupError } from "../../resolve/errors.ts";
import type { CdpMessage, CdpRequest, EngineTransport, ResolvedEngine } from "../contract.ts";
import { BE_E_BUSY, BE_E_CLOSED, describeResult, EngineLibrary, type RawMessage } from "./library.ts";

/** Messages taken in one go before other work of the process gets its turn. */
const MESSAGES_PER_TURN = 256;
/** Turns without a pause after activity, before the pauses begin to grow. */
const EAGER_TURNS = 20;
const PAUSE_MS_MIN = 1;
/** The longest polling pause with an answer outstanding, and without: the largest delay of an event. */
const PAUSE_MS_MAX_WAITING = 8;
const PAUSE_MS_MAX_IDLE = 50;
/** Requests kept for an engine that says it is busy. */
const BACKLOG_MAX = 1024;

const METHOD_NOT_FOUND = -32601;
const SERVER_ERROR = -32000;

export interface ForeignOptions {
  headless?: boolean;
  width?: number;
  height?: number;
  proxy?: string;
  proxyBypass?: readonly string[];
  ignoreHttpsErrors?: boolean;
  profileDir?: string;
  url?: string;
}

export type ForeignEngine = Extract<ResolvedEngine, { kind: "foreign" }>;

/** The message that the page layer sees, with binary content in the place where the protocol has base64. */
function toCdpMessage(raw: RawMessage): CdpMessage {
  const message = JSON.parse(raw.json) as CdpMessage;
  if (typeof message !== "object" || message === null) throw new Error("it is not an object");
  if (raw.id !== 0) message.id = raw.id;
  else delete message.id;
  if (raw.bytes) {
    const holder = raw.id === 0 ? "params" : "result";
    message[holder] = { ...(message[holder] as object | undefined), data: raw.bytes.toString("base64") };
  }
  return message;
}

class ForeignTransport implements EngineTransport {
  onMessage: (message: CdpMessage) => void = () => {};
  onClose: (reason: string) => void = () => {};
  private readonly backlog: CdpRequest[] = [];
  private readonly outstanding = new Set<number>();
  private quietTurns = 0;
  private wakeTimer: ReturnType<typeof setTimeout> | null = null;
  private wakeImmediate: ReturnType<typeof setImmediate> | null = null;
  private closed = false;
  /** Why the engine is about to exit, as it reported it. */
  private lastWords: string | null = null;

  constructor(
    private readonly library: EngineLibrary,
    private readonly handle: bigint,
  ) {
    this.schedule();
  }

  send(request: CdpRequest): void {
    if (this.closed) return;
    const { methods } = this.library.info;
    if (methods && !methods.has(request.method)) {
      this.answer(request, METHOD_NOT_FOUND, `${this.library.info.name} does not know ${request.method}`);
      return;
    }
    this.outstanding.add(request.id);
    if (this.backlog.length > 0 || !this.handOver(request)) this.postpone(request);
    this.wake();
  }

  /** False when the engine wants it later. */
  private handOver(request: CdpRequest): boolean {
    const { id, method, params, sessionId } = request;
    const json = JSON.stringify(
      sessionId === undefined ? (params ?? {}) : { $session: sessionId, ...params },
    );
    const code = this.library.send(this.handle, id, method, json);
    if (code === BE_E_BUSY) return false;
    if (code === BE_E_CLOSED) this.end(`${this.library.info.name}: ${describeResult(code)}`);
    else if (code < 0) this.answer(request, SERVER_ERROR, `${method}: ${describeResult(code)}`);
    return true;
  }

  private postpone(request: CdpRequest): void {
    if (this.backlog.length < BACKLOG_MAX) this.backlog.push(request);
    else
      this.answer(
        request,
        SERVER_ERROR,
        `${this.library.info.name} has been busy for ${BACKLOG_MAX} requests`,
      );
  }

  /** An answer of our own comes as late as an engine's would: never from inside `send`. */
  private answer({ id, sessionId }: CdpRequest, code: number, message: string): void {
    this.outstanding.delete(id);
    queueMicrotask(() => {
      if (!this.closed) this.onMessage({ id, error: { code, message }, ...(sessionId ? { sessionId } : {}) });
    });
  }

  private turn(): void {
    this.wakeTimer = null;
    this.wakeImmediate = null;
    if (this.closed) return;
    let active = false;
    try {
      while (this.backlog[0] && this.handOver(this.backlog[0])) {
        this.backlog.shift();
        active = true;
      }
      for (let count = 0; count < MESSAGES_PER_TURN && !this.closed; count++) {
        const next = this.library.poll(this.handle);
        if (next === null) break;
        active = true;
        if (typeof next === "number")
          this.end(`${this.library.info.name}: ${this.lastWords ?? describeResult(next)}`);
        else this.deliver(next);
      }
    } catch (error) {
      // Only the library's own bounds throw here; after such a message nothing it says can be trusted.
      if (!(error instanceof SetupError)) throw error;
      this.end(error.message);
    } finally {
      this.quietTurns = active ? 0 : this.quietTurns + 1;
      this.schedule();
    }
  }

  private deliver(raw: RawMessage): void {
    let message: CdpMessage;
    try {
      message = toCdpMessage(raw);
    } catch (error) {
      this.end(`${this.library.info.name} sent a message that is not JSON: ${messageOf(error)}`);
      return;
    }
    this.outstanding.delete(raw.id);
    if (message.method === "Inspector.detached" && message.sessionId === undefined)
      this.lastWords = (message.params as { reason?: string } | undefined)?.reason ?? null;
    this.onMessage(message);
  }

  /** Right after activity more is likely, so there is no pause; then pauses double up to their limit. */
  private schedule(): void {
    if (this.closed || this.wakeTimer || this.wakeImmediate) return;
    if (this.quietTurns < EAGER_TURNS) {
      this.wakeImmediate = setImmediate(() => this.turn());
      return;
    }
    const limitMs = this.outstanding.size > 0 ? PAUSE_MS_MAX_WAITING : PAUSE_MS_MAX_IDLE;
    const pauseMs = Math.min(limitMs, PAUSE_MS_MIN * 2 ** Math.min(this.quietTurns - EAGER_TURNS, 10));
    this.wakeTimer = setTimeout(() => this.turn(), pauseMs);
  }

  private wake(): void {
    this.quietTurns = 0;
    if (this.wakeTimer) clearTimeout(this.wakeTimer);
    this.wakeTimer = null;
    this.schedule();
  }

  private end(reason: string): void {
    if (this.closed) return;
    this.closed = true;
    if (this.wakeTimer) clearTimeout(this.wakeTimer);
    if (this.wakeImmediate) clearImmediate(this.wakeImmediate);
    this.backlog.length = 0;
    this.outstanding.clear();
    this.library.destroy(this.handle);
    this.onClose(reason);
  }

  async close(): Promise<void> {
    this.end("closed");
  }
}

/** Loads the library and starts its engine; from there on it looks like the pipe to a Chromium. */
export async function openForeignTransport(
  engine: ForeignEngine,
  options: ForeignOptions = {},
): Promise<EngineTransport> {
  const library = new EngineLibrary(engine.libraryPath);
  if (library.info.name !== engine.name)
    throw new SetupError(
      "engine_library_invalid",
      `${engine.libraryPath} is the engine "${library.info.name}", not ${engine.name}.`,
      { wayOut: `Set BROWSER_BACKEND and the library's variable for the same engine.` },
    );
  return new ForeignTransport(library, library.create(options));
}
