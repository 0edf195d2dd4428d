/**
 * The gateway's end of the tunnel: `fetch` to an engine on the node, carried by frames. It streams in both directions,
 * stops reading when the caller does, and passes an abort on to the engine at once.
 */
import { type FrameChannel, ReceiveBody, SendWindow, sendBody } from "./flow.ts";
import {
  decodeFrame,
  encodeCredit,
  encodeOpen,
  encodeReset,
  type Frame,
  FrameError,
  FrameType,
  type HeadMeta,
  OpenMeta,
  SPARE_STREAMS,
  STREAM_ID_MAX,
  STREAMS_MAX,
  TunnelError,
} from "./frames.ts";
import { tunnelledHeaders } from "./headers.ts";

/** Requests that wait for a place in the tunnel, in the order in which they came, and for how long. */
export const WAITING_MAX = 2_000;
const WAIT_MS = 60_000;

export interface TunnelFetchInit {
  method?: string;
  headers?: HeadersInit;
  body?: string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array> | null;
  signal?: AbortSignal;
  /** Deadline for the response's head; without it the caller's signal is the only deadline. */
  headTimeoutMs?: number;
}

interface ClientStream {
  id: number;
  window: SendWindow;
  body: ReceiveBody;
  headArrived: boolean;
  resolveHead: (head: HeadMeta) => void;
  rejectHead: (error: unknown) => void;
  /** Detaches from the caller's signal and deadline, and gives its place in the tunnel to the next. */
  release: () => void;
}

interface Waiting {
  /** It has a place now. */
  enter: () => void;
  fail: (error: TunnelError) => void;
}

const NULL_BODY_STATUS = new Set([204, 205, 304]);

export class TunnelClient {
  readonly #channel: FrameChannel;
  readonly #waitMs: number;
  readonly #streams = new Map<number, ClientStream>();
  /** Requests with a body that the other side takes at once. */
  streamsMax: number;
  #placesTaken = 0;
  readonly #waiting = new Set<Waiting>();
  #lastId = 0;
  #closedBecause: string | null = null;

  constructor(options: { channel: FrameChannel; streamsMax?: number; waitMs?: number }) {
    this.#channel = options.channel;
    this.streamsMax = options.streamsMax ?? STREAMS_MAX;
    this.#waitMs = options.waitMs ?? WAIT_MS;
  }

  get openStreams(): number {
    return this.#streams.size;
  }

