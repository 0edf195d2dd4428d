import { jsonIn } from "../../kernel/json.ts";
import { endOfString } from "../../kernel/json-scan.ts";

/** Estimated tokens of one image of any size. */
export const IMAGE_TOKENS = 1000;
/** The densest speech codecs have a kilobyte per second, which models count as about 20 tokens. */
const AUDIO_BYTES_PER_TOKEN = 50;
/** An upper bound for audio and for media of unknown kind. */
export const mediaTokens = (bytes: number): number => Math.ceil(bytes / AUDIO_BYTES_PER_TOKEN);

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

/** Audio, video or a document that the upstream fetches: it may fill the context window. */
export const FETCHED_TOKENS = 10_000_000;

type Tokens = (length: number, isInline: boolean) => number;
const image: Tokens = () => IMAGE_TOKENS;
const video: Tokens = (length) => Math.max(IMAGE_TOKENS, mediaTokens(length));
const fetched: Tokens = (length, isInline) => (isInline ? video(length, true) : FETCHED_TOKENS);
/** Base64 has 4 characters per 3 bytes, and a token of plain text has about 4 bytes. */
const file: Tokens = (length) => Math.ceil(length / 5);

/** Paths of the strings that are media; `[]` is any element of an array. */
const PART = "messages/[]/content/[]";
const PATHS: ReadonlyMap<string, Tokens> = new Map([
  [`${PART}/image_url`, image],
  [`${PART}/image_url/url`, image],
  ["messages/[]/images/[]", image],
  ["messages/[]/images/[]/url", image],
  ["messages/[]/images/[]/image_url", image],
  ["messages/[]/images/[]/image_url/url", image],
  [`${PART}/input_audio/data`, mediaTokens],
  [`${PART}/audio_url`, fetched],
  [`${PART}/audio_url/url`, fetched],
  [`${PART}/video_url`, fetched],
  [`${PART}/video_url/url`, fetched],
  [`${PART}/input_video/data`, video],
  [`${PART}/file/file_data`, file],
  [`${PART}/file/file_url`, fetched],
  [`${PART}/file/file_id`, fetched],
  // Anthropic's Messages, also inside a tool's result. Signatures are encrypted reasoning.
  ...[PART, `${PART}/content/[]`].flatMap((part): [string, Tokens][] => [
    [`${part}/source/data`, video],
    [`${part}/source/url`, fetched],
    [`${part}/source/file_id`, fetched],
  ]),
  [`${PART}/signature`, file],
  ...["input/[]/content/[]", "input/[]/output/[]"].flatMap((part): [string, Tokens][] => [
    [`${part}/image_url`, image],
    [`${part}/file_data`, file],
    [`${part}/file_url`, fetched],
    [`${part}/file_id`, fetched],
  ]),
  ["input/[]/encrypted_content", file],
  ["contents/[]/parts/[]/inlineData/data", video],
  ["contents/[]/parts/[]/fileData/fileUri", fetched],
  ["contents/[]/parts/[]/file_data/file_uri", fetched],
  ["contents/[]/parts/[]/thoughtSignature", file],
]);
/** No path above is deeper. */
const PATH_DEPTH = 8;
const LISTS = new Set(["messages", "input", "contents", "content", "output", "parts", "[]"]);
/** The members of messages and their parts in which media are. */
export const MEDIA_NAMES: readonly string[] = [
  ...new Set(Array.from(PATHS.keys(), (path) => path.split("/").find((step) => !LISTS.has(step))!)),
];
const INLINE = "data:";

/** The tokens of all media, found by their paths, and the body without them: as text a photo would count like a novel. */
export function mediaIn(body: Uint8Array): { tokens: number; text: Uint8Array } {
  const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1");
  let tokens = 0;
  const texts: Uint8Array[] = [];
  let textStart = 0;
  /** For each open container: the current key, or `[]`. */
  const path: string[] = [];
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === OPEN_BRACE) path.push("");
    else if (char === OPEN_BRACKET) path.push("[]");
    else if (char === CLOSE_BRACE || char === CLOSE_BRACKET) path.pop();
    else if (char === COMMA && path.at(-1) !== "[]") path[path.length - 1] = "";
    else if (char === QUOTE) {
      const closed = endOfString(text, i + 1);
      const end = closed === -1 ? text.length : closed;
      if (path.at(-1) === "") path[path.length - 1] = keyOf(text, i, end);
      else if (path.length <= PATH_DEPTH) {
        const tokensOf = PATHS.get(path.join("/"));
        if (tokensOf) {
          tokens += tokensOf(end - i, text.startsWith(INLINE, i + 1));
          texts.push(body.subarray(textStart, i + 1));
          textStart = end - 1;
        }
      }
      i = end - 1;
    } else if (char === COLON && path.at(-1) === "") path[path.length - 1] = "?";
  }
  return { tokens, text: textStart === 0 ? body : Buffer.concat([...texts, body.subarray(textStart)]) };
}

function keyOf(text: string, start: number, end: number): string {
  const raw = text.slice(start, end);
  const key = raw.includes("\\") ? ((jsonIn(raw) as string | undefined) ?? raw) : raw.slice(1, -1);
  // A key must not look like an element of an array.
  return key === "[]" ? "?" : key;
}
