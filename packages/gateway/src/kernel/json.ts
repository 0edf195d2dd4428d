import { fail } from "./errors.ts";
import { isTooDeep, JSON_DEPTH_MAX } from "./json-scan.ts";

const BYTE_ORDER_MARK = "\ufeff";

/** Keeps a byte order mark: JSON begins without one (RFC 8259), and chats, whose bytes are passed on, refuse it too. */
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes to text, refusing what is not UTF-8 instead of replacing it silently. */
export function decodeUtf8(bytes: Uint8Array | ArrayBuffer): string {
  try {
    return strictUtf8.decode(bytes);
  } catch {
    fail("parse_error", "Parse error: the body is not valid UTF-8");
  }
}

export function parseJson(text: string): unknown {
  if (isTooDeep(text)) fail("invalid_request", `The JSON is nested deeper than ${JSON_DEPTH_MAX} levels`);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (text.startsWith(BYTE_ORDER_MARK))
      fail("parse_error", "Parse error: the body begins with a byte order mark; send UTF-8 without one");
    fail("parse_error", `Parse error: ${(error as Error).message}`);
  }
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
