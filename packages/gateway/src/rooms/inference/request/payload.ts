import { isAscii, isUtf8 } from "node:buffer";
import type { DialectName, JsonBody } from "../../../backends/contract.ts";
import { fail } from "../../../kernel/errors.ts";
import { isObject, objectsIn } from "../../../kernel/json.ts";
import {
  costProblem,
  countMembers,
  endOfBrackets,
  endOfString,
  hasEscapedLetters,
  JSON_DEPTH_MAX,
  JsonNesting,
  JsonScanError,
  skipSpace,
  withoutTexts,
} from "../../../kernel/json-scan.ts";
import { LARGE_BODY_BYTES, nextTurn } from "../../../kernel/turns.ts";
import { MEDIA_NAMES } from "../../metering/index.ts";
import {
  type ExtraField,
  hasOwnField,
  type InnerField,
  isOwnField,
  readExtra,
  readSpendFields,
  requireField,
  requireName,
  type SpendFields,
} from "./fields.ts";
import type { VendorTool } from "./vendor-side.ts";

/** Limit for `extra` and `options`, which are parsed in one go, and more than once. */
const INNER_BYTES_MAX = 256 * 1024;
const VENDOR_WORD = /"(?:(?:tool_addition|file_id|file_uri|fileUri)"|[gG][sS]:)/;
/** Messages are nearly the whole body; keeping them parsed would hold a second copy until the answer arrives. */
const MESSAGES = "messages";
/** Where each dialect has the conversation. */
export const HISTORIES = [MESSAGES, "input", "contents"];

interface Source {
  bytes: Buffer;
  /** Each key once. If a client repeats one, the last counts, as in every JSON parser. */
  members: ReadonlyMap<string, Member>;
  hasDuplicates: boolean;
  mayNameVendors: boolean;
  mayHaveMedia: boolean;
}

/** A body to send, whose size is known before it is encoded. */
export interface ComposedBody extends JsonBody {
  /** In bytes, or in characters if it is not encoded yet. */
  size(): number;
  bytes(): Buffer<ArrayBuffer>;
}

/** A request body, parsed once. Changes are spliced into the client's own bytes, so everything else passes unchanged. */
export class Payload {
  readonly messagesProblem: MessagesProblem | null;
  readonly mayHaveMedia: boolean;
  /** Whether messages may contain tools, or files kept by a vendor. A cheap text search, to avoid parsing a long history. */
  readonly mayNameVendors: boolean;
  /** Set by voices that translate another API's request. */
  wantsThoughts = false;
  session: string | null = null;
  firstResponse: string | null = null;
  /** Null until looked for. */
  vendorTools: readonly VendorTool[] | null = null;
  readonly #values: Map<string, unknown>;
  readonly #source: Source | null;
  #extra: readonly ExtraField[] | null = null;

  static async read(bytes: Buffer, settings?: string): Promise<Payload> {
    const isLarge = bytes.length > LARGE_BODY_BYTES;
    if (isLarge) await nextTurn();
    // In Latin-1 a position is the same in text and bytes, and JSON's syntax is ASCII.
    const text = bytes.toString("latin1");
    if (isLarge) await nextTurn();
    const { members, nesting } = orRefuse(() => outlineOf(bytes, text, MESSAGES));
    const problem = costProblem(text, nesting);
    if (problem !== null) fail("invalid_request", `The body is too costly to read: ${problem}`);
    if (isLarge) await nextTurn();
    const skimmed = withoutTexts(text, nesting.longStrings);
    if (isLarge) await nextTurn();
    const fields = orRefuse(() => JSON.parse(skimmed) as Record<string, unknown>);
    if (isLarge) await nextTurn();
    const byKey = new Map(members.map((member) => [member.key, member]));
    const isEscaped = hasEscapedLetters(skimmed);
    const source = {
      bytes,
      members: byKey,
      hasDuplicates: byKey.size < members.length,
      mayNameVendors: isEscaped || VENDOR_WORD.test(skimmed),
      // Looked for in the text, since upstreams get every member, of repeated ones too, and parsers keep the last.
      mayHaveMedia: isEscaped || mentionsMedia(skimmed),
    };
    if (isLarge) await nextTurn();
    // Ignored repeats are not sent, but nobody repeats a protected field by mistake.
    if (source.hasDuplicates) for (const member of members) requireField(member.key, parsedAt(bytes, member));
    return new Payload(fields, source, settings);
  }

