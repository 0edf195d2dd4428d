import type { BytePipe } from "../../src/websocket/server-socket.ts";

export interface ClientFrame {
  opcode: number;
  payload?: Uint8Array | string;
  final?: boolean;
  /** Four bytes; null: not masked, which no client may do. */
  mask?: readonly number[] | null;
  /** Reserved bits to set, as in the first byte. */
  reserved?: number;
}

const MASK = [0x37, 0xfa, 0x21, 0x3d];

/** One frame as a client sends it, written down byte by byte, unlike the code that is tested. */
export function clientFrame({
  opcode,
  payload = "",
  final = true,
  mask = MASK,
  reserved = 0,
}: ClientFrame): Buffer {
  const bytes = Buffer.from(payload as string);
  const masked = mask ? 0x80 : 0;
  const head = [(final ? 0x80 : 0) | reserved | opcode];
  if (bytes.length < 126) head.push(masked | bytes.length);
  else if (bytes.length < 65_536) head.push(masked | 126, bytes.length >> 8, bytes.length & 255);
  else {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(bytes.length));
    head.push(masked | 127, ...length);
  }
  if (mask) {
    head.push(...mask);
    for (let at = 0; at < bytes.length; at++) bytes[at] = bytes[at]! ^ mask[at & 3]!;
  }
  return Buffer.concat([Buffer.from(head), bytes]);
}

export const closePayload = (code: number, reason: string | Uint8Array = ""): Buffer =>
  Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason as string)]);

export interface ServerFrame {
  opcode: number;
  payload: Buffer;
}

/** The frames of a server, which are whole and not masked. */
export function serverFrames(bytes: Buffer): ServerFrame[] {
  const frames: ServerFrame[] = [];
  for (let at = 0; at < bytes.length; ) {
    const [first, short] = [bytes[at]!, bytes[at + 1]!];
    if ((first & 0xf0) !== 0x80 || short > 127) throw new Error(`not a server's frame: ${first} ${short}`);
    at += 2;
    let length = short;
    if (short === 126) {
      length = bytes.readUInt16BE(at);
      at += 2;
    } else if (short === 127) {
      length = Number(bytes.readBigUInt64BE(at));
      at += 8;
    }
    if (at + length > bytes.length) throw new Error("a frame is cut off");
    frames.push({ opcode: first & 15, payload: bytes.subarray(at, at + length) });
    at += length;
  }
  return frames;
}

/** Remembers what is written; with `stuck` nothing of it leaves. */
export class RecordingPipe implements BytePipe {
  readonly writes: Buffer[] = [];
  readonly calls: string[] = [];
  bufferedBytes = 0;
  stuck = false;

  write(bytes: Uint8Array): void {
    this.writes.push(Buffer.from(bytes));
    if (this.stuck) this.bufferedBytes += bytes.length;
  }
  end(): void {
    this.calls.push("end");
  }
  terminate(): void {
    this.calls.push("terminate");
  }
  frames(): ServerFrame[] {
    return serverFrames(Buffer.concat(this.writes));
  }
}
