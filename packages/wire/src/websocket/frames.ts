import { Pieces } from "../pieces.ts";
import { rotateMask, unmask } from "./masking.ts";
import { Utf8Check } from "./utf8-check.ts";

export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Close codes of RFC 6455. */
export const CloseCode = {
  normal: 1000,
  protocolError: 1002,
  /** Never sent: the peer's close frame had none. */
  none: 1005,
  /** Never sent: the connection ended without a close frame. */
  vanished: 1006,
  invalidText: 1007,
  tooBig: 1009,
} as const;

/** What FrameDecoder.next found; the positive numbers are opcodes. */
export const Found = { violation: -2, nothing: -1, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
export type Found = (typeof Found)[keyof typeof Found];

/** Code and reason of a close frame. */
export interface Closing {
  code: number;
  reason: string;
}

const CONTROL_PAYLOAD_BYTES_MAX = 125;
const REASON_BYTES_MAX = CONTROL_PAYLOAD_BYTES_MAX - 2;
/** Two bytes, a 64-bit length and the mask. */
const HEADER_BYTES_MAX = 14;
/** Results of reading a header, other than its length. */
const INCOMPLETE = 0;
const INVALID = -1;

const NO_BYTES = Buffer.alloc(0);
const NOT_TEXT = "a text that is not UTF-8";
/** A byte order mark is part of the message. */
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Codes that a close frame may carry; the others are reserved or never sent. */
export function isSendableCloseCode(code: number): boolean {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

function decodeText(bytes: Buffer): string | null {
  try {
    return strictUtf8.decode(bytes);
  } catch {
    return null;
  }
}

/**
 * Reads a client's frames, however their bytes are split: call `feed`, then `next` until it finds nothing. It owns the
 * bytes it is fed: payloads are unmasked in place and handed out as views.
 */
export class FrameDecoder {
  /** The message just found, or the payload of the ping, pong or close. */
  data: string | Buffer = NO_BYTES;
  violation: Closing | null = null;

  readonly #messageBytesMax: number;
  #input: Buffer = NO_BYTES;
  #at = 0;
  /** The start of an incomplete header. */
  #headerStart: Buffer | null = null;

  #inFrame = false;
  #opcode = 0;
  #final = false;
  #mask = 0;
  #toComeBytes = 0;
  /** What has arrived of a control frame. */
  #control: Pieces | null = null;

  /** Of the current message; 0 between messages. */
  #messageOpcode = 0;
  #message: Pieces | null = null;
  /** Of a text that comes in several pieces. */
  #textCheck: Utf8Check | null = null;

  constructor(messageBytesMax: number) {
    this.#messageBytesMax = messageBytesMax;
  }

  feed(bytes: Buffer): void {
    this.#input = this.#at === this.#input.length ? bytes : Buffer.concat([this.#rest(), bytes]);
    this.#at = 0;
  }

  next(): Found {
    while (this.violation === null) {
      if (!this.#inFrame) {
        if (this.#at === this.#input.length) return this.#nothing();
        const header = this.#readHeader();
        if (header === INVALID) break;
        if (header === INCOMPLETE) return this.#nothing();
        this.#inFrame = true;
      }
      const start = this.#at;
      const piece = this.#input.subarray(start, start + this.#toComeBytes);
      this.#at += piece.length;
      this.#toComeBytes -= piece.length;
      unmask(piece, this.#mask);
      if (this.#toComeBytes > 0) {
        this.#mask = rotateMask(this.#mask, piece.length);
        this.#keep(piece);
        if (this.violation !== null) break;
        return this.#nothing();
      }
      this.#inFrame = false;
      const found = this.#opcode >= Opcode.close ? this.#endControl(piece) : this.#endData(piece);
      if (found !== Found.nothing) return found;
    }
    this.#nothing();
    return Found.violation;
  }

  #rest(): Buffer {
    return this.#input.subarray(this.#at);
  }

  /** Drops the input, so that an idle socket keeps nothing alive. */
  #nothing(): Found {
    this.#input = NO_BYTES;
    this.#at = 0;
    this.data = NO_BYTES;
    return Found.nothing;
  }

  #violate(code: number, reason: string): typeof INVALID {
    this.violation = { code, reason };
    return INVALID;
  }

  #readHeader(): number {
    const start = this.#headerStart;
    if (start === null) {
      const headerBytes = this.#parseHeader(this.#input, this.#at);
      if (headerBytes > 0) this.#at += headerBytes;
      else if (headerBytes === INCOMPLETE) this.#headerStart = Buffer.from(this.#rest());
      return headerBytes;
    }
    const more = this.#input.subarray(this.#at, this.#at + HEADER_BYTES_MAX - start.length);
    const header = Buffer.concat([start, more]);
    const headerBytes = this.#parseHeader(header, 0);
    this.#headerStart = headerBytes === INCOMPLETE ? header : null;
    if (headerBytes > 0) this.#at += headerBytes - start.length;
    return headerBytes;
  }

  /** Returns the header's length. A violation is reported at the first byte that shows it. */
  #parseHeader(bytes: Buffer, at: number): number {
    const knownBytes = bytes.length - at;
    if (this.#checkStart(bytes, at) === INVALID) return INVALID;
    if (knownBytes < 2) return INCOMPLETE;
    const shortLength = bytes[at + 1]! & 0x7f;
    const lengthBytes = shortLength < 126 ? 0 : shortLength === 126 ? 2 : 8;
    const maskAt = at + 2 + lengthBytes;
    if (bytes.length < maskAt) return INCOMPLETE;
    let payloadBytes = shortLength;
    if (lengthBytes === 2) payloadBytes = bytes.readUInt16BE(at + 2);
    else if (lengthBytes === 8) {
      const high = bytes.readUInt32BE(at + 2);
      if (high >= 0x8000_0000) {
        return this.#violate(CloseCode.protocolError, "a length with its highest bit set");
      }
      payloadBytes = high * 0x1_0000_0000 + bytes.readUInt32BE(at + 6);
    }
    const first = bytes[at]!;
    const opcode = first & 0x0f;
    if (opcode < Opcode.close && payloadBytes + (this.#message?.bytes ?? 0) > this.#messageBytesMax) {
      return this.#violate(CloseCode.tooBig, `a message may have ${this.#messageBytesMax} bytes`);
    }
    if (bytes.length < maskAt + 4) return INCOMPLETE;
    this.#final = first >= 0x80;
    this.#opcode = opcode;
    if (opcode === Opcode.text || opcode === Opcode.binary) this.#messageOpcode = opcode;
    this.#mask = bytes.readInt32LE(maskAt);
    this.#toComeBytes = payloadBytes;
    return maskAt + 4 - at;
  }

  /** Checks the first two bytes, or the first if there is only one. */
  #checkStart(bytes: Buffer, at: number): number {
    const first = bytes[at]!;
    const opcode = first & 0x0f;
    const isControl = opcode >= Opcode.close;
    let problem: string | null = null;
    if ((first & 0x70) !== 0) problem = "a reserved bit is set";
    else if (opcode > Opcode.pong || (opcode > Opcode.binary && !isControl)) problem = `opcode ${opcode}`;
    else if (isControl && first < 0x80) problem = "a fragmented control frame";
    else if (opcode === Opcode.continuation && this.#messageOpcode === 0) problem = "nothing to continue";
    else if (!isControl && opcode !== Opcode.continuation && this.#messageOpcode !== 0) {
      problem = "a new message within a fragmented one";
    } else if (bytes.length > at + 1) {
      const second = bytes[at + 1]!;
      if (second < 0x80) problem = "a frame that is not masked";
      else if (isControl && (second & 0x7f) > CONTROL_PAYLOAD_BYTES_MAX) problem = "a long control frame";
    }
    return problem === null ? INCOMPLETE : this.#violate(CloseCode.protocolError, problem);
  }

  #keep(piece: Buffer): void {
    if (piece.length === 0) return;
    if (this.#opcode >= Opcode.close) {
      this.#control ??= new Pieces();
      this.#control.add(piece);
    } else {
      this.#message ??= new Pieces();
      this.#message.add(piece);
      if (this.#messageOpcode === Opcode.text) this.#checkText(piece);
    }
  }

  /** A text that is already known to be bad is not waited for. */
  #checkText(piece: Buffer): void {
    this.#textCheck ??= new Utf8Check();
    if (!this.#textCheck.add(piece)) this.#violate(CloseCode.invalidText, NOT_TEXT);
  }

  #endControl(last: Buffer): Found {
    let payload = last;
    if (this.#control !== null) {
      this.#control.add(last);
      payload = this.#control.join();
      this.#control = null;
    }
    this.data = payload;
    return this.#opcode as Found;
  }

  #endData(last: Buffer): Found {
    if (!this.#final) {
      this.#keep(last);
      return Found.nothing;
    }
    let payload = last;
    if (this.#message !== null) {
      this.#message.add(last);
      payload = this.#message.join();
      this.#message = null;
    }
    const isText = this.#messageOpcode === Opcode.text;
    this.#messageOpcode = 0;
    this.#textCheck = null;
    this.data = payload;
    if (!isText) return Found.binary;
    const text = decodeText(payload);
    if (text === null) {
      this.#violate(CloseCode.invalidText, NOT_TEXT);
      return Found.nothing;
    }
    this.data = text;
    return Found.text;
  }
}

