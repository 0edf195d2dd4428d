/**
 * The node's end of the tunnel: sends each tunnelled request to the local engine and returns the answer as the engine
 * produces it, no faster than the gateway's caller reads.
 */
import { type FrameChannel, ReceiveBody, SendWindow, sendBody } from "./flow.ts";
import {
  decodeFrame,
  encodeCredit,
  encodeEnd,
  encodeHead,
  encodeReset,
  FrameError,
  FrameType,
  type OpenMeta,
  type ResetCode,
  SPARE_STREAMS,
  STREAMS_MAX,
  TunnelError,
} from "./frames.ts";
import { tunnelledHeaders } from "./headers.ts";

export interface EngineTarget {
  /** Such as http://127.0.0.1:20001, without a trailing slash. */
  baseUrl: string;
  apiKey: string | null;
}

interface ServerStream {
  id: number;
  window: SendWindow;
  body: ReceiveBody | null;
  abort: AbortController;
}

export type EngineFetch = (url: string, init: BunFetchRequestInit) => Promise<Response>;

export class TunnelServer {
  readonly #channel: FrameChannel;
  readonly #target: (modelId: string) => EngineTarget | null;
  readonly #streamsMax: number;
  readonly #fetch: EngineFetch;
  readonly #streams = new Map<number, ServerStream>();

  constructor(options: {
    channel: FrameChannel;
    /** Where the model is currently served; null when it is not. */
    target: (modelId: string) => EngineTarget | null;
    /** Requests at once; a few more are taken for probes. */
    streamsMax?: number;
    fetch?: EngineFetch;
  }) {
    this.#channel = options.channel;
    this.#target = options.target;
    this.#streamsMax = options.streamsMax ?? STREAMS_MAX;
    this.#fetch = options.fetch ?? fetch;
  }

  get openStreams(): number {
    return this.#streams.size;
  }

  /** Handles one binary message from the gateway. Throws FrameError when it is not a valid frame. */
  receive(message: Uint8Array): void {
    const frame = decodeFrame(message);
    if (frame.type === FrameType.head) throw new FrameError("only the node sends heads");
    if (frame.type === FrameType.open) {
      this.#open(frame.streamId, frame.meta);
      return;
    }
    const stream = this.#streams.get(frame.streamId);
    if (!stream) return;
    try {
      if (frame.type === FrameType.data) {
        if (!stream.body) throw new FrameError("body bytes on a request without a body");
        stream.body.push(frame.bytes);
      } else if (frame.type === FrameType.end) stream.body?.end();
      else if (frame.type === FrameType.credit) stream.window.grant(frame.creditBytes);
      else this.#end(stream, new TunnelError(frame.code, frame.message));
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#reset(stream, "protocol_error", error.message);
    }
  }

  /** The WebSocket is gone: aborts every engine request, so that no tokens are generated in vain. */
  close(): void {
    for (const stream of [...this.#streams.values()])
      this.#end(stream, new TunnelError("tunnel_closed", "the gateway's connection is gone"));
  }

  #open(id: number, meta: OpenMeta): void {
    const refuse = (code: ResetCode, message: string) =>
      this.#channel.send(encodeReset(id, { code, message }));
    const running = this.#streams.get(id);
    if (running) {
      this.#reset(running, "protocol_error", `stream ${id} was opened twice`);
      return;
    }
    if (this.#streams.size >= this.#streamsMax + SPARE_STREAMS) {
      refuse("too_many_streams", `this node carries at most ${this.#streamsMax} requests in its tunnel`);
      return;
    }
    const target = this.#target(meta.model_id);
    if (!target) {
      refuse("no_model", `model ${meta.model_id} is not served on this node now`);
      return;
    }
    const stream: ServerStream = {
      id,
      window: new SendWindow(),
      abort: new AbortController(),
      body: meta.has_body
        ? new ReceiveBody({
            onCredit: (bytes) => this.#channel.send(encodeCredit(id, bytes)),
            onCancel: () => undefined,
          })
        : null,
    };
    this.#streams.set(id, stream);
    void this.#exchange(stream, meta, target);
  }

  async #exchange(stream: ServerStream, meta: OpenMeta, target: EngineTarget): Promise<void> {
    let headSent = false;
    try {
      const response = await this.#fetch(`${target.baseUrl}${meta.path}`, {
        method: meta.method,
        headers: engineHeaders(meta, target),
        ...(stream.body ? { body: stream.body.stream, duplex: "half" } : {}),
        signal: stream.abort.signal,
        redirect: "manual",
        // Engines close idle connections and restart; a fresh loopback connection costs less than that race.
        keepalive: false,
        timeout: false,
      } as BunFetchRequestInit);
      this.#channel.send(
        encodeHead(stream.id, {
          status: response.status,
          // fetch has already undone any content coding.
          headers: tunnelledHeaders(
            response.headers,
            response.headers.has("content-encoding") ? ["content-encoding", "content-length"] : [],
          ),
        }),
      );
      headSent = true;
      const { id: streamId, window } = stream;
      if (response.body) await sendBody({ channel: this.#channel, streamId, window, source: response.body });
      else this.#channel.send(encodeEnd(streamId));
      this.#streams.delete(streamId);
    } catch (error) {
      this.#reset(stream, headSent ? "engine_failed" : codeOf(error), describe(error));
    }
  }

  #reset(stream: ServerStream, code: ResetCode, message: string): void {
    if (!this.#streams.has(stream.id)) return;
    this.#channel.send(encodeReset(stream.id, { code, message }));
    this.#end(stream, new TunnelError(code, message));
  }

  #end(stream: ServerStream, error: TunnelError): void {
    if (!this.#streams.delete(stream.id)) return;
    stream.window.fail(error);
    stream.body?.failNow(error);
    stream.abort.abort(error);
  }
}

function engineHeaders(meta: OpenMeta, target: EngineTarget): [string, string][] {
  // The engine knows only the node's own key, not the caller's credentials.
  const headers = tunnelledHeaders(meta.headers, ["authorization", "accept-encoding", "cookie"]);
  headers.push(["accept-encoding", "identity"]);
  if (target.apiKey) headers.push(["authorization", `Bearer ${target.apiKey}`]);
  return headers;
}

/** Why the engine has not answered. Behind another tunnel, what that one says. */
function codeOf(error: unknown): ResetCode {
  if (error instanceof TunnelError && error.neverStarted) return error.code;
  const { code } = error as { code?: unknown };
  return code === "ECONNREFUSED" ? "engine_unreachable" : "engine_failed";
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
