import { fail } from "./errors.ts";

export const JSON_DEPTH_MAX = 100;

/** Depth of nesting, counted on the text so that a hostile document is refused before it is parsed. */
export function exceedsDepth(text: string, limit: number): boolean {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === 92) i++;
      else if (char === 34) inString = false;
    } else if (char === 34) inString = true;
    else if (char === 123 || char === 91) {
      if (++depth > limit) return true;
    } else if (char === 125 || char === 93) depth--;
  }
  return false;
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

/** Bytes to text, refusing what is not UTF-8 instead of replacing it silently. */
export function decodeUtf8(bytes: Uint8Array | ArrayBuffer): string {
  try {
    return strictUtf8.decode(bytes);
  } catch {
    fail("parse_error", "Parse error: the body is not valid UTF-8");
  }
}

export function parseJson(text: string): unknown {
  // A text that is shorter than the limit cannot be nested deeper.
  if (text.length > JSON_DEPTH_MAX && exceedsDepth(text, JSON_DEPTH_MAX)) {
    fail("invalid_request", `The JSON is nested deeper than ${JSON_DEPTH_MAX} levels`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    fail("parse_error", `Parse error: ${(error as Error).message}`);
  }
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
