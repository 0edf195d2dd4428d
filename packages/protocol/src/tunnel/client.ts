/**
 * The gateway's end of the tunnel: requests to an engine on the node, carried by frames. Answers are handed on as they
 * come, held back while their reader is slow, and an abort reaches the engine at once.
 */
import { type BodyReader, BodyReceiver, BodySender, type FrameChannel, type Pausable } from "./flow.ts";
import {
  decodeFrames,
  encodeOpen,
  encodeReset,
  FrameError,
  FrameType,
  type HeadMeta,
  PATH,
  parseCredit,
  parseHead,
  parseReset,
  STREAM_ID_MAX,
  TunnelError,
} from "./frames.ts";
import { tunnelledHeaders } from "./headers.ts";

export interface TunnelRequest {
  modelId: string;
  method: string;
  /** With query. */
  path: string;
  headers: Iterable<[string, string]>;
  body: Uint8Array | null;
}

export interface AnswerReader extends BodyReader {
  /** Comes first, unless the request fails before. */
  head(meta: HeadMeta): void;
}

export interface TunnelStream extends Pausable {
  /** Ends it; the reader hears nothing more. */
  cancel(why?: string): void;
}

/** The least that a request of another instance needs of a node's tunnel. */
export interface RelayedStream {
  /** A frame from the instance that asks. */
  send(type: FrameType, payload: Uint8Array): void;
}

/** One end of a stream. */
interface Peer {
  readonly hasBody: boolean;
  receive(type: FrameType, payload: Uint8Array): void;
  /** Ended by the other side. */
  lost(error: TunnelError): void;
}

export interface TunnelFetchInit {
  method?: string;
  headers?: HeadersInit;
  body?: string | Uint8Array<ArrayBuffer> | Blob | FormData | null;
  signal?: AbortSignal;
}

const NULL_BODY_STATUS = new Set([204, 205, 304]);

export class TunnelClient {
  readonly #streams = new Map<number, Peer>();
  /** Requests with a body that the node takes at once; probes have none. */
  streamsMax = Number.POSITIVE_INFINITY;
  #bodies = 0;
  #lastId = 0;
  #closedBecause: string | null = null;

  constructor(readonly channel: FrameChannel) {}

  get openStreams(): number {
    return this.#streams.size;
  }

  /** Throws a TunnelError when the tunnel is gone or full. */
  open(request: TunnelRequest, reader: AnswerReader): TunnelStream {
    const { modelId, method, path, body } = request;
    if (!PATH.test(path)) throw new FrameError("a path begins with a slash and has no spaces");
    const meta = encodeOpen({
      model_id: modelId,
      method,
      path,
      headers: tunnelledHeaders(request.headers),
      has_body: body !== null,
    });
    const streamId = this.#enter(body !== null);
    const stream = new ClientStream(this, streamId, reader, body);
    this.#streams.set(streamId, stream);
    this.channel.send(FrameType.open, streamId, meta);
    if (body) stream.sender.write(body);
    if (body) stream.sender.end();
    return stream;
  }

