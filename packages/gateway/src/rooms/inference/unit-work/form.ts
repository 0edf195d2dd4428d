import { isUtf8 } from "node:buffer";
import { mediaTypeOf } from "@model-gateway/wire/http";
import { BackendError } from "../../../backends/contract.ts";
import { fail, failField } from "../../../kernel/errors.ts";
import { isOwnField } from "../request/fields.ts";
import { type ComposedBody, Payload } from "../request/payload.ts";

/** No field accepts a number with more digits. */
const WHOLE_NUMBER = /^\d{1,9}$/;
const COUNTS: ReadonlySet<string> = new Set(["n", "partial_images"]);
/** How form libraries mark a list: `image[]`. */
const LIST = "[]";

/** A multipart body. The form is written anew from what was read, so that no server can read it differently. */
export class FormPayload extends Payload {
  readonly files: readonly { name: string; bytes: Buffer }[];
  readonly #parts: readonly FormPart[];
  readonly #boundary = `form-${crypto.randomUUID()}`;

  constructor(
    readonly bytes: Buffer,
    contentType: string,
  ) {
    const parts = readForm(bytes, contentType);
    super(textsOf(parts));
    this.#parts = parts;
    this.files = parts.filter(({ file }) => file !== null).map(({ name, value }) => ({ name, bytes: value }));
  }

  get contentType(): string {
    return `multipart/form-data; boundary=${this.#boundary}`;
  }

  override sentNames(): string[] {
    return this.#parts.map(({ name }) => name).filter((name) => !isOwnField(name));
  }

  override compose(set: ReadonlyMap<string, string>): ComposedBody {
    const sent = this.#parts.flatMap((part) => {
      if (isOwnField(part.name)) return [];
      const json = part.file ? undefined : set.get(part.name);
      return json === undefined ? part : { ...part, value: Buffer.from(JSON.parse(json) as string) };
    });
    const pieces = writeForm(sent, this.#boundary);
    return {
      bytes: () => this.bytes as Buffer<ArrayBuffer>,
      size: () => this.bytes.length,
      // Copies large files only once.
      form: () => new Blob(pieces as Buffer<ArrayBuffer>[]),
      object() {
        throw new BackendError("unsupported", "the backend takes no forms");
      },
    };
  }
}

/** The texts by name. Repeated names are refused, because servers disagree on which one counts. */
function textsOf(parts: readonly FormPart[]): Record<string, string | number> {
  const texts = new Map<string, string | number>();
  const names = new Set<string>();
  for (const { name, file, value } of parts) {
    if (name.endsWith(LIST)) continue;
    if (names.has(name)) failField(name, "is there twice; send it once");
    names.add(name);
    if (!file) {
      const text = value.toString();
      // A count is a number; other text stays text, and is refused later.
      texts.set(name, COUNTS.has(name) && WHOLE_NUMBER.test(text) ? Number(text) : text);
    }
  }
  return Object.fromEntries(texts);
}

