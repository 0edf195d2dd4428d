/**
 * The binary frames of HTTP tunnelled over the agent's WebSocket, one or more per binary message:
 *
 *     byte 0      type
 *     bytes 1-4   stream id, unsigned, big endian; chosen by the gateway, 1 and up
 *     bytes 5-8   length of the payload, likewise
 *     bytes 9-    payload
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

const HEADER_BYTES = 9;
/** Unread body bytes that one direction of one stream may hold in memory. */
export const WINDOW_BYTES = 256 * 1024;
/** Small, so that tokens of other streams get through between two frames of a large body. */
export const DATA_BYTES_MAX = 32 * 1024;
const META_BYTES_MAX = 64 * 1024;
export const MESSAGE_BYTES_MAX = 256 * 1024;
export const STREAM_ID_MAX = 0xffff_ffff;

/** Nothing in it can lead to another host. */
export const PATH = /^\/[\x21-\x7e]*$/;
const HeaderList = z.array(z.tuple([z.string(), z.string()])).max(200);

export const OpenMeta = z.object({
  model_id: ModelId,
  method: z.string().regex(/^[A-Z]{3,10}$/),
  /** Path and query of the engine's request line. */
  path: z.string().regex(PATH),
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
  /** The WebSocket under the stream is gone. */
  "tunnel_closed",
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

export interface Frame {
  type: FrameType;
  streamId: number;
  payload: Uint8Array;
}

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

function encodeMeta(meta: unknown): Uint8Array {
  const payload = encoder.encode(JSON.stringify(meta));
  if (payload.byteLength > META_BYTES_MAX)
    throw new FrameError(
      `the headers of a tunnelled message take ${payload.byteLength} bytes; at most ${META_BYTES_MAX} fit`,
    );
  return payload;
}

export const encodeOpen = (meta: OpenMeta): Uint8Array => encodeMeta(meta);
export const encodeHead = (meta: HeadMeta): Uint8Array => encodeMeta(meta);
export const encodeReset = ({ code, message }: { code: ResetCode; message: string }): Uint8Array =>
  encodeMeta({ code, message: message.slice(0, 4096) });

export function encodeCredit(creditBytes: number): Uint8Array {
  const payload = new Uint8Array(4);
  new DataView(payload.buffer).setUint32(0, creditBytes);
  return payload;
}

function parseMeta<T>(schema: z.ZodType<T>, payload: Uint8Array, what: string): T {
  if (payload.byteLength > META_BYTES_MAX) throw new FrameError(`${what} frame over ${META_BYTES_MAX} bytes`);
  try {
    return schema.parse(JSON.parse(decoder.decode(payload)));
  } catch (cause) {
    throw new FrameError(`${what} frame is malformed`, { cause });
  }
}

export const parseOpen = (payload: Uint8Array): OpenMeta => parseMeta(OpenMeta, payload, "open");
export const parseHead = (payload: Uint8Array): HeadMeta => parseMeta(HeadMeta, payload, "head");

export function parseReset(payload: Uint8Array): TunnelError {
  const { code, message } = parseMeta(ResetMeta, payload, "reset");
  return new TunnelError(code, message);
}

export function parseCredit(payload: Uint8Array): number {
  if (payload.byteLength !== 4) throw new FrameError("credit frame without its number");
  return new DataView(payload.buffer, payload.byteOffset).getUint32(0);
}

/** The frames of one binary message. Throws FrameError for anything that is not part of this protocol. */
export function decodeFrames(message: Uint8Array): Frame[] {
  if (message.byteLength > MESSAGE_BYTES_MAX)
    throw new FrameError(`a message of ${message.byteLength} bytes`);
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const frames: Frame[] = [];
  for (let at = 0; at < message.byteLength || frames.length === 0; ) {
    if (message.byteLength - at < HEADER_BYTES) throw new FrameError("frame shorter than its header");
    const type = message[at]! as FrameType;
    const streamId = view.getUint32(at + 1);
    const end = at + HEADER_BYTES + view.getUint32(at + 5);
    if (type < FrameType.open || type > FrameType.credit) throw new FrameError(`unknown frame type ${type}`);
    if (streamId === 0) throw new FrameError("stream id 0 is not used");
    if (end > message.byteLength) throw new FrameError("frame cut off");
    frames.push({ type, streamId, payload: message.subarray(at + HEADER_BYTES, end) });
    at = end;
  }
  return frames;
}

/** Collects the frames of one turn of the event loop into one message. */
export class FrameBatch {
  readonly #buffer = new Uint8Array(MESSAGE_BYTES_MAX);
  readonly #view = new DataView(this.#buffer.buffer);
  #usedBytes = 0;

  constructor(readonly send: (message: Uint8Array<ArrayBuffer>) => void) {}

  add(type: FrameType, streamId: number, payload: Uint8Array = NOTHING): void {
    if (this.#usedBytes + HEADER_BYTES + payload.byteLength > MESSAGE_BYTES_MAX) this.flush();
    if (this.#usedBytes === 0) queueMicrotask(() => this.flush());
    const at = this.#usedBytes;
    this.#buffer[at] = type;
    this.#view.setUint32(at + 1, streamId);
    this.#view.setUint32(at + 5, payload.byteLength);
    this.#buffer.set(payload, at + HEADER_BYTES);
    this.#usedBytes += HEADER_BYTES + payload.byteLength;
  }

  flush(): void {
    if (this.#usedBytes === 0) return;
    const message = this.#buffer.slice(0, this.#usedBytes);
    this.#usedBytes = 0;
    this.send(message);
  }
}
