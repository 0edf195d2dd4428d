import type { JsonBody } from "../../backends/contract.ts";
import { fail } from "../../kernel/errors.ts";
import { JsonScanError, type Member, scanObject } from "./json-scan.ts";

/** Fields that are the gateway's own; no upstream sees them. */
const OWN_FIELDS = ["conversation_id", "memory", "extra", "provider"] as const;
/** What `extra` can never set. */
const PROTECTED = new Set([
  "model",
  "messages",
  "stream",
  "temperature",
  "max_tokens",
  "options",
  "input",
  ...OWN_FIELDS,
]);
const TEXT_KEPT_MAX = 16 * 1024;
/** Stands in JSON as it is: ASCII, and nothing escaped. */
const PLAIN_STRING = /^"[ !#-[\]-~]*"$/;
const OPEN = Buffer.from("{");
const CLOSE = Buffer.from("}");
const COMMA = Buffer.from(",");

/**
 * A request body as bytes with its top level known. Fields are read one by one when asked for, and changed by
 * splicing, so that what nobody looks at passes exactly as the client wrote it.
 */
export class Payload {
  readonly #bytes: Buffer;
  /** In Latin-1: positions are the same in both, and a short text is cheaper to look into than bytes. */
  readonly #text: string | null;
  /** Each key once; where a client repeats one, the last counts, as it does to every JSON parser. */
  readonly #members = new Map<string, Member>();
  readonly #hasDuplicates: boolean;

  constructor(body: Uint8Array) {
    this.#bytes = asBuffer(body);
    const text = this.#bytes.toString("latin1");
    // A long one would be kept twice until the answer is there.
    this.#text = text.length <= TEXT_KEPT_MAX ? text : null;
    const members = scan(this.#bytes, text);
    for (const member of members) this.#members.set(member.key, member);
    this.#hasDuplicates = this.#members.size !== members.length;
  }

  get byteLength(): number {
    return this.#bytes.length;
  }

  /** The client's bytes, for estimates. */
  get bytes(): Uint8Array {
    return this.#bytes;
  }

  has(key: string): boolean {
    return this.#members.has(key);
  }

  /** The first byte of the value tells its type; undefined when there is no such field. */
  #kind(member: Member): "string" | "array" | "object" | "scalar" {
    const byte = this.#bytes[member.valueStart];
    return byte === 34 ? "string" : byte === 91 ? "array" : byte === 123 ? "object" : "scalar";
  }

  isArray(key: string): boolean {
    const member = this.#members.get(key);
    return member !== undefined && this.#kind(member) === "array";
  }

  isString(key: string): boolean {
    const member = this.#members.get(key);
    return member !== undefined && this.#kind(member) === "string";
  }

  isNull(key: string): boolean {
    const member = this.#members.get(key);
    return member !== undefined && this.#bytes[member.valueStart] === 110;
  }

  isEmptyArray(key: string): boolean {
    const member = this.#members.get(key);
    if (!member || this.#kind(member) !== "array") return false;
    return /^\[\s*\]$/.test(
      this.#bytes.toString("latin1", member.valueStart, Math.min(member.end, member.valueStart + 64)),
    );
  }

  /** The parsed value; only for fields that the gateway must understand. */
  value(key: string): unknown {
    const member = this.#members.get(key);
    if (!member) return undefined;
    const { valueStart, end } = member;
    const raw = this.#text?.slice(valueStart, end);
    if (raw !== undefined && PLAIN_STRING.test(raw)) return raw.slice(1, -1);
    const text = this.#bytes.toString("utf8", valueStart, end);
    try {
      return JSON.parse(text);
    } catch {
      return fail("missing_fields", `\`${key}\` is not valid JSON`);
    }
  }

  /**
   * What is sent upstream: `set` replaces or adds fields, given as JSON texts; the gateway's own fields go; the
   * members of an `extra` object are added where nothing has that name.
   */
  compose(set: ReadonlyMap<string, string>): JsonBody {
    const dropsSome = this.#hasDuplicates || OWN_FIELDS.some((key) => this.#members.has(key));
    return new ComposedBody(
      dropsSome || set.size > 0 ? this.#splice(set) : (this.#bytes as Uint8Array<ArrayBuffer>),
    );
  }

  #splice(set: ReadonlyMap<string, string>): Uint8Array<ArrayBuffer> {
    const parts: Uint8Array[] = [OPEN];
    const add = (part: Uint8Array) => {
      if (parts.length > 1) parts.push(COMMA);
      parts.push(part);
    };
    for (const [key, { start, end }] of this.#members) {
      if (!set.has(key) && !isOwnField(key)) add(this.#bytes.subarray(start, end));
    }
    for (const [key, json] of set) add(Buffer.from(`${JSON.stringify(key)}:${json}`));
    for (const part of this.#extraMembers(set)) add(part);
    parts.push(CLOSE);
    return Buffer.concat(parts) as Uint8Array<ArrayBuffer>;
  }

  #extraMembers(set: ReadonlyMap<string, string>): Uint8Array[] {
    const extra = this.#members.get("extra");
    if (!extra || this.#kind(extra) !== "object") return [];
    const object = this.#bytes.subarray(extra.valueStart, extra.end);
    const byKey = new Map(scan(object).map((member) => [member.key, member]));
    return [...byKey.values()]
      .filter(({ key }) => !PROTECTED.has(key) && !set.has(key) && !this.#members.has(key))
      .map(({ start, end }) => object.subarray(start, end));
  }
}

const isOwnField = (key: string) => (OWN_FIELDS as readonly string[]).includes(key);

class ComposedBody implements JsonBody {
  readonly #bytes: Uint8Array<ArrayBuffer>;
  #parsed: Record<string, unknown> | null = null;

  constructor(bytes: Uint8Array<ArrayBuffer>) {
    this.#bytes = bytes;
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

function scan(bytes: Buffer, text?: string): Member[] {
  try {
    return scanObject(bytes, text);
  } catch (error) {
    if (error instanceof JsonScanError)
      fail("invalid_request", `The body is not a valid JSON object: ${error.message}`);
    throw error;
  }
}

function parseObject(bytes: Uint8Array): Record<string, unknown> {
  try {
    return JSON.parse(asBuffer(bytes).toString());
  } catch {
    return fail("invalid_request", "The body is not valid JSON");
  }
}
