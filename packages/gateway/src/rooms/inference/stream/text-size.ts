import { isObject } from "../../../kernel/json.ts";

/** What says who speaks or what something is, not what is said; longer ones are counted like any text. */
const LABELS: ReadonlySet<string> = new Set(["role", "type", "id"]);
const LABEL_LENGTH_MAX = 64;
/** Nothing that is nested deeper is written by a model. */
const DEPTH_MAX = 32;

/**
 * UTF-8 bytes of all texts in an answer's delta or message, whatever their members are called. A text that stands
 * there under two names, as some servers write reasoning, counts once.
 */
export function textBytesIn(value: unknown): number {
  // The usual delta is one text.
  if (isObject(value)) {
    const keys = Object.keys(value);
    if (keys.length === 1 && typeof value[keys[0]!] === "string")
      return sizeOf(keys[0]!, value[keys[0]!] as string);
  }
  const seen = new Set<string>();
  let bytes = 0;
  const visit = (key: string, part: unknown, depth: number): void => {
    if (typeof part === "string") {
      if (seen.has(part)) return;
      seen.add(part);
      bytes += sizeOf(key, part);
    } else if (depth >= DEPTH_MAX) {
      bytes += Buffer.byteLength(JSON.stringify(part) ?? "");
    } else if (Array.isArray(part)) for (const each of part) visit(key, each, depth + 1);
    else if (isObject(part)) for (const [name, each] of Object.entries(part)) visit(name, each, depth + 1);
  };
  visit("", value, 0);
  return bytes;
}

const sizeOf = (key: string, text: string): number =>
  LABELS.has(key) && text.length <= LABEL_LENGTH_MAX ? 0 : Buffer.byteLength(text);