/** Parses a close frame; `violation` is set when its payload is not allowed. */
export function parseClose(payload: Buffer): Closing & { violation: Closing | null } {
  if (payload.length === 0) return { code: CloseCode.none, reason: "", violation: null };
  const code = payload.length === 1 ? 0 : payload.readUInt16BE(0);
  if (!isSendableCloseCode(code)) {
    const violation = { code: CloseCode.protocolError, reason: "a close frame without a valid code" };
    return { code, reason: "", violation };
  }
  const reason = decodeText(payload.subarray(2));
  if (reason !== null) return { code, reason, violation: null };
  const violation = { code: CloseCode.invalidText, reason: "a close reason that is not UTF-8" };
  return { code, reason: "", violation };
}

/** A server's frame: header written, space for the payload behind it. */
function allocateFrame(opcode: number, payloadBytes: number): Buffer {
  const headBytes = frameHeadBytes(payloadBytes);
  const frame = Buffer.allocUnsafe(headBytes + payloadBytes);
  writeHead(frame, { opcode, payloadBytes });
  return frame;
}

function writeHead(frame: Buffer, { opcode, payloadBytes }: { opcode: number; payloadBytes: number }): void {
  frame[0] = 0x80 | opcode;
  if (payloadBytes < 126) frame[1] = payloadBytes;
  else if (payloadBytes < 0x1_0000) {
    frame[1] = 126;
    frame.writeUInt16BE(payloadBytes, 2);
  } else {
    frame[1] = 127;
    frame.writeUInt32BE(Math.floor(payloadBytes / 0x1_0000_0000), 2);
    frame.writeUInt32BE(payloadBytes >>> 0, 6);
  }
}