  /**
   * Like `fetch`, to `path` (with query) of the engine that serves `modelId`. Failures are TunnelErrors. Where the
   * tunnel is full, a request with a body waits for a place; probes have none and do not wait.
   */
  async fetch(modelId: string, path: string, init: TunnelFetchInit = {}): Promise<Response> {
    init.signal?.throwIfAborted();
    if (this.#closedBecause !== null) throw new TunnelError("tunnel_closed", this.#closedBecause);
    const body = bodyOf(init);
    const meta = OpenMeta.parse({
      model_id: modelId,
      method: init.method ?? (body ? "POST" : "GET"),
      path,
      headers: headersOf(init, body),
      has_body: body !== null,
    });
    if (body && this.#placesTaken >= this.streamsMax) await this.#waitForPlace(init.signal);
    else if (body) this.#placesTaken++;
    else if (this.#streams.size >= this.streamsMax + SPARE_STREAMS) throw this.#full();
    const head = Promise.withResolvers<HeadMeta>();
    const stream = this.#createStream(head.resolve, head.reject);
    if (body) stream.release = () => this.#leavePlace();
    try {
      this.#channel.send(encodeOpen(stream.id, meta));
    } catch (error) {
      this.#remove(stream);
      throw error;
    }
    if (body) this.#pumpRequest(stream, body.stream);

    this.#watchCaller(stream, init);
    const { status, headers } = await head.promise;
    const empty = NULL_BODY_STATUS.has(status) || meta.method === "HEAD";
    try {
      return new Response(empty ? null : stream.body.stream, { status, headers });
    } catch {
      const error = new TunnelError("protocol_error", "the node sent headers that are none");
      this.#abandon(stream, error, "protocol_error");
      throw error;
    }
  }

  /** Handles one binary message from the node. Throws FrameError when the node violates the protocol. */
  receive(message: Uint8Array): void {
    const frame = decodeFrame(message);
    if (frame.type === FrameType.open) throw new FrameError("only the gateway opens streams");
    const stream = this.#streams.get(frame.streamId);
    if (!stream) return;
    try {
      this.#receive(stream, frame);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#abandon(stream, new TunnelError("protocol_error", error.message), "protocol_error");
    }
  }

  /** The WebSocket is gone: pending and later requests fail. */
  close(reason: string): void {
    if (this.#closedBecause !== null) return;
    this.#closedBecause = reason;
    for (const { fail } of this.#waiting) fail(new TunnelError("tunnel_closed", reason));
    for (const stream of [...this.#streams.values()])
      this.#finish(stream, new TunnelError("tunnel_closed", reason));
  }

  #full(): TunnelError {
    return new TunnelError(
      "too_many_streams",
      `the node has ${this.streamsMax} requests, as many as it takes`,
    );
  }

  /** Returns with a place, or throws. */
  async #waitForPlace(signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.size >= WAITING_MAX) throw this.#full();
    await new Promise<void>((resolve, reject) => {
      const done = (settle: () => void) => {
        this.#waiting.delete(waiting);
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        settle();
      };
      const waiting: Waiting = { enter: () => done(resolve), fail: (error) => done(() => reject(error)) };
      const onAbort = () => done(() => reject(signal?.reason));
      signal?.addEventListener("abort", onAbort, { once: true });
      const timer = setTimeout(() => waiting.fail(this.#full()), this.#waitMs);
      this.#waiting.add(waiting);
    });
    // Both may have happened since it was given its place.
    if (this.#closedBecause === null && !signal?.aborted) return;
    this.#leavePlace();
    throw signal?.aborted ? signal.reason : new TunnelError("tunnel_closed", this.#closedBecause!);
  }

  /** The place goes to the one that has waited longest. */
  #leavePlace(): void {
    const [next] = this.#waiting;
    if (next && this.#placesTaken <= this.streamsMax) next.enter();
    else this.#placesTaken--;
  }

  #createStream(
    resolveHead: ClientStream["resolveHead"],
    rejectHead: ClientStream["rejectHead"],
  ): ClientStream {
    do this.#lastId = this.#lastId >= STREAM_ID_MAX ? 1 : this.#lastId + 1;
    while (this.#streams.has(this.#lastId));
    const id = this.#lastId;
    const stream: ClientStream = {
      id,
      window: new SendWindow(),
      headArrived: false,
      resolveHead,
      rejectHead,
      release: () => undefined,
      body: new ReceiveBody({
        onCredit: (bytes) => this.#channel.send(encodeCredit(id, bytes)),
        onCancel: () => this.#abandon(stream, new TunnelError("cancelled", "the caller went away")),
      }),
    };
    this.#streams.set(id, stream);
    return stream;
  }

  #watchCaller(stream: ClientStream, { signal, headTimeoutMs }: TunnelFetchInit): void {
    const onAbort = () => this.#abandon(stream, signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    const onLate = () => {
      if (!stream.headArrived)
        this.#abandon(stream, new TunnelError("timeout", `no response head in ${headTimeoutMs} ms`));
    };
    const timer = headTimeoutMs === undefined ? undefined : setTimeout(onLate, headTimeoutMs);
    const { release } = stream;
    stream.release = () => {
      release();
      signal?.removeEventListener("abort", onAbort);
      clearTimeout(timer);
    };
  }

  #remove(stream: ClientStream): boolean {
    if (!this.#streams.delete(stream.id)) return false;
    stream.release();
    return true;
  }

  #receive(stream: ClientStream, frame: Exclude<Frame, { type: typeof FrameType.open }>): void {
    switch (frame.type) {
      case FrameType.head:
        if (stream.headArrived) throw new FrameError("a second response head");
        stream.headArrived = true;
        stream.resolveHead(frame.meta);
        return;
      case FrameType.data:
        if (!stream.headArrived) throw new FrameError("body before head");
        stream.body.push(frame.bytes);
        return;
      case FrameType.end:
        if (!stream.headArrived) throw new FrameError("end before head");
        this.#remove(stream);
        // The rest of the request is pointless once the response is complete.
        stream.window.fail(new TunnelError("cancelled", "the response is complete"));
        stream.body.end();
        return;
      case FrameType.reset:
        this.#finish(stream, new TunnelError(frame.code, frame.message));
        return;
      case FrameType.credit:
        stream.window.grant(frame.creditBytes);
    }
  }

  #pumpRequest(stream: ClientStream, source: ReadableStream<Uint8Array>): void {
    sendBody({ channel: this.#channel, streamId: stream.id, window: stream.window, source }).catch(
      (error: unknown) => this.#abandon(stream, error),
    );
  }

  /** Ends a stream from this side: the node is told, and the local caller sees `reason` at once. */
  #abandon(stream: ClientStream, reason: unknown, code: "cancelled" | "protocol_error" = "cancelled"): void {
    if (!this.#remove(stream)) return;
    const message = reason instanceof Error ? reason.message : "the caller went away";
    this.#channel.send(encodeReset(stream.id, { code, message }));
    stream.window.fail(new TunnelError("cancelled", message));
    stream.rejectHead(reason);
    stream.body.failNow(reason);
  }

  /** Ends a stream from the other side: what has arrived may still be read, then comes the error. */
  #finish(stream: ClientStream, error: TunnelError): void {
    if (!this.#remove(stream)) return;
    stream.window.fail(error);
    stream.rejectHead(error);
    stream.body.failAfterBuffered(error);
  }
}

interface OutgoingBody {
  stream: ReadableStream<Uint8Array>;
  lengthBytes: number | null;
}

function bodyOf(init: TunnelFetchInit): OutgoingBody | null {
  const { body } = init;
  if (body === undefined || body === null) return null;
  if (body instanceof ReadableStream) return { stream: body, lengthBytes: null };
  if (body instanceof Blob) return { stream: body.stream(), lengthBytes: body.size };
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      if (bytes.byteLength > 0) controller.enqueue(bytes);
      controller.close();
    },
  });
  return { stream, lengthBytes: bytes.byteLength };
}

function headersOf(init: TunnelFetchInit, body: OutgoingBody | null): [string, string][] {
  const headers = new Headers(init.headers);
  if (body && body.lengthBytes !== null) headers.set("content-length", String(body.lengthBytes));
  return tunnelledHeaders(headers);
}
