import { fail } from "../../../kernel/errors.ts";

const PARTS_MAX = 128;
const PART_HEADER_BYTES_MAX = 4 * 1024;
const CRLF = "\r\n";
const HEADER_END = Buffer.from("\r\n\r\n");
const BOUNDARY = /;\s*boundary=(?:"([^"]*)"|([^\s;"]+))/gi;
const BOUNDARY_CHARS = /^[A-Za-z0-9'()+_,\-./:=?]{1,70}$/;
/** A file's name may be anything that stays inside its quotes. */
const DISPOSITION =
  /^form-data; *name="([^"\\]{1,128})"(; *filename="(?:[^"\\]|\\.)*")?(; *filename\*=[^;"]+)?$/i;
const HEADERS: ReadonlySet<string> = new Set([
  "content-disposition",
  "content-type",
  "content-length",
  "content-transfer-encoding",
]);
const PLAIN_ENCODING = /^(7bit|8bit|binary)$/i;

/** One field of a form: positions in the body. */
export interface FormPart {
  name: string;
  isFile: boolean;
  /** Of the whole part, from its delimiter to the next one. */
  start: number;
  end: number;
  valueStart: number;
  valueEnd: number;
}

const refuse = (problem: string): never =>
  fail("invalid_request", `The body is not a multipart form that every server reads alike: ${problem}`);

export const isFormType = (contentType: string | null): contentType is string =>
  /^multipart\/form-data\s*(;|$)/i.test(contentType ?? "");

function boundaryOf(contentType: string): string {
  const found = [...contentType.matchAll(BOUNDARY)];
  const boundary = found[0]?.[1] ?? found[0]?.[2] ?? "";
  if (found.length !== 1 || !BOUNDARY_CHARS.test(boundary))
    refuse("its content-type needs one boundary of at most 70 plain characters");
  return boundary;
}

/**
 * The parts of a form. Strict, because what another server would read from the same bytes decides what it does and
 * what it costs: whatever could be read in two ways is refused.
 */
export function readForm(bytes: Buffer, contentType: string): FormPart[] {
  const mark = `--${boundaryOf(contentType)}`;
  const parts: FormPart[] = [];
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
    parts.push(partOf(bytes, { start, headersStart: after + 2, valueEnd: next - CRLF.length }));
    start = next;
  }
  const rest = bytes.subarray(start + mark.length + 2);
  if (rest.length > 0 && rest.toString("latin1", 0, 3) !== CRLF)
    refuse("something follows its last boundary");
  return parts;
}

/** The next boundary; one that does not stand at the beginning of a line is not a boundary to everybody. */
function nextMark(bytes: Buffer, mark: string, from: number): number {
  const at = bytes.indexOf(mark, from, "latin1");
  if (at === -1) return refuse("its last boundary is missing");
  if (bytes.toString("latin1", at - 2, at) !== CRLF) refuse("a boundary stands inside a line");
  return at;
}

function partOf(
  bytes: Buffer,
  { start, headersStart, valueEnd }: { start: number; headersStart: number; valueEnd: number },
): FormPart {
  const headersEnd = bytes.indexOf(HEADER_END, headersStart);
  const valueStart = headersEnd + HEADER_END.length;
  if (headersEnd === -1 || valueStart > valueEnd || headersEnd - headersStart > PART_HEADER_BYTES_MAX)
    refuse(`the headers of a part do not end within ${PART_HEADER_BYTES_MAX} bytes`);
  const disposition = dispositionIn(bytes.toString("utf8", headersStart, headersEnd));
  const found = DISPOSITION.exec(disposition);
  if (!found) return refuse('a part has no plain `content-disposition: form-data; name="…"`');
  const isFile = found[2] !== undefined || found[3] !== undefined;
  return { name: found[1]!, isFile, start, end: valueEnd + CRLF.length, valueStart, valueEnd };
}

function dispositionIn(headers: string): string {
  const seen = new Map<string, string>();
  for (const line of headers.split(CRLF)) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    if (!HEADERS.has(name) || seen.has(name) || /[\r\n\0]/.test(line))
      refuse(`a part may have ${[...HEADERS].join(", ")}, each once`);
    seen.set(name, line.slice(colon + 1).trim());
  }
  if (!PLAIN_ENCODING.test(seen.get("content-transfer-encoding") ?? "binary"))
    refuse("its parts must not be encoded");
  return seen.get("content-disposition") ?? "";
}
