import { isObject, jsonIn } from "../../kernel/json.ts";
import { problemOf } from "../../kernel/json-scan.ts";
import { nextTurn } from "../../kernel/turns.ts";
import { outlineOf } from "../inference/index.ts";

export const ENDPOINTS = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"] as const;

/** Per user: files and the output of running batches. */
export const KEPT_BYTES = 1024 * 1024 * 1024;
/** Limits of a batch. */
const MOST = { lines: 10_000, lineBytes: 1024 * 1024, errors: 100, customIdChars: 512 };
/** Bytes checked in one turn of the event loop. */
const BYTES_A_TURN = 64 * 1024;
/** The fixed cost of checking a line, in bytes. */
const PER_LINE_BYTES = 2 * 1024;
/** Fields that need what is stored for live requests. */
const LIVE_ONLY = ["stream", "memory", "conversation_id", "previous_response_id", "background"];

export interface LineError {
  code: string;
  message: string;
  line: number | null;
  param: string | null;
}

export interface AskedLine {
  line: number;
  customId: string;
  body: string;
}

type Problem = Pick<LineError, "code" | "message" | "param">;
const problem = (code: string, message: string): Problem => ({ code, message, param: null });
const ofFile = (code: string, message: string): LineError => ({ ...problem(code, message), line: null });
export const UNFINISHED = ofFile(
  "interrupted",
  "The service was stopped while it read the file; create the batch again",
);

/** Lines without their newlines. Of a line that is too long, enough to notice. */
async function* linesIn(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const piece of pieces) {
    const text = Buffer.concat([rest.subarray(0, MOST.lineBytes + 1), piece]);
    let start = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", start)) {
      yield text.subarray(start, end);
      start = end + 1;
    }
    rest = text.subarray(start);
  }
  if (rest.length > 0) yield rest;
}

/** Reads the lines of an input file and reports the errors, up to a limit; `check` returns why it refuses a line. */
export async function readLines(
  input: AsyncIterable<Uint8Array>,
  endpoint: string,
  check: (asked: AskedLine) => Promise<string | null>,
): Promise<{ bytes: number; errors: LineError[] }> {
  const errors: LineError[] = [];
  const ids = new Set<string>();
  let [line, bytes, sinceTurn] = [0, 0, 0];
  for await (const each of linesIn(input)) {
    line++;
    bytes += each.length + 1;
    sinceTurn += each.length + PER_LINE_BYTES;
    if (sinceTurn >= BYTES_A_TURN) {
      sinceTurn = 0;
      await nextTurn();
    }
    const isTooLong = each.length > MOST.lineBytes;
    const text = isTooLong ? "" : each.toString().trim();
    const refuse = (code: string, message: string, param: string | null = null) =>
      errors.push({ code, message, line, param });
    if (errors.length >= MOST.errors) break;
    if (line > MOST.lines) {
      refuse("too_many_requests", `A batch has at most ${MOST.lines} lines, empty ones too`);
      break;
    }
    if (text === "" && !isTooLong) continue;
    const read = isTooLong ? TOO_LONG : lineOf(text, endpoint);
    if ("code" in read) refuse(read.code, read.message, read.param);
    else if (ids.has(read.customId))
      refuse("duplicate_custom_id", "`custom_id` stands on an earlier line, too", "custom_id");
    else {
      ids.add(read.customId);
      const refusal = await check({ ...read, line });
      if (refusal !== null) refuse("invalid_request", refusal, "body");
    }
  }
  if (ids.size === 0 && errors.length === 0) errors.push(ofFile("empty_file", "The file has no lines"));
  return { bytes, errors };
}

const TOO_LONG = problem("line_too_long", `A line has at most ${MOST.lineBytes} bytes`);
const noObject = (message: string) => problem("invalid_json_line", message);

function lineOf(text: string, endpoint: string): Omit<AskedLine, "line"> | Problem {
  // Serialising deeply nested values takes seconds.
  const cost = problemOf(text);
  if (cost !== null) return noObject(`The line is refused: ${cost}`);
  const asked = jsonIn(text);
  if (asked === undefined) return noObject("The line is not JSON");
  if (!isObject(asked)) return noObject("The line is not an object");
  const { custom_id: customId, method, url, body } = asked;
  if (typeof customId !== "string" || customId === "" || customId.length > MOST.customIdChars)
    return invalid("custom_id", `must be a text of 1 to ${MOST.customIdChars} characters`);
  if (method !== "POST") return invalid("method", "must be POST");
  if (url !== endpoint) return invalid("url", `must be ${endpoint}, as the batch says`);
  if (!isObject(body)) return invalid("body", "must be an object");
  const live = LIVE_ONLY.find(
    (field) => body[field] !== undefined && body[field] !== null && body[field] !== false,
  );
  if (live) return invalid(`body.${live}`, "is not for batches; leave it out");
  const source = sourceOf(text, "body");
  return source === null ? invalid("body", "has too many members beside it") : { customId, body: source };
}

/** The member's own text: serialising the value again would round long numbers. */
function sourceOf(json: string, name: string): string | null {
  const bytes = Buffer.from(json);
  try {
    const { members } = outlineOf(bytes, bytes.toString("latin1"));
    const { valueStart, end } = members.findLast(({ key }) => key === name)!;
    return bytes.toString("utf8", valueStart, end);
  } catch {
    return null;
  }
}

const invalid = (param: string, problem: string): Problem => ({
  code: "invalid_request",
  message: `\`${param}\` ${problem}`,
  param,
});