  /** With a source, strings in `fields` are Latin-1. */
  constructor(
    fields: Readonly<Record<string, unknown>>,
    source: Source | null = null,
    /** The API's own settings object, whose contents the API's reader checks. */
    settings?: string,
  ) {
    this.#source = source;
    this.messagesProblem = problemOfMessages(fields[MESSAGES]);
    this.mayHaveMedia =
      source?.mayHaveMedia ?? HISTORIES.some((name) => objectsIn(fields[name]).some(hasMedia));
    this.mayNameVendors = source?.mayNameVendors ?? true;
    this.#values = source ? exactValues(fields, source) : new Map(Object.entries(fields));
    for (const [name, value] of this.#values)
      if (value === undefined) this.#values.delete(name);
      else if (name === settings) requireName(name);
      else requireField(name, value);
  }

  has(name: string): boolean {
    return (this.#source?.members ?? this.#values).has(name);
  }

  names(): Iterable<string> {
    return (this.#source?.members ?? this.#values).keys();
  }

  value(name: string): unknown {
    const unread = name === MESSAGES && this.#source?.members.get(MESSAGES);
    return unread ? parsedAt(this.#source!.bytes, unread) : this.#values.get(name);
  }

  /** Whether an object in this field repeats a name. `value` has its last member only; an upstream may read others. */
  repeatsNamesIn(name: string): boolean {
    const { valueStart = 0, end = 0 } = this.#source?.members.get(name) ?? {};
    const text = end > 0 ? this.#source!.bytes.toString("utf8", valueStart, end) : "[]";
    return countMembers(text) > countMembers(JSON.stringify(JSON.parse(text)));
  }

  /** The messages up to the user's first one, without parsing the rest of a long conversation. */
  opening(): unknown {
    const member = this.#source?.members.get(MESSAGES);
    return member ? openingOf(this.#source!.bytes, member) : this.#values.get(MESSAGES);
  }

  includes(text: string): boolean {
    return this.#source?.bytes.includes(text) ?? true;
  }

  object(): Record<string, unknown> {
    const source = this.#source;
    return source ? JSON.parse(source.bytes.toString()) : Object.fromEntries(this.#values);
  }

  /** The number of tokens in an array of token numbers, or of such arrays; null for anything else. */
  tokenCount(name: "input" | "prompt"): number | null {
    const value = this.#values.get(name);
    const tokens = Array.isArray(value) ? value.flat() : [];
    return tokens.length > 0 && tokens.every((token) => typeof token === "number") ? tokens.length : null;
  }

  get extra(): readonly ExtraField[] {
    this.#extra ??= readExtra(this);
    return this.#extra;
  }

  /** A field's value as it is sent: from `extra` if that sets it, else from the request. */
  sent(name: string): unknown {
    const extra = this.extra.find((field) => field.isSent && field.name === name);
    return extra ? extra.value : this.value(name);
  }

  sentNames(): string[] {
    const added = this.extra.filter(({ isSent }) => isSent);
    return [...this.names(), ...added.map(({ name }) => name)].filter((name) => !isOwnField(name));
  }

  spendFields(): SpendFields {
    return readSpendFields(this);
  }

  /** The members of a field that is an object, repeated names included; empty for any other field. */
  inner(name: string): readonly InnerField[] {
    const value = this.#values.get(name);
    if (!isObject(value)) return [];
    if (this.#source) return innerFields(this.#source, name);
    return Object.entries(value).map(([key, of]) => ({ name: key, value: of, member: memberOf(key, of) }));
  }

  /** Whether the gateway made it, so that there are no client bytes. */
  get isMade(): boolean {
    return this.#source === null;
  }

  /** The body to send: `set` replaces or adds fields ("" removes one), our own fields go, `extra` adds what is missing. */
  compose(set: ReadonlyMap<string, string>): ComposedBody {
    const source = this.#source;
    if (source && set.size === 0 && !source.hasDuplicates && !hasOwnField(this))
      return new SentJson(source.bytes);
    const added = this.extra.filter(({ name, isSent }) => isSent && !set.has(name));
    const parts: (Buffer | string)[] = [];
    for (const name of this.names()) if (!set.has(name) && !isOwnField(name)) parts.push(this.#member(name));
    for (const [name, json] of set) if (json) parts.push(`${JSON.stringify(name)}:${json}`);
    for (const { member } of added) parts.push(member);
    return new SentJson(source ? spliced(parts) : `{${parts.join(",")}}`, this.wantsThoughts, this.isMade);
  }

  #member(name: string): Buffer | string {
    const source = this.#source;
    if (!source) return memberOf(name, this.#values.get(name));
    const { start, end } = source.members.get(name)!;
    return source.bytes.subarray(start, end);
  }
}

const memberOf = (name: string, value: unknown): string => `${JSON.stringify(name)}:${JSON.stringify(value)}`;

const parsedAt = (bytes: Buffer, { valueStart, end }: Member): unknown =>
  JSON.parse(bytes.toString("utf8", valueStart, end));

function openingOf(bytes: Buffer, { valueStart, end }: Member): unknown[] {
  const text = bytes.toString("latin1", valueStart, Math.min(end, valueStart + LARGE_BODY_BYTES));
  const found: { role?: unknown }[] = [];
  let start = skipSpace(text, 1);
  while (text[start] === "{" && found.at(-1)?.role !== "user") {
    const close = new JsonNesting(JSON_DEPTH_MAX).read(text, start);
    if (close === -1) return [...found, text];
    found.push(JSON.parse(bytes.toString("utf8", valueStart + start, valueStart + close)));
    start = skipSpace(text, skipSpace(text, close) + 1);
  }
  return found;
}

/** All values but the messages. Members that are not ASCII are parsed again as UTF-8. */
function exactValues(
  fields: Readonly<Record<string, unknown>>,
  { bytes, members }: Source,
): Map<string, unknown> {
  const isAllAscii = isAscii(bytes);
  const values = new Map<string, unknown>();
  for (const [name, member] of members) {
    if (name === MESSAGES) continue;
    const isExact = isAllAscii || isAscii(bytes.subarray(member.start, member.end));
    values.set(name, isExact ? fields[name] : parsedAt(bytes, member));
  }
  return values;
}

function innerFields({ bytes, members }: Source, name: string): InnerField[] {
  const { valueStart, end } = members.get(name)!;
  if (end - valueStart > INNER_BYTES_MAX)
    fail("invalid_request", `\`${name}\` is larger than ${INNER_BYTES_MAX} bytes`);
  const object = bytes.subarray(valueStart, end);
  const { members: found } = orRefuse(() => outlineOf(object, object.toString("latin1")));
  return found.map((inner) => ({
    name: inner.key,
    value: parsedAt(object, inner),
    member: object.subarray(inner.start, inner.end),
  }));
}

function spliced(parts: readonly (Buffer | string)[]): Buffer {
  const pieces = parts.flatMap((part) => [
    Buffer.from(","),
    typeof part === "string" ? Buffer.from(part) : part,
  ]);
  return Buffer.concat([Buffer.from("{"), ...pieces.slice(1), Buffer.from("}")]);
}

class SentJson implements ComposedBody {
  #content: Buffer | string;

  constructor(
    content: Buffer | string,
    readonly wantsThoughts = false,
    readonly isMade = false,
  ) {
    this.#content = content;
  }
  size(): number {
    return this.#content.length;
  }
  bytes(): Buffer<ArrayBuffer> {
    if (typeof this.#content === "string") this.#content = Buffer.from(this.#content);
    return this.#content as Buffer<ArrayBuffer>;
  }
  object(): Record<string, unknown> {
    return JSON.parse(this.#content.toString());
  }
}

function orRefuse<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof JsonScanError || error instanceof SyntaxError)
      fail("invalid_request", `The body is not a valid JSON object: ${error.message}`);
    throw error;
  }
}

/** A request in a vendor's own dialect; a backend that speaks it gets the client's bytes. */
export interface NativeRequest {
  dialect: DialectName;
  payload: Payload;
  model: string;
  stream: boolean;
  spend: SpendFields;
  /** Fields to set so that the answer has at most this many tokens. */
  limited(tokens: number): ReadonlyMap<string, string>;
  headersLike(names: RegExp): Record<string, string>;
  /** The request as a chat, for a backend that does not speak the dialect. Throws if a chat cannot express it. */
  chat(): Payload;
}

type MessagesProblem = { field: string; expected: string };

const ROLES: ReadonlySet<unknown> = new Set(["user", "assistant", "system", "developer", "tool", "function"]);
const ROLES_TEXT = "must be user, assistant, system, developer or tool";
const LIST_FIELDS = ["images", "tool_calls"] as const;

/** The first problem in a list of messages, by the rules of every surface; null if there is none. */
function problemOfMessages(messages: unknown): MessagesProblem | null {
  if (!Array.isArray(messages) || messages.length === 0)
    return { field: MESSAGES, expected: "is required: an array of {role, content} with at least one entry" };
  for (let i = 0; i < messages.length; i++) {
    const problem = problemOf(messages[i], i);
    if (problem) return problem;
  }
  return null;
}

function problemOf(message: unknown, i: number): MessagesProblem | null {
  if (!isObject(message)) return { field: `messages.${i}`, expected: "must be an object: {role, content}" };
  const { role, content, images } = message;
  if (!ROLES.has(role)) return { field: `messages.${i}.role`, expected: ROLES_TEXT };
  for (const name of LIST_FIELDS) {
    const value = message[name];
    if (value != null && !Array.isArray(value))
      return { field: `messages.${i}.${name}`, expected: "must be an array" };
  }
  // An answer may consist only of calls, and a question only of images.
  const isOptional = role === "assistant" || images != null;
  if (typeof content === "string" || Array.isArray(content) || (content == null && isOptional)) return null;
  return { field: `messages.${i}.content`, expected: "is required: a text or an array of parts" };
}

const MEDIA_WORD = new RegExp(`"(?:${MEDIA_NAMES.join("|")})"\\s*:`);

/** Whether JSON without escaped names has a member that is named like media. */
export const mentionsMedia = (json: string): boolean => MEDIA_WORD.test(json);

const hasMedia = (message: Record<string, unknown>): boolean =>
  [message, ...objectsIn(message.content)].some((part) => MEDIA_NAMES.some((name) => name in part));

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACKET = 91;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const MEMBERS_MAX = 10_000;
/** Its UTF-8 bytes, read as Latin-1. */
const BYTE_ORDER_MARK = "\xef\xbb\xbf";

export interface Member {
  key: string;
  /** From the start of the key to the end of the value. */
  start: number;
  valueStart: number;
  end: number;
}

/**
 * The members of a JSON object in order, repeated keys included, with the counts for the cost check and the long strings
 * of the `unkept` member. `text` is `bytes` read as Latin-1, so positions are the same in both.
 */
export function outlineOf(
  bytes: Buffer,
  text: string,
  unkept?: string,
): { members: Member[]; nesting: JsonNesting } {
  if (!isAscii(bytes) && !isUtf8(bytes)) throw new JsonScanError("it is not valid UTF-8");
  if (text.startsWith(BYTE_ORDER_MARK))
    throw new JsonScanError("it begins with a byte order mark; send UTF-8 without one");
  const start = skipSpace(text, 0);
  if (text.charCodeAt(start) !== OPEN_BRACE) throw new JsonScanError("it is not a JSON object");
  const nesting = new JsonNesting(JSON_DEPTH_MAX - 1);
  const members: Member[] = [];
  let at = skipSpace(text, start + 1);
  while (text.charCodeAt(at) !== CLOSE_BRACE || members.length > 0) {
    const longBefore = nesting.longStrings.length;
    const member = memberAt(at, bytes, text, nesting);
    if (member.key !== unkept) nesting.longStrings.length = longBefore;
    members.push(member);
    if (members.length > MEMBERS_MAX) throw new JsonScanError(`it has more than ${MEMBERS_MAX} members`);
    at = skipSpace(text, member.end);
    if (text.charCodeAt(at) === CLOSE_BRACE) break;
    if (text.charCodeAt(at) !== COMMA) throw new JsonScanError(`a comma is missing at byte ${at}`);
    at = skipSpace(text, at + 1);
  }
  nesting.outsideChars += members.reduce((left, member) => left - member.end + member.start, text.length);
  return { members, nesting };
}

function memberAt(start: number, bytes: Buffer, text: string, nesting: JsonNesting): Member {
  if (text.charCodeAt(start) !== QUOTE) throw new JsonScanError(`a key is missing at byte ${start}`);
  const keyEnd = endOfString(text, start + 1);
  const colon = skipSpace(text, keyEnd);
  if (keyEnd === -1 || text.charCodeAt(colon) !== COLON)
    throw new JsonScanError(`a colon is missing behind the key at byte ${start}`);
  const key = keyAt(bytes, text, start, keyEnd);
  const valueStart = skipSpace(text, colon + 1);
  nesting.outsideChars += valueStart - keyEnd;
  return { key, start, valueStart, end: endOfValue(text, valueStart, nesting) };
}

function endOfValue(text: string, at: number, nesting: JsonNesting): number {
  const char = text.charCodeAt(at);
  if (char === OPEN_BRACE || char === OPEN_BRACKET) return endOfBrackets(text, at, nesting);
  if (char === QUOTE) {
    const end = endOfString(text, at + 1);
    if (end === -1) throw new JsonScanError("a string does not end");
    return end;
  }
  SCALAR.lastIndex = at;
  if (!SCALAR.test(text)) throw new JsonScanError(`unexpected text at byte ${at}`);
  nesting.outsideChars += SCALAR.lastIndex - at;
  return SCALAR.lastIndex;
}
const SCALAR = /[\w.+-]+/y;

/** A key's text. Nearly all keys are plain letters and need no parsing. */
function keyAt(bytes: Buffer, text: string, start: number, end: number): string {
  const plain = text.slice(start + 1, end - 1);
  if (/^[\w$.-]*$/.test(plain)) return plain;
  try {
    return JSON.parse(bytes.toString("utf8", start, end)) as string;
  } catch {
    throw new JsonScanError(`a key at byte ${start} is not a JSON string`);
  }
}
