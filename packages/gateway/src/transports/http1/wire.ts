import { STATUS_CODES } from "node:http";
import type { ReplyHead } from "../../kernel/reply.ts";

/** A line break in a header's value would be the beginning of another header. */
const UNSAFE = /[\r\n\0]/;

function headerLines(headers: Readonly<Record<string, string>>): string {
  let lines = "";
  for (const name in headers) {
    const value = headers[name]!;
    if (UNSAFE.test(value)) throw new Error(`the header ${name} has a line break in it`);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
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

/** Written out once a second. */
function date(nowMs: number): string {
  const second = Math.floor(nowMs / 1_000);
  if (second !== dateOfSecond) {
    dateOfSecond = second;
    dateLine = `date: ${new Date(nowMs).toUTCString()}\r\n`;
  }
  return dateLine;
}

/** Everything before the body, the empty line included. */
export function headText(
  { status, contentType, requestId, headers }: ReplyHead,
  { framing, lengthBytes, keepsAlive, isHttp10 }: HeadOptions,
): string {
  let text = status === 200 ? "HTTP/1.1 200 OK\r\n" : `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n`;
  if (contentType !== "") text += `content-type: ${contentType}\r\n`;
  if (requestId !== "") text += `x-request-id: ${requestId}\r\n`;
  if (headers) text += headerLines(headers);
  text += date(Date.now());
  if (!keepsAlive) text += "connection: close\r\n";
  else if (isHttp10) text += "connection: keep-alive\r\n";
  if (framing === "length") text += `content-length: ${lengthBytes}\r\n`;
  else if (framing === "chunked") text += "transfer-encoding: chunked\r\n";
  return `${text}\r\n`;
}

export const CONTINUE = Buffer.from("HTTP/1.1 100 Continue\r\n\r\n");
