/**
 * The binary frames of HTTP tunnelled over the agent's WebSocket, one frame per binary message:
 *
 *     byte 0      type
 *     bytes 1-4   stream id, unsigned, big endian; chosen by the gateway, 1 and up
 *     bytes 5-    payload
 *
 * A stream is one HTTP exchange. OPEN (gateway) starts it; DATA and END carry the request body one way and, after HEAD
 * (agent), the response body the other way. Body bytes need credit: each direction starts with WINDOW_BYTES, and
 * CREDIT returns what the receiver's consumer has read. RESET ends both directions at once, from either side. Frames
 * of a finished stream are ignored.
 */
import { z } from "zod";
import { ModelId } from "../model-id.ts";

export const FrameType = {
  open: 1,
  head: 2,
  data: 3,
  end: 4,
  reset: 5,
  credit: 6,
} as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

export const HEADER_BYTES = 5;
/** Unread body bytes that one direction of one stream may hold in memory. */
export const WINDOW_BYTES = 256 * 1024;
/** Small, so that tokens of other streams get through between two frames of a large body. */
export const DATA_BYTES_MAX = 32 * 1024;
export const META_BYTES_MAX = 64 * 1024;
export const FRAME_BYTES_MAX = HEADER_BYTES + META_BYTES_MAX;
export const STREAM_ID_MAX = 0xffff_ffff;
/** Requests that one node takes at once. */
export const STREAMS_MAX = 2_000;
/** What a node takes besides, so that probes are answered while it is full. */
export const SPARE_STREAMS = 40;

const HeaderList = z.array(z.tuple([z.string(), z.string()])).max(200);

export const OpenMeta = z.object({
  model_id: ModelId,
  method: z.string().regex(/^[A-Z]{3,10}$/),
  /** Path and query of the engine's request line. */
  path: z.string().regex(/^\/[\x21-\x7e]*$/),
  headers: HeaderList,
  has_body: z.boolean(),
});
export type OpenMeta = z.infer<typeof OpenMeta>;

export const HeadMeta = z.object({ status: z.int().min(200).max(599), headers: HeaderList });
export type HeadMeta = z.infer<typeof HeadMeta>;

export const ResetCode = z.enum([
  /** The caller went away. */
  "cancelled",
  /** This node does not serve the model now. */
  "no_model",
  /** The engine did not accept the connection, so it has not seen the request. */
  "engine_unreachable",
  /** The engine failed after it received the request. */
  "engine_failed",
  "too_many_streams",
  /** The other side violated this protocol. */
  "protocol_error",
  /** The WebSocket under the stream is gone. Never sent; reported to local callers. */
  "tunnel_closed",
  /** No HEAD within the caller's deadline. Never sent; reported to local callers. */
  "timeout",
]);
export type ResetCode = z.infer<typeof ResetCode>;

const ResetMeta = z.object({ code: ResetCode.catch("engine_failed"), message: z.string().max(4096) });

/** How a tunnelled exchange failed. */
export class TunnelError extends Error {
  override name = "TunnelError";
  constructor(
    readonly code: ResetCode,
    message: string,
  ) {
    super(message);
  }

  /** The engine has certainly not started, so the request may be tried elsewhere. */
  get neverStarted(): boolean {
    return this.code === "no_model" || this.code === "engine_unreachable" || this.code === "too_many_streams";
  }
}

/** The peer sent an invalid frame; close the WebSocket with 1002. */
export class FrameError extends Error {
  override name = "FrameError";
}

export type Frame =
  | { type: typeof FrameType.open; streamId: number; meta: OpenMeta }
  | { type: typeof FrameType.head; streamId: number; meta: HeadMeta }
  | { type: typeof FrameType.data; streamId: number; bytes: Uint8Array }
  | { type: typeof FrameType.end; streamId: number }
  | { type: typeof FrameType.reset; streamId: number; code: ResetCode; message: string }
  | { type: typeof FrameType.credit; streamId: number; creditBytes: number };

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

function frameOf(type: FrameType, streamId: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(HEADER_BYTES + payload.byteLength);
  frame[0] = type;
  new DataView(frame.buffer).setUint32(1, streamId);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

function metaFrame(type: FrameType, streamId: number, meta: unknown): Uint8Array {
  const payload = encoder.encode(JSON.stringify(meta));
  if (payload.byteLength > META_BYTES_MAX)
    throw new FrameError(
      `the headers of a tunnelled message take ${payload.byteLength} bytes; at most ${META_BYTES_MAX} fit`,
    );
  return frameOf(type, streamId, payload);
}

export const encodeOpen = (streamId: number, meta: OpenMeta) => metaFrame(FrameType.open, streamId, meta);
export const encodeHead = (streamId: number, meta: HeadMeta) => metaFrame(FrameType.head, streamId, meta);
export const encodeEnd = (streamId: number) => frameOf(FrameType.end, streamId, new Uint8Array(0));

export function encodeData(streamId: number, bytes: Uint8Array): Uint8Array {
  if (bytes.byteLength === 0 || bytes.byteLength > DATA_BYTES_MAX)
    throw new FrameError(`a data frame carries 1-${DATA_BYTES_MAX} bytes, not ${bytes.byteLength}`);
  return frameOf(FrameType.data, streamId, bytes);
}

export function encodeReset(streamId: number, reset: { code: ResetCode; message: string }): Uint8Array {
  return metaFrame(FrameType.reset, streamId, { code: reset.code, message: reset.message.slice(0, 4096) });
}

export function encodeCredit(streamId: number, creditBytes: number): Uint8Array {
  const payload = new Uint8Array(4);
  new DataView(payload.buffer).setUint32(0, creditBytes);
  return frameOf(FrameType.credit, streamId, payload);
}

function parseMeta<T>(schema: z.ZodType<T>, payload: Uint8Array, what: string): T {
  if (payload.byteLength > META_BYTES_MAX) throw new FrameError(`${what} frame over ${META_BYTES_MAX} bytes`);
  try {
    return schema.parse(JSON.parse(decoder.decode(payload)));
  } catch (cause) {
    throw new FrameError(`${what} frame is malformed`, { cause });
  }
}

/** Decodes one binary message. Throws FrameError for anything that is not part of this protocol. */
export function decodeFrame(message: Uint8Array): Frame {
  if (message.byteLength < HEADER_BYTES) throw new FrameError("frame shorter than its header");
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const streamId = view.getUint32(1);
  if (streamId === 0) throw new FrameError("stream id 0 is not used");
  const payload = message.subarray(HEADER_BYTES);
  const type = message[0];
  switch (type) {
    case FrameType.open:
      return { type, streamId, meta: parseMeta(OpenMeta, payload, "open") };
    case FrameType.head:
      return { type, streamId, meta: parseMeta(HeadMeta, payload, "head") };
    case FrameType.data:
      if (payload.byteLength === 0 || payload.byteLength > DATA_BYTES_MAX)
        throw new FrameError(`data frame of ${payload.byteLength} bytes`);
      return { type, streamId, bytes: payload };
    case FrameType.end:
      return { type, streamId };
    case FrameType.reset:
      return { type, streamId, ...parseMeta(ResetMeta, payload, "reset") };
    case FrameType.credit: {
      if (payload.byteLength !== 4) throw new FrameError("credit frame without its number");
      return { type, streamId, creditBytes: view.getUint32(HEADER_BYTES) };
    }
    default:
      throw new FrameError(`unknown frame type ${type}`);
  }
}