  /**
   * Carries a stream of another instance, whose OPEN this is: frames pass as they are, so that flow control and
   * cancellation reach from end to end.
   */
  relay(open: { payload: Uint8Array; hasBody: boolean }, toAsker: RelayedStream["send"]): RelayedStream {
    const streamId = this.#enter(open.hasBody);
    this.#streams.set(streamId, {
      hasBody: open.hasBody,
      receive: (type, payload) => {
        if (type === FrameType.end || type === FrameType.reset) this.leave(streamId);
        toAsker(type, payload);
      },
      lost: (error) => toAsker(FrameType.reset, encodeReset(error)),
    });
    this.channel.send(FrameType.open, streamId, open.payload);
    return {
      send: (type, payload) => {
        if (!this.#streams.has(streamId)) return;
        if (type === FrameType.reset) this.leave(streamId);
        this.channel.send(type, streamId, payload);
      },
    };
  }

  /** `open` in the form of the runtime's `fetch`. */
  async fetch(modelId: string, path: string, init: TunnelFetchInit = {}): Promise<Response> {
    const { signal } = init;
    signal?.throwIfAborted();
    const sent = init.body == null ? null : new Response(init.body);
    const headers = new Headers(init.headers);
    // A form's parts are told apart by what its type says, which the runtime forgets once it is read.
    const type = sent?.headers.get("content-type");
    if (type && !headers.has("content-type")) headers.set("content-type", type);
    const body = sent && new Uint8Array(await sent.arrayBuffer());
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    let fail = reject;
    const onAbort = () => {
      stream.cancel();
      fail(signal!.reason);
    };
    const done = () => signal?.removeEventListener("abort", onAbort);
    const content = new ReadableStream<Uint8Array>({
      start: (given) => {
        controller = given;
      },
      pull: () => stream.resume(),
      cancel: () => {
        done();
        stream.cancel();
      },
    });
    const stream = this.open(
      {
        modelId,
        method: init.method ?? (body ? "POST" : "GET"),
        path,
        headers,
        body,
      },
      {
        head({ status, headers }) {
          fail = (error) => controller.error(error);
          try {
            resolve(new Response(NULL_BODY_STATUS.has(status) ? null : content, { status, headers }));
          } catch {
            stream.cancel("headers that are none");
            reject(new TunnelError("protocol_error", "the node sent headers that are none"));
          }
        },
        piece(bytes) {
          controller.enqueue(bytes);
          if ((controller.desiredSize ?? 0) <= 0) stream.pause();
        },
        end() {
          done();
          controller.close();
        },
        failed(error) {
          done();
          fail(error);
        },
      },
    );
    signal?.addEventListener("abort", onAbort, { once: true });
    return promise;
  }

  /** Handles one binary message from the node. Throws FrameError when the node violates the protocol. */
  receive(message: Uint8Array): void {
    for (const { type, streamId, payload } of decodeFrames(message)) {
      if (type === FrameType.open) throw new FrameError("only the gateway opens streams");
      const stream = this.#streams.get(streamId);
      try {
        stream?.receive(type, payload);
      } catch (error) {
        if (!(error instanceof FrameError)) throw error;
        this.reset(streamId, new TunnelError("protocol_error", error.message));
      }
    }
  }

  /** The WebSocket is gone: pending and later requests fail. */
  close(reason: string): void {
    if (this.#closedBecause !== null) return;
    this.#closedBecause = reason;
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) stream.lost(new TunnelError("tunnel_closed", reason));
  }

  #enter(hasBody: boolean): number {
    // Nothing was sent, so another node may be asked.
    if (this.#closedBecause !== null) throw new TunnelError("no_model", this.#closedBecause);
    if (hasBody && this.#bodies >= this.streamsMax)
      throw new TunnelError(
        "too_many_streams",
        `the node has ${this.streamsMax} requests, as many as it takes`,
      );
    do this.#lastId = this.#lastId >= STREAM_ID_MAX ? 1 : this.#lastId + 1;
    while (this.#streams.has(this.#lastId));
    if (hasBody) this.#bodies++;
    return this.#lastId;
  }

  leave(streamId: number): Peer | null {
    const stream = this.#streams.get(streamId);
    if (!stream) return null;
    this.#streams.delete(streamId);
    if (stream.hasBody) this.#bodies--;
    return stream;
  }

  /** Ends a stream from this side and tells the node; its reader is told, too. */
  reset(streamId: number, error: TunnelError): void {
    const stream = this.leave(streamId);
    if (!stream) return;
    this.channel.send(FrameType.reset, streamId, encodeReset(error));
    stream.lost(error);
  }
}

/** A request of this process. */
class ClientStream implements Peer, TunnelStream {
  readonly sender: BodySender;
  readonly hasBody: boolean;
  readonly #body: BodyReceiver;
  #hasHead = false;

  constructor(
    readonly client: TunnelClient,
    readonly streamId: number,
    readonly reader: AnswerReader,
    body: Uint8Array | null,
  ) {
    const options = { channel: client.channel, streamId };
    this.hasBody = body !== null;
    this.sender = new BodySender(options);
    this.#body = new BodyReceiver(options, reader);
  }

  receive(type: FrameType, payload: Uint8Array): void {
    if (type === FrameType.data && this.#hasHead) this.#body.push(payload);
    else if (type === FrameType.head && !this.#hasHead) {
      const meta = parseHead(payload);
      this.#hasHead = true;
      this.reader.head(meta);
    } else if (type === FrameType.end && this.#hasHead) {
      this.client.leave(this.streamId);
      // The rest of the request is pointless once the answer is complete.
      this.sender.close();
      this.#body.end();
    } else if (type === FrameType.credit) this.sender.grant(parseCredit(payload));
    else if (type === FrameType.reset) {
      const error = parseReset(payload);
      this.client.leave(this.streamId);
      this.lost(error);
    } else throw new FrameError("an answer is one head, its body and its end");
  }

  lost(error: TunnelError): void {
    this.sender.close();
    this.#body.end(error);
  }

  pause(): void {
    this.#body.pause();
  }

  resume(): void {
    this.#body.resume();
  }

  cancel(message = "the caller went away"): void {
    if (!this.client.leave(this.streamId)) return;
    this.sender.close();
    this.client.channel.send(FrameType.reset, this.streamId, encodeReset({ code: "cancelled", message }));
  }
}
