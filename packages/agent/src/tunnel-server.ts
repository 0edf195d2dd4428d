/**
 * The node's end of the tunnel: sends each tunnelled request to the local engine and returns the answer as the engine
 * produces it, no faster than the gateway's caller reads.
 */
import { BodyReceiver, BodySender, type FrameChannel } from "@model-gateway/protocol/tunnel/flow.ts";
import {
  decodeFrames,
  encodeHead,
  encodeReset,
  FrameError,
  FrameType,
  type OpenMeta,
  parseCredit,
  parseOpen,
  parseReset,
  type ResetCode,
  TunnelError,
} from "@model-gateway/protocol/tunnel/frames.ts";
import { tunnelledHeaders } from "@model-gateway/protocol/tunnel/headers.ts";
import { type FailureKind, type HttpAnswer, HttpOrigin } from "@model-gateway/wire/client";
import { systemClock } from "@model-gateway/wire/clock";

/** The gateway takes bodies up to a fraction of this. */
const REQUEST_BYTES_MAX = 256 * 1024 * 1024;

export interface EngineTarget {
  /** Such as http://127.0.0.1:20001, without a trailing slash. */
  baseUrl: string;
  apiKey: string | null;
}

interface ServerStream {
  id: number;
  modelId: string;
  sender: BodySender;
  /** Of the request; null when it has none. */
  body: BodyReceiver | null;
  abort(reason: unknown): void;
}

/** An engine's answer that is not a 2xx is passed on like any other. */
class OtherStatus extends Error {
  constructor(readonly answer: HttpAnswer) {
    super(`status ${answer.status}`);
  }
}

export class TunnelServer {
  readonly #streams = new Map<number, ServerStream>();
  readonly #origins = new Map<string, HttpOrigin>();

  constructor(
    readonly options: {
      channel: FrameChannel;
      /** Where the model is currently served; null when it is not. */
      target: (modelId: string) => EngineTarget | null;
      /** The path at the engine; absent: as it was asked for. */
      pathOf?(path: string): string;
    },
  ) {}

  get openStreams(): number {
    return this.#streams.size;
  }

  openStreamsOf(modelId: string): number {
    return [...this.#streams.values()].filter((stream) => stream.modelId === modelId).length;
  }

  /** Handles one binary message from the gateway. Throws FrameError when it is not valid. */
  receive(message: Uint8Array): void {
    for (const { type, streamId, payload } of decodeFrames(message)) {
      const stream = this.#streams.get(streamId);
      if (type === FrameType.head) throw new FrameError("only the node sends heads");
      if (type === FrameType.open && !stream) this.#open(streamId, parseOpen(payload));
      if (!stream) continue;
      try {
        if (type === FrameType.open) throw new FrameError(`stream ${streamId} was opened twice`);
        else if (type === FrameType.credit) stream.sender.grant(parseCredit(payload));
        else if (type === FrameType.reset) this.#end(stream, parseReset(payload));
        else if (!stream.body) throw new FrameError("body bytes on a request without a body");
        else if (type === FrameType.data) stream.body.push(payload);
        else stream.body.end();
      } catch (error) {
        if (!(error instanceof FrameError)) throw error;
        this.#reset(stream, "protocol_error", error.message);
      }
    }
  }

  /** The WebSocket is gone: aborts every engine request, so that no tokens are generated in vain. */
  close(): void {
    for (const stream of [...this.#streams.values()])
      this.#end(stream, new TunnelError("tunnel_closed", "the gateway's connection is gone"));
    for (const origin of this.#origins.values()) origin.close();
  }

  #open(id: number, meta: OpenMeta): void {
    const { channel } = this.options;
    const stream: ServerStream = {
      id,
      modelId: meta.model_id,
      sender: new BodySender({ channel, streamId: id }),
      body: null,
      abort: () => {},
    };
    this.#streams.set(id, stream);
    const target = this.options.target(meta.model_id);
    if (!target) this.#reset(stream, "no_model", `model ${meta.model_id} is not served on this node now`);
    else if (meta.has_body) this.#collect(stream, (body) => this.#exchange(stream, { meta, target, body }));
    else void this.#exchange(stream, { meta, target, body: null });
  }

  /** Bodies are sent to the engine whole, with their length, which every engine understands. */
  #collect(stream: ServerStream, send: (body: Uint8Array) => Promise<void>): void {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    stream.body = new BodyReceiver(
      { channel: this.options.channel, streamId: stream.id },
      {
        piece: (piece) => {
          bytes += piece.byteLength;
          if (bytes > REQUEST_BYTES_MAX) throw new FrameError(`a request of over ${REQUEST_BYTES_MAX} bytes`);
          pieces.push(piece);
        },
        end: () => void send(pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)),
        failed() {},
      },
    );
  }

