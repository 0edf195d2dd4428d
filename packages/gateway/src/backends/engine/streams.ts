import type { ChatChunkParams } from "@model-gateway/protocol/engine.ts";
import type { RpcConnection } from "@model-gateway/wire/json-rpc";
import { isObject } from "../../kernel/json.ts";
import { BackendError, type MediaRates, type RealtimeLink, type RealtimeOpen } from "../contract.ts";
import { ChatEvents, type ChatIdentity, errorEvent } from "../shared/chat-events.ts";
import { toDelta } from "./protocol.ts";

/** The protocol cannot slow an engine down: a reader that is further behind loses the stream. */
const STREAM_BUFFER_BYTES_MAX = 4 * 1024 * 1024;
const REALTIME_START_TIMEOUT_MS = 15_000;

export type StreamTable = Map<string, (chunk: ChatChunkParams) => void>;

interface OpenStreamOptions {
  connection: RpcConnection;
  table: StreamTable;
  streamId: string;
  params: Record<string, unknown>;
  identity: ChatIdentity;
  signal: AbortSignal;
}

class ChunkConverter {
  readonly #events: ChatEvents;
  #finishReason = "stop";
  #usage: unknown;
  done = false;

  constructor(identity: ChatIdentity) {
    this.#events = new ChatEvents(identity);
  }

  convert({ delta, finish_reason, usage, done, error }: ChatChunkParams): string {
    if (error !== undefined && error !== null) {
      this.done = true;
      return errorEvent(isObject(error) ? String(error.message ?? "the engine failed") : String(error));
    }
    if (usage) this.#usage = usage;
    const piece = toDelta(delta);
    if (piece.tool_calls) this.#finishReason = "tool_calls";
    if (typeof finish_reason === "string") this.#finishReason = finish_reason;
    let events = Object.keys(piece).length > 0 ? this.#events.delta(piece) : "";
    if (done === true) {
      this.done = true;
      events += this.#events.end(this.#finishReason, this.#usage);
    }
    return events;
  }
}

/** Starts a streamed answer. Resolves when the engine has accepted the request. */
export async function openChatStream(options: OpenStreamOptions): Promise<ReadableStream<Uint8Array>> {
  const { connection, table, streamId, params, identity, signal } = options;
  const converter = new ChunkConverter(identity);
  const encoder = new TextEncoder();
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const cleanup: (() => void)[] = [];
  let ended = false;
  /** Ends the stream once. `error` is for its reader; `cancel` stops the engine. */
  const end = ({ error, cancel }: { error?: unknown; cancel?: boolean } = {}) => {
    if (ended) return;
    ended = true;
    for (const undo of cleanup) undo();
    if (cancel) connection.notify("Engine.ChatCancel", { stream_id: streamId });
    if (error !== undefined) controller.error(error);
  };

  const body = new ReadableStream<Uint8Array>(
    {
      start: (given) => {
        controller = given;
      },
      cancel: () => end({ cancel: true }),
    },
    new ByteLengthQueuingStrategy({ highWaterMark: STREAM_BUFFER_BYTES_MAX }),
  );
  table.set(streamId, (chunk) => {
    const events = converter.convert(chunk);
    if (events) controller.enqueue(encoder.encode(events));
    if (converter.done) {
      end();
      controller.close();
    } else if ((controller.desiredSize ?? 0) <= 0) {
      const error = new BackendError("transport", "the answer was not read as fast as the engine wrote it");
      end({ error, cancel: true });
    }
  });
  const onAbort = () => end({ error: signal.reason, cancel: true });
  signal.addEventListener("abort", onAbort, { once: true });
  cleanup.push(
    () => table.delete(streamId),
    () => signal.removeEventListener("abort", onAbort),
    connection.hold(),
  );
  // Last, because a closed connection calls back immediately.
  cleanup.push(connection.onClose((reason) => end({ error: new BackendError("transport", reason) })));
  try {
    await connection.call("Engine.ChatStart", { ...params, stream_id: streamId }, { signal });
  } catch (error) {
    end({ error, cancel: signal.aborted });
    throw error;
  }
  return body;
}

/** An engine may run any model, so these are the highest known rates. */
export const ENGINE_RATES: MediaRates = {
  inputAudioHz: 16_000,
  outputAudioHz: 24_000,
  inputAudioTokensPerSecond: 25,
  outputAudioTokensPerSecond: 25,
  audioSecondsMin: 0,
  tokensPerImage: 1_445,
};

interface EngineSession {
  onEvent(event: Record<string, unknown>): void;
  onStop(reason: string): void;
}
export type SessionTable = Map<string, EngineSession>;

export async function openRealtime(
  connection: RpcConnection,
  table: SessionTable,
  { sessionId, model, config, onEvent, onClose }: RealtimeOpen,
  signal: AbortSignal,
): Promise<RealtimeLink> {
  const cleanup: (() => void)[] = [];
  let open = true;
  const end = (then: () => void) => {
    if (!open) return;
    open = false;
    for (const undo of cleanup) undo();
    then();
  };
  const stopped = (reason: string) => end(() => onClose(reason));
  table.set(sessionId, { onEvent, onStop: stopped });
  cleanup.push(() => table.delete(sessionId), connection.hold());
  try {
    const params = { session_id: sessionId, model, config };
    await connection.call("Engine.RealtimeStart", params, { signal, timeoutMs: REALTIME_START_TIMEOUT_MS });
  } catch (error) {
    end(() => connection.notify("Engine.RealtimeStop", { session_id: sessionId }));
    throw error;
  }
  cleanup.push(connection.onClose(stopped));
  return {
    send: (event) => open && connection.notify("Engine.RealtimeEvent", { session_id: sessionId, event }),
    close: () => end(() => connection.notify("Engine.RealtimeStop", { session_id: sessionId })),
  };
}