/** Header bytes of a server's frame. */
export const frameHeadBytes = (payloadBytes: number): number =>
  payloadBytes < 126 ? 2 : payloadBytes < 0x1_0000 ? 4 : 10;

export function encodeText(text: string, payloadBytes = Buffer.byteLength(text)): Buffer {
  const frame = allocateFrame(Opcode.text, payloadBytes);
  frame.write(text, frame.length - payloadBytes);
  return frame;
}

/** Binary and pong frames. */
export function encodeBytes(opcode: number, payload: Uint8Array): Buffer {
  const frame = allocateFrame(opcode, payload.length);
  frame.set(payload, frame.length - payload.length);
  return frame;
}

/** The header alone, for a payload that is too large to copy. */
export function encodeHead(opcode: number, payloadBytes: number): Buffer {
  const head = Buffer.allocUnsafe(frameHeadBytes(payloadBytes));
  writeHead(head, { opcode, payloadBytes });
  return head;
}

/** `CloseCode.none` sends an empty payload; a reason that is too long is cut between characters. */
export function encodeClose(code: number, reason: string): Buffer {
  if (code === CloseCode.none) return allocateFrame(Opcode.close, 0);
  if (!isSendableCloseCode(code)) {
    throw new RangeError(`close code ${code} may not be sent: use 1000-1003, 1007-1014 or 3000-4999`);
  }
  const payload = Buffer.allocUnsafe(CONTROL_PAYLOAD_BYTES_MAX);
  payload.writeUInt16BE(code, 0);
  const { written } = new TextEncoder().encodeInto(reason, payload.subarray(2, 2 + REASON_BYTES_MAX));
  return encodeBytes(Opcode.close, payload.subarray(0, 2 + written));
}
