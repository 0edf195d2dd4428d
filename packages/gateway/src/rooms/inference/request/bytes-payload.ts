import { fail } from "../../../kernel/errors.ts";
import { costProblem } from "../../../kernel/json-cost.ts";
import {
  isSpace,
  JsonScanError,
  type Member,
  type OnString,
  parseScanned,
  scanMembers,
  scanObject,
  skipSpace,
} from "../../../kernel/json-scan.ts";
import { JsonStrings } from "../../../kernel/json-strings.ts";
import { LARGE_BODY_BYTES, nextTurn } from "../../../kernel/turns.ts";
import { estimatePromptTokens } from "../../metering/index.ts";
import { type MessagesProblem, problemOfMessages } from "./messages-problem.ts";
import {
  type ComposedBody,
  hasOwnField,
  isExtraSent,
  isInnerSettings,
  isOwnField,
  type Kind,
  type Payload,
  requireName,
  requireOutside,
  SPELLED_ONE_WAY_IN_OPTIONS,
} from "./payload.ts";
import { isSpendField, OPTIONS, PREDICTION, SpendFields, spendNumber } from "./spend-fields.ts";

const TEXT_KEPT_MAX = 16 * 1024;
/** Of `extra` and `options`, which are read at once, and more than once. */
const INNER_BYTES_MAX = 256 * 1024;
/** Keys of message parts that are images, audio or files, with their quotes. */
const MEDIA_KEYS = [
  '"image_url"',
  '"input_audio"',
  '"images"',
  '"video_url"',
  '"audio_url"',
  '"input_video"',
  '"file_data"',
] as const;
const KEY_LENGTH_MAX = 100;
const COLON = 58;
const OPENING_BRACE = 123;
const CLOSING_BRACKET = 93;
/** Stands in JSON as it is: ASCII, and nothing escaped. */
const PLAIN_STRING = /"[ !#-[\]-~]*"/y;
/** An array whose first element, or whose first array's first element, is a number. */
const TOKEN_ARRAY = /^\[\s*(\[\s*)?\d/;
/** What is read of a list to see what is in it. */
const OPENING_BYTES = 64;
const COMMA_BYTE = 44;
const QUOTE_BYTE = 34;
const OPEN = Buffer.from("{");
const CLOSE = Buffer.from("}");
const COMMA = Buffer.from(",");

/** One look at a body, in steps that each take a while when it is large. */
class Reading {
  readonly bytes: Buffer;
  #strings!: JsonStrings;
  members: readonly Member[] = [];
  mayHaveMedia = false;
  messagesProblem: MessagesProblem | null = null;

  constructor(body: Uint8Array) {
    this.bytes = asBuffer(body);
  }

  atOnce(): this {
    this.#decode();
    this.#scan();
    this.#parse();
    return this;
  }

  async inTurns(): Promise<this> {
    await nextTurn();
    this.#decode();
    await nextTurn();
    this.#scan();
    await nextTurn();
    this.#parse();
    await nextTurn();
    return this;
  }

  /** In Latin-1. */
  get text(): string {
    return this.#strings.text;
  }

  #decode(): void {
    this.#strings = new JsonStrings(this.bytes, this.bytes.toString("latin1"));
  }

  #scan(): void {
    const { bytes, text } = this;
    const problem = costProblem(text);
    if (problem !== null) fail("invalid_request", `The body is too costly to read: ${problem}`);
    const onString: OnString = (_, start, end) => {
      if (!this.mayHaveMedia && isMediaKey(text, start, end)) this.mayHaveMedia = true;
    };
    try {
      this.members = scanMembers(bytes, { onString, strings: this.#strings });
    } catch (error) {
      refuseScan(error);
    }
  }

  /** What is parsed is not kept: it would be a second copy of the request until the answer is there. */
  #parse(): void {
    try {
      this.messagesProblem = problemOfMessages(parseScanned(this.#strings).messages);
    } catch (error) {
      refuseScan(error);
    }
  }
}

/**
 * A request body as bytes with its top level known. Fields are read one by one when asked for, and changed by
 * splicing, so that everything else passes exactly as the client wrote it.
 */
export class BytesPayload implements Payload {
  readonly #bytes: Buffer;
  /** In Latin-1: positions are the same in both, and a short text is cheaper to look into than bytes. */
  readonly #text: string | null;
  /** Each key once; where a client repeats one, the last counts, as it does to every JSON parser. */
  readonly #members = new Map<string, Member>();
  readonly #hasDuplicates: boolean;
  readonly mayHaveMedia: boolean;
  readonly messagesProblem: MessagesProblem | null;

  /** A large body is read in steps. */
  static read(body: Uint8Array): BytesPayload | Promise<BytesPayload> {
    const reading = new Reading(body);
    if (body.length > LARGE_BODY_BYTES) return reading.inTurns().then((done) => new BytesPayload(done));
    return new BytesPayload(reading.atOnce());
  }

  private constructor({ bytes, text, members, mayHaveMedia, messagesProblem }: Reading) {
    this.#bytes = bytes;
    // A long body would be held twice until the answer arrives.
    this.#text = text.length <= TEXT_KEPT_MAX ? text : null;
    this.mayHaveMedia = mayHaveMedia;
    this.messagesProblem = messagesProblem;
    for (const member of members) {
      requireName(member.key);
      if (isInnerSettings(member.key)) requireSettings(bytes, member, member.key);
      this.#members.set(member.key, member);
    }
    this.#hasDuplicates = this.#members.size !== members.length;
  }

  has(key: string): boolean {
    return this.#members.has(key);
  }

  kindOf(key: string): Kind | undefined {
    const member = this.#members.get(key);
    if (!member) return undefined;
    const byte = this.#bytes[member.valueStart];
    if (byte === 91) return this.#isEmptyArray(member) ? "empty array" : "array";
    return byte === 34 ? "string" : byte === 123 ? "object" : byte === 110 ? "null" : "scalar";
  }

  #isEmptyArray({ valueStart }: Member): boolean {
    let at = valueStart + 1;
    while (isSpace(this.#bytes[at]!)) at++;
    return this.#bytes[at] === CLOSING_BRACKET;
  }

  tokenCount(key: string): number | null {
    const member = this.#members.get(key);
    if (!member) return null;
    const { valueStart, end } = member;
    const opening = this.#bytes.toString("latin1", valueStart, Math.min(end, valueStart + OPENING_BYTES));
    if (!TOKEN_ARRAY.test(opening)) return null;
    let count = 1;
    for (let at = valueStart; at < end; at++) {
      const byte = this.#bytes[at];
      if (byte === COMMA_BYTE) count++;
      // Strings among the numbers count as text.
      else if (byte === QUOTE_BYTE) return null;
    }
    return count;
  }

  value(key: string): unknown {
    const member = this.#members.get(key);
    if (!member) return undefined;
    const { valueStart, end } = member;
    PLAIN_STRING.lastIndex = valueStart;
    if (this.#text !== null && PLAIN_STRING.test(this.#text))
      return this.#text.slice(valueStart + 1, end - 1);
    try {
      return JSON.parse(this.#bytes.toString("utf8", valueStart, end));
    } catch {
      return fail("missing_fields", `\`${key}\` is not valid JSON`);
    }
  }

  spendFields(): SpendFields {
    const fields = new SpendFields();
    const extra = this.#extra();
    const replaced = namesSent(extra);
    for (const [name, { valueStart, end }] of this.#members) {
      if (replaced.has(name)) continue;
      if (name === PREDICTION)
        fields.predictionTokens = estimatePromptTokens(this.#bytes.subarray(valueStart, end), false);
      else if (name === OPTIONS) this.#readOptions(fields);
      else if (isSpendField(name)) fields.add(name, this.value(name), "");
    }
    for (const { key: name, bytes, valueStart, end, isSent } of extra) {
      if (isSent && name === PREDICTION)
        fields.predictionTokens = estimatePromptTokens(bytes.subarray(valueStart, end), false);
      if (!isSpendField(name)) continue;
      const value = parseValue(bytes.subarray(valueStart, end), `extra.${name}`);
      if (isSent) fields.add(name, value, "extra.");
      else spendNumber(value, `extra.${name}`);
    }
    return fields;
  }

  /** A repeated key is checked each time: servers disagree on which one counts. */
  #readOptions(fields: SpendFields): void {
    const member = this.#members.get(OPTIONS)!;
    if (this.kindOf(OPTIONS) !== "object") return;
    const bytes = this.#bytes.subarray(member.valueStart, member.end);
    for (const { key, valueStart, end } of scan(bytes, OPTIONS)) {
      SPELLED_ONE_WAY_IN_OPTIONS.require(key, "options.");
      if (isSpendField(key))
        fields.add(key, parseValue(bytes.subarray(valueStart, end), `options.${key}`), "options.");
    }
  }

  compose(set: ReadonlyMap<string, string>): ComposedBody {
    const dropsSome = this.#hasDuplicates || hasOwnField(this);
    return new ComposedBytes(
      dropsSome || set.size > 0 ? this.#splice(set) : (this.#bytes as Uint8Array<ArrayBuffer>),
    );
  }

  #splice(set: ReadonlyMap<string, string>): Uint8Array<ArrayBuffer> {
    const parts: Uint8Array[] = [OPEN];
    const add = (part: Uint8Array) => {
      if (parts.length > 1) parts.push(COMMA);
      parts.push(part);
    };
    const extra = this.#extra();
    const replaced = namesSent(extra);
    for (const [key, { start, end }] of this.#members) {
      if (!set.has(key) && !isOwnField(key) && !replaced.has(key)) add(this.#bytes.subarray(start, end));
    }
    for (const [key, json] of set) add(Buffer.from(`${JSON.stringify(key)}:${json}`));
    for (const { key, bytes, start, end, isSent } of extra)
      if (isSent && !set.has(key)) add(bytes.subarray(start, end));
    parts.push(CLOSE);
    return Buffer.concat(parts) as Uint8Array<ArrayBuffer>;
  }

  /** The members of an `extra` object, each key once, with whether they go into what is sent. */
  #extra(): ExtraMember[] {
    const extra = this.#members.get("extra");
    if (!extra || this.kindOf("extra") !== "object") return [];
    const bytes = this.#bytes.subarray(extra.valueStart, extra.end);
    const byKey = new Map<string, ExtraMember>();
    for (const member of scan(bytes, "extra")) {
      if (isInnerSettings(member.key)) requireSettings(bytes, member, `extra.${member.key}`);
      byKey.set(member.key, { ...member, bytes, isSent: isExtraSent(this, member.key) });
    }
    return [...byKey.values()];
  }
}

/** Whether the string between the positions is a key of an image or a sound, or written so that it may be. */
function isMediaKey(text: string, start: number, end: number): boolean {
  if (text.charCodeAt(end) !== COLON && text.charCodeAt(skipSpace(text, end)) !== COLON) return false;
  for (const key of MEDIA_KEYS) if (end - start === key.length && text.startsWith(key, start)) return true;
  return end - start <= KEY_LENGTH_MAX && text.slice(start, end).includes("\\");
}

/** Settings in a place of their own say nothing that the gateway has to read. */
function requireSettings(bytes: Buffer, { valueStart, end }: Member, field: string): void {
  if (bytes[valueStart] !== OPENING_BRACE) return;
  for (const { key } of scan(bytes.subarray(valueStart, end), field)) requireOutside(key, field);
}

interface ExtraMember extends Member {
  /** The text that the positions refer to. */
  bytes: Buffer;
  isSent: boolean;
}

const NONE: ReadonlySet<string> = new Set();
const namesSent = (extra: readonly ExtraMember[]): ReadonlySet<string> =>
  extra.length === 0 ? NONE : new Set(extra.filter(({ isSent }) => isSent).map(({ key }) => key));

function parseValue(bytes: Buffer, field: string): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return fail("missing_fields", `\`${field}\` is not valid JSON`);
  }
}

class ComposedBytes implements ComposedBody {
  readonly #bytes: Uint8Array<ArrayBuffer>;
  #parsed: Record<string, unknown> | null = null;

  constructor(bytes: Uint8Array<ArrayBuffer>) {
    this.#bytes = bytes;
  }
  size(): number {
    return this.#bytes.length;
  }
  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes;
  }
  object(): Record<string, unknown> {
    this.#parsed ??= parseObject(this.#bytes);
    return this.#parsed;
  }
}

const asBuffer = (bytes: Uint8Array): Buffer =>
  bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** The members of a value that is an object. */
function scan(bytes: Buffer, name: string): Member[] {
  if (bytes.length > INNER_BYTES_MAX)
    fail("invalid_request", `\`${name}\` is larger than ${INNER_BYTES_MAX} bytes`);
  try {
    return scanObject(bytes);
  } catch (error) {
    return refuseScan(error);
  }
}

function refuseScan(error: unknown): never {
  if (error instanceof JsonScanError)
    fail("invalid_request", `The body is not a valid JSON object: ${error.message}`);
  throw error;
}

function parseObject(bytes: Uint8Array): Record<string, unknown> {
  try {
    return JSON.parse(asBuffer(bytes).toString());
  } catch {
    return fail("invalid_request", "The body is not valid JSON");
  }
}
