import type { Reply, ReplyHead } from "../http/reply.ts";
import type { Outbox } from "../turns/outbox.ts";
import { STATUS_TEXTS } from "./status-texts.ts";

/**
 * Characters that a header's value must not contain. A line break would start another header, and so would a character
 * beyond Latin-1 whose low byte is one, since the head is written one byte per character.
 */
const UNSAFE = /[^\t -~\x80-\xff]/;

function headerLine(name: string, value: string): string {
  if (UNSAFE.test(value)) throw new Error(`the header ${name} has a character in it that no header may have`);
  return `${name}: ${value}\r\n`;
}

export type Framing = "length" | "chunked" | "until-close" | "none";

export interface HeadOptions {
  framing: Framing;
  lengthBytes?: number;
  keepsAlive: boolean;
  isHttp10: boolean;
}

let dateLine = "";
let dateOfSecond = 0;

/** Formatted once a second. */
function date(nowMs: number): string {
  const second = Math.floor(nowMs / 1_000);
  if (second !== dateOfSecond) {
    dateOfSecond = second;
    dateLine = `date: ${new Date(nowMs).toUTCString()}\r\n`;
  }
  return dateLine;
}

/** Everything before the body, including the empty line. */
export function headText(
  { status, contentType, requestId, headers }: ReplyHead,
  { framing, lengthBytes, keepsAlive, isHttp10 }: HeadOptions,
): string {
  let text = status === 200 ? "HTTP/1.1 200 OK\r\n" : `HTTP/1.1 ${status} ${STATUS_TEXTS[status] ?? ""}\r\n`;
  if (contentType !== "")
    text += `${headerLine("content-type", contentType)}x-content-type-options: nosniff\r\n`;
  if (requestId !== "") text += headerLine("x-request-id", requestId);
  for (const name in headers) text += headerLine(name, headers[name]!);
  text += date(Date.now());
  if (!keepsAlive) text += "connection: close\r\n";
  else if (isHttp10) text += "connection: keep-alive\r\n";
  if (framing === "length") text += `content-length: ${lengthBytes}\r\n`;
  else if (framing === "chunked") text += "transfer-encoding: chunked\r\n";
  return `${text}\r\n`;
}

export const TEXT_TYPE = "text/plain; charset=utf-8";
const TOO_MANY = "Too many connections; try again in a moment.\n";
/** The whole reply to a client that exceeds the connection limit. */
export const REFUSED_FOR_NOW = Buffer.from(
  `HTTP/1.1 503 Service Unavailable\r\ncontent-type: ${TEXT_TYPE}\r\nretry-after: 1\r\n` +
    `connection: close\r\ncontent-length: ${TOO_MANY.length}\r\n\r\n${TOO_MANY}`,
);
export const CONTINUE = Buffer.from("HTTP/1.1 100 Continue\r\n\r\n");

export interface WholeOptions {
  keepsAlive: boolean;
  isHttp10: boolean;
  /** The reply to a HEAD request. */
  isHeadOnly: boolean;
}

/** Sends a complete reply. */
export function sendWhole(
  outbox: Outbox,
  head: ReplyHead,
  body: Reply["body"],
  { keepsAlive, isHttp10, isHeadOnly }: WholeOptions,
): void {
  const isBodiless = head.status === 204 || head.status === 304;
  const framing = isBodiless ? "none" : "length";
  const text = headText(head, { framing, lengthBytes: lengthOf(body), keepsAlive, isHttp10 });
  if (isBodiless || isHeadOnly) outbox.sendMessage(text, "");
  else if (typeof body === "string" || body instanceof Uint8Array) outbox.sendMessage(text, body);
  else {
    outbox.sendMessage(text, "");
    for (const part of body) outbox.send(part);
  }
}

function lengthOf(body: Reply["body"]): number {
  if (typeof body === "string") return Buffer.byteLength(body);
  return body instanceof Uint8Array ? body.length : body.reduce((sum, { length }) => sum + length, 0);
}
