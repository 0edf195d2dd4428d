import { BackendError } from "../../../backends/contract.ts";
import { isObject } from "../../../kernel/json.ts";
import { JSON_DEPTH_MAX } from "../../../kernel/json-scan.ts";
import { IMAGE_TOKENS, mediaTokens, type TokenCounter } from "../../metering/index.ts";

/** Labels such as role and type are not output, unless they are suspiciously long. */
const LABELS: ReadonlySet<string> = new Set(["role", "type", "id"]);
const LABEL_LENGTH_MAX = 64;
/** Fields in which models return audio and images. */
const SOUNDS: ReadonlySet<string> = new Set(["data"]);
const IMAGES: ReadonlySet<string> = new Set(["url", "image_url", "b64_json"]);
const ENCODED = /^(?:data:[^,]{0,256};base64,)?[A-Za-z0-9+/=_-]{256,}$/;

/** Counts all texts in a delta or message and returns their UTF-8 size. A text under two names counts once. */
export function countTexts(value: unknown, counter: TokenCounter): number {
  // Fast path: the usual delta is one text.
  if (typeof value === "string") return count("", value, counter);
  if (isObject(value)) {
    const keys = Object.keys(value);
    if (keys.length === 1 && typeof value[keys[0]!] === "string")
      return count(keys[0]!, value[keys[0]!] as string, counter);
  }
  const seen = new Set<string>();
  let bytes = 0;
  const visit = (key: string, part: unknown, depth: number): void => {
    if (typeof part === "string") {
      if (seen.has(part)) return;
      seen.add(part);
      bytes += count(key, part, counter);
    } else if (depth >= JSON_DEPTH_MAX)
      throw new BackendError("transport", "the upstream's answer is nested too deeply");
    else if (Array.isArray(part)) for (const each of part) visit(key, each, depth + 1);
    else if (isObject(part)) for (const [name, each] of Object.entries(part)) visit(name, each, depth + 1);
  };
  visit("", value, 0);
  return bytes;
}

function count(key: string, text: string, counter: TokenCounter): number {
  if (LABELS.has(key) && text.length <= LABEL_LENGTH_MAX) return 0;
  if (SOUNDS.has(key) && ENCODED.test(text)) counter.addTokens(mediaTokens(text.length));
  else if (IMAGES.has(key) && ENCODED.test(text)) counter.addTokens(IMAGE_TOKENS);
  else counter.addText(text);
  return Buffer.byteLength(text);
}
