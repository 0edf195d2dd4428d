import { BackendError } from "../../../backends/contract.ts";
import { isObject } from "../../../kernel/json.ts";
import { IMAGE_TOKENS, mediaTokens, type TokenCounter } from "../../metering/index.ts";

/** Labels such as role and type, which are not output; longer ones are counted like any text. */
const LABELS: ReadonlySet<string> = new Set(["role", "type", "id"]);
const LABEL_LENGTH_MAX = 64;
/** Models write nothing nested deeper than this. */
const DEPTH_MAX = 32;
/** Where models put generated audio and images. */
const SOUNDS: ReadonlySet<string> = new Set(["data"]);
const IMAGES: ReadonlySet<string> = new Set(["url", "image_url", "b64_json"]);
const ENCODED = /^(?:data:[^,]{0,256};base64,)?[A-Za-z0-9+/=_-]{256,}$/;

/** Counts all texts in a delta or message and returns their UTF-8 bytes. A text under two names counts once. */
export function countTexts(value: unknown, counter: TokenCounter): number {
  // The usual delta is one text.
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
    } else if (depth >= DEPTH_MAX) {
      bytes += count("", serialised(part), counter);
    } else if (Array.isArray(part)) for (const each of part) visit(key, each, depth + 1);
    else if (isObject(part)) for (const [name, each] of Object.entries(part)) visit(name, each, depth + 1);
  };
  visit("", value, 0);
  return bytes;
}

/** Writing what is nested takes time with the square of its depth: seconds for an answer of a megabyte. */
const WRITTEN_DEPTH_MAX = 1_000;

function serialised(part: unknown): string {
  if (isDeeperThan(WRITTEN_DEPTH_MAX, part))
    throw new BackendError("transport", "the upstream's answer is nested too deeply");
  return JSON.stringify(part) ?? "";
}

/** Level by level: a function that calls itself would run out of stack. */
function isDeeperThan(depthMax: number, part: unknown): boolean {
  let level = [part];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > depthMax) return true;
    level = level.flatMap((each) => (typeof each === "object" && each !== null ? Object.values(each) : []));
  }
  return false;
}

function count(key: string, text: string, counter: TokenCounter): number {
  if (LABELS.has(key) && text.length <= LABEL_LENGTH_MAX) return 0;
  if (SOUNDS.has(key) && ENCODED.test(text)) counter.addTokens(mediaTokens(text.length));
  else if (IMAGES.has(key) && ENCODED.test(text)) counter.addTokens(IMAGE_TOKENS);
  else counter.addText(text);
  return Buffer.byteLength(text);
}