const PARTS_MAX = 128;
/** Limit for all texts together; files are bounded by the body. */
const TEXT_BYTES_MAX = 1024 * 1024;
const PART_HEADER_BYTES_MAX = 4 * 1024;
const CRLF = "\r\n";
const HEADER_END = Buffer.from("\r\n\r\n");
/** Exactly one plain `boundary` parameter: servers disagree on anything else. */
const FORM_TYPE = /^multipart\/form-data[ \t]*;[ \t]*boundary=(?:"([^"]*)"|([^"]*))$/i;
const BOUNDARY_CHARS = /^[A-Za-z0-9'()+_,\-./:=?]{1,70}$/;
const DISPOSITION = /^form-data((?:; *(?:name|filename\*?)=(?:"(?:[^"\\]|\\.)*"|[^\s";\\]+))*)$/i;
const PARAMETER = /; *(name|filename\*?)=(?:"((?:[^"\\]|\\.)*)"|([^";]+))/gi;
/** Some servers trim names, or read brackets as a path. */
const FIELD_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]*(\[[A-Za-z0-9_.-]*\])*$/;
const FIELD_NAME_CHARS_MAX = 128;
const FILE_NAME_CHARS_MAX = 128;
/** Includes what servers decode in file names. */
const UNSAFE_IN_FILE_NAME = /[\p{Cc}"%&;]/gu;
/** Other types, such as a nested multipart, could be read as a form of their own. */
const FILE_TYPE = /^((?:application|audio|image|text|video)\/[\w.+-]{1,64})[ \t]*(?:;|$)/i;
const HEADERS: ReadonlySet<string> = new Set([
  "content-disposition",
  "content-type",
  "content-length",
  "content-transfer-encoding",
]);
const PLAIN_ENCODING = /^(7bit|8bit|binary)$/i;

export interface FormPart {
  name: string;
  /** Its `type` is null if none or an unusual one was given. */
  file: { name: string; type: string | null } | null;
  value: Buffer;
}

const refuse = (problem: string): never =>
  fail("invalid_request", `The body is not a multipart form that every server reads alike: ${problem}`);

export const isFormType = (contentType: string | null): contentType is string =>
  mediaTypeOf(contentType) === "multipart/form-data";

function boundaryOf(contentType: string): string {
  const found = FORM_TYPE.exec(contentType);
  const boundary = found?.[1] ?? found?.[2] ?? "";
  if (!BOUNDARY_CHARS.test(boundary))
    refuse(
      "its content-type must be `multipart/form-data; boundary=…`, with one boundary of at most 70 plain characters and no other parameter",
    );
  return boundary;
}

/** The parts of a form. Strict: anything ambiguous is refused. */
export function readForm(bytes: Buffer, contentType: string): FormPart[] {
  const mark = `--${boundaryOf(contentType)}`;
  const parts: FormPart[] = [];
  let textBytes = 0;
  let start = 0;
  for (;;) {
    if (bytes.toString("latin1", start, start + mark.length) !== mark)
      refuse("it does not begin with its boundary");
    const after = start + mark.length;
    const ending = bytes.toString("latin1", after, after + 2);
    if (ending === "--") break;
    if (ending !== CRLF) refuse("a boundary is not followed by a line end");
    const next = nextMark(bytes, mark, after);
    if (parts.length >= PARTS_MAX) refuse(`it has more than ${PARTS_MAX} parts`);
    const part = partOf(bytes, after + CRLF.length, next - CRLF.length);
    parts.push(part);
    // Check the size before looking at the text.
    textBytes += part.file ? 0 : part.value.length;
    if (textBytes > TEXT_BYTES_MAX)
      fail("body_too_large", `The texts of the form are larger than ${TEXT_BYTES_MAX} bytes`);
    if (!part.file && !isUtf8(part.value)) refuse(`\`${part.name}\` is not text in UTF-8`);
    start = next;
  }
  const rest = bytes.subarray(start + mark.length + 2);
  if (rest.length > 0 && rest.toString("latin1", 0, 3) !== CRLF)
    refuse("something follows its last boundary");
  return parts;
}

/** The next boundary. It must be at the start of a line: otherwise only some servers take it for one. */
function nextMark(bytes: Buffer, mark: string, from: number): number {
  const at = bytes.indexOf(mark, from, "latin1");
  if (at === -1) return refuse("its last boundary is missing");
  if (bytes.toString("latin1", at - 2, at) !== CRLF) refuse("a boundary stands inside a line");
  return at;
}

function partOf(bytes: Buffer, headersStart: number, valueEnd: number): FormPart {
  const headersEnd = bytes.indexOf(HEADER_END, headersStart);
  const valueStart = headersEnd + HEADER_END.length;
  if (headersEnd === -1 || valueStart > valueEnd || headersEnd - headersStart > PART_HEADER_BYTES_MAX)
    refuse(`the headers of a part do not end within ${PART_HEADER_BYTES_MAX} bytes`);
  const headers = headersOf(bytes.toString("utf8", headersStart, headersEnd));
  const { name, fileName } = dispositionOf(headers.get("content-disposition") ?? "");
  const value = bytes.subarray(valueStart, valueEnd);
  const type = FILE_TYPE.exec(headers.get("content-type") ?? "")?.[1]?.toLowerCase() ?? null;
  return { name, file: fileName === null ? null : { name: safeFileName(fileName) || name, type }, value };
}

function headersOf(text: string): ReadonlyMap<string, string> {
  const headers = new Map<string, string>();
  for (const line of text.split(CRLF)) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    if (!HEADERS.has(name) || headers.has(name) || /[\r\n\0]/.test(line))
      refuse(`a part may have ${[...HEADERS].join(", ")}, each once and on one line`);
    headers.set(name, line.slice(colon + 1).trim());
  }
  if (!PLAIN_ENCODING.test(headers.get("content-transfer-encoding") ?? "binary"))
    refuse("its parts must not be encoded");
  return headers;
}

function dispositionOf(disposition: string): { name: string; fileName: string | null } {
  const given = new Map<string, string>();
  for (const [, key = "", quoted, token = ""] of (DISPOSITION.exec(disposition)?.[1] ?? "").matchAll(
    PARAMETER,
  )) {
    const parameter = key.toLowerCase();
    if (given.has(parameter)) refuse(`a part has \`${parameter}\` twice`);
    given.set(parameter, quoted?.replace(/\\(["\\])/g, "$1") ?? token);
  }
  const name = given.get("name");
  if (name === undefined)
    return refuse(
      'a part has no plain `content-disposition: form-data; name="…"`, with or without a `filename`',
    );
  if (!FIELD_NAME.test(name) || name.length > FIELD_NAME_CHARS_MAX)
    refuse(
      `the name of a field is not made of at most ${FIELD_NAME_CHARS_MAX} letters, digits and any of _ . - [ ]`,
    );
  const encoded = given.get("filename*");
  return { name, fileName: encoded === undefined ? (given.get("filename") ?? null) : decoded(encoded) };
}

/** Decodes a non-ASCII file name (RFC 5987). */
function decoded(encoded: string): string {
  try {
    return decodeURIComponent(/^utf-8'[\w-]*'(.*)$/i.exec(encoded)![1]!);
  } catch {
    return refuse("a `filename*` is not UTF-8 with percent signs");
  }
}

/** A file name that every server reads alike: no folder, quotes or escapes. */
function safeFileName(name: string): string {
  const plain = name.split(/[/\\]/).at(-1)!.replace(UNSAFE_IN_FILE_NAME, "_").trim();
  return /^\.*$/.test(plain) ? "" : plain.slice(-FILE_NAME_CHARS_MAX);
}

/** A form as pieces of bytes; values are not copied. */
export function writeForm(parts: readonly FormPart[], boundary: string): Buffer[] {
  const pieces = parts.flatMap(({ name, file, value }) => {
    const fileName = file ? `; filename="${file.name}"` : "";
    const type = file?.type ? `Content-Type: ${file.type}${CRLF}` : "";
    const head = `--${boundary}${CRLF}Content-Disposition: form-data; name="${name}"${fileName}${CRLF}${type}${CRLF}`;
    return [Buffer.from(head), value, Buffer.from(CRLF)];
  });
  return [...pieces, Buffer.from(`--${boundary}--${CRLF}`)];
}