  async #exchange(
    stream: ServerStream,
    { meta, target, body }: { meta: OpenMeta; target: EngineTarget; body: Uint8Array | null },
  ): Promise<void> {
    const { channel } = this.options;
    const abort = {
      whenAborted: (run: (reason: unknown) => void) => {
        stream.abort = run;
      },
    };
    try {
      const headers = engineHeaders(meta, target);
      const origin = this.#origin(target.baseUrl);
      const path = this.options.pathOf?.(meta.path) ?? meta.path;
      const method = meta.method === "DELETE" ? "DELETE" : "GET";
      const asked = body ? origin.post(path, body, abort, headers) : origin.get(path, abort, headers, method);
      const answer = await asked.catch((error: unknown) => {
        if (error instanceof OtherStatus) return error.answer;
        throw error;
      });
      if (!this.#streams.has(stream.id)) return;
      const { status } = answer as HttpAnswer;
      const told = Object.entries(answer.headersLike!(/./));
      channel.send(FrameType.head, stream.id, encodeHead({ status, headers: tunnelledHeaders(told) }));
      const flow = answer.pipe({
        piece: (bytes) => stream.sender.write(bytes),
        flush() {},
        end: () => stream.sender.end(),
        failed: (error) => this.#reset(stream, "engine_failed", describe(error)),
      });
      stream.sender.source = flow;
      stream.sender.whenOver = () => this.#streams.delete(stream.id);
      flow.resume();
    } catch (error) {
      this.#reset(stream, error instanceof TunnelError ? error.code : "engine_failed", describe(error));
    }
  }

  /** One for each engine's port; kept connections of engines that are gone close themselves. */
  #origin(baseUrl: string): HttpOrigin {
    let origin = this.#origins.get(baseUrl);
    if (!origin) {
      const failure = (kind: FailureKind, message: string) =>
        new TunnelError(kind === "connect" ? "engine_unreachable" : "engine_failed", message);
      const errorOf = async (answer: HttpAnswer) => new OtherStatus(answer);
      origin = new HttpOrigin({ url: baseUrl, headers: {}, failure, errorOf }, systemClock);
      this.#origins.set(baseUrl, origin);
    }
    return origin;
  }

  #reset(stream: ServerStream, code: ResetCode, message: string): void {
    if (!this.#streams.has(stream.id)) return;
    this.options.channel.send(FrameType.reset, stream.id, encodeReset({ code, message }));
    this.#end(stream, new TunnelError(code, message));
  }

  #end(stream: ServerStream, error: TunnelError): void {
    if (!this.#streams.delete(stream.id)) return;
    stream.sender.close();
    stream.abort(error);
  }
}

function engineHeaders(meta: OpenMeta, target: EngineTarget): Record<string, string> {
  // The engine knows only the node's own key, not the caller's credentials.
  const dropped = ["authorization", "accept-encoding", "cookie", "content-length"];
  const headers = Object.fromEntries(tunnelledHeaders(meta.headers, dropped));
  headers["accept-encoding"] = "identity";
  if (target.apiKey) headers.authorization = `Bearer ${target.apiKey}`;
  return headers;
}

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));
