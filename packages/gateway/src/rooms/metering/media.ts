/** Images and audio in a body, found by their place: as text, a photo would seem as long as a novel. */
interface Media {
  tokens: number;
  texts: readonly Span[];
}

/** From the first position up to the second, which is not in it. */
export interface Span {
  start: number;
  end: number;
}

/** Estimated tokens of one image of any size. */
export const IMAGE_TOKENS = 1000;
/** The densest speech codecs have a kilobyte a second, which models take for about twenty tokens. */
const AUDIO_BYTES_PER_TOKEN = 50;
/** The most that audio, or media of an unknown kind, counts for. */
export const mediaTokens = (bytes: number): number => Math.ceil(bytes / AUDIO_BYTES_PER_TOKEN);

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACKET = 91;
const BACKSLASH = 92;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

/** Sound, film or a document that the upstream fetches: it may fill the context window, of whatever size that is. */
export const FETCHED_TOKENS = 10_000_000;

type Tokens = (length: number, isInline: boolean) => number;
const image: Tokens = () => IMAGE_TOKENS;
const film: Tokens = (length) => Math.max(IMAGE_TOKENS, mediaTokens(length));
const fetched: Tokens = (length, isInline) => (isInline ? film(length, true) : FETCHED_TOKENS);
/** Base64 has four characters for three bytes, and a token of plain text about four of these. */
const file: Tokens = (length) => Math.ceil(length / 5);

/** Ways to the strings that are media, from the body's own keys on; `[]` is a place in an array. */
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
  [`${PART}/input_video/data`, film],
  [`${PART}/file/file_data`, file],
  [`${PART}/file/file_url`, fetched],
  [`${PART}/file/file_id`, fetched],
  // Of Messages, also inside a tool's result; what is sealed is reasoning that is not shown.
  ...[PART, `${PART}/content/[]`].flatMap((part): [string, Tokens][] => [
    [`${part}/source/data`, film],
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
  ["contents/[]/parts/[]/inlineData/data", film],
  ["contents/[]/parts/[]/fileData/fileUri", fetched],
  ["contents/[]/parts/[]/file_data/file_uri", fetched],
  ["contents/[]/parts/[]/thoughtSignature", file],
]);
const PATH_DEPTH_MAX = 8;
const INLINE = "data:";

export function mediaIn(body: Uint8Array): Media {
  return walk(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1"));
}

/** Looks at every string of the body once; long ones are skipped by the runtime's own search. */
function walk(text: string): Media {
  let tokens = 0;
  const texts: Span[] = [];
  let textStart = 0;
  /** For each open container: the key that is being read in it, or `[]`. */
  const path: string[] = [];
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === OPEN_BRACE) path.push("");
    else if (char === OPEN_BRACKET) path.push("[]");
    else if (char === CLOSE_BRACE || char === CLOSE_BRACKET) path.pop();
    else if (char === COMMA && path.at(-1) !== "[]") path[path.length - 1] = "";
    else if (char === QUOTE) {
      const end = stringEnd(text, i);
      if (path.at(-1) === "") path[path.length - 1] = keyOf(text, i, end);
      else if (path.length <= PATH_DEPTH_MAX) {
        const tokensOf = PATHS.get(path.join("/"));
        if (tokensOf) {
          tokens += tokensOf(end - i, text.startsWith(INLINE, i + 1));
          texts.push({ start: textStart, end: i + 1 });
          textStart = end - 1;
        }
      }
      i = end - 1;
    } else if (char === COLON && path.at(-1) === "") path[path.length - 1] = "?";
  }
  texts.push({ start: textStart, end: text.length });
  return { tokens, texts };
}

/** The position after the string that opens at `at`, or the end of a text that is cut off. */
function stringEnd(text: string, at: number): number {
  for (let from = at + 1; ; ) {
    const quote = text.indexOf('"', from);
    if (quote === -1) return text.length;
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

function unescaped(raw: string): string {
  try {
    return JSON.parse(raw) as string;
  } catch {
    return raw;
  }
}

function keyOf(text: string, start: number, end: number): string {
  const raw = text.slice(start, end);
  const key = raw.includes("\\") ? unescaped(raw) : raw.slice(1, -1);
  // It must not look like a place in an array.
  return key === "[]" ? "?" : key;
}
