import { fail } from "./errors.ts";
import { problemOf } from "./json-scan.ts";
import { LARGE_BODY_BYTES, nextTurn } from "./turns.ts";

const BYTE_ORDER_MARK = "\ufeff";

/** Keeps a byte order mark, so that the parser refuses it (RFC 8259): bytes of chats are passed on as they are. */
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Refuses invalid UTF-8 instead of replacing it silently. */
export function decodeUtf8(bytes: Uint8Array | ArrayBuffer): string {
  try {
    return strictUtf8.decode(bytes);
  } catch {
    fail("parse_error", "Parse error: the body is not valid UTF-8");
  }
}

/** Parses a request's body, a large one over several turns of the event loop. */
export async function readJson(bytes: Uint8Array): Promise<unknown> {
  if (bytes.length > LARGE_BODY_BYTES) await nextTurn();
  return readJsonText(decodeUtf8(bytes));
}

export async function readJsonText(text: string): Promise<unknown> {
  if (text.length <= LARGE_BODY_BYTES) return parseJson(text);
  await nextTurn();
  requireReadable(text);
  await nextTurn();
  const value = parsed(text);
  await nextTurn();
  return value;
}

export function parseJson(text: string): unknown {
  requireReadable(text);
  return parsed(text);
}

function requireReadable(text: string): void {
  const problem = problemOf(text);
  if (problem !== null) fail("invalid_request", `The JSON is too costly to read: ${problem}`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (text.startsWith(BYTE_ORDER_MARK))
      fail("parse_error", "Parse error: the body begins with a byte order mark; send UTF-8 without one");
    fail("parse_error", `Parse error: ${(error as Error).message}`);
  }
}

export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function objectIn(text: string): Record<string, unknown> | null {
  const value = jsonIn(text);
  return isObject(value) ? value : null;
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const membersOf = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});

/** The objects in a list; empty if it is not a list. */
export const objectsIn = (value: unknown): Record<string, unknown>[] =>
  Array.isArray(value) ? value.filter(isObject) : [];

export const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
