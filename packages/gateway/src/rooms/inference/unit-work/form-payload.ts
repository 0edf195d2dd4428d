import { BackendError } from "../../../backends/contract.ts";
import { fail } from "../../../kernel/errors.ts";
import {
  type ComposedBody,
  isOwnField,
  isSpelledOneWay,
  type Kind,
  type Payload,
  requireName,
} from "../request/payload.ts";
import { isSpendField, SpendFields } from "../request/spend-fields.ts";
import { type FormPart, readForm } from "./multipart.ts";

/** Of all texts together; files are bounded by the body. */
const TEXT_BYTES_MAX = 1024 * 1024;
/** More digits are no number that any field may have. */
const WHOLE_NUMBER = /^\d{1,9}$/;
/** Names that stand for a list, as form libraries write them: `image[]`. */
const LIST = /\[[^\]]*\]$/;

const refuse = (field: string, expected: string): never =>
  fail("missing_fields", `\`${field}\` ${expected}`, { data: { fields: [field] } });

/** A `multipart/form-data` body: its texts are known, its files pass as the bytes that they are. */
export class FormPayload implements Payload {
  readonly messagesProblem = null;
  readonly mayHaveMedia = false;
  readonly #texts = new Map<string, FormPart>();
  readonly files: readonly { name: string; bytes: Buffer }[];
  /** Of all texts together. */
  readonly textBytes: number;
  readonly #parts: readonly FormPart[];

  constructor(
    readonly bytes: Buffer,
    contentType: string,
  ) {
    this.#parts = readForm(bytes, contentType);
    let textBytes = 0;
    for (const part of this.#parts) {
      this.#add(part);
      if (!part.isFile) textBytes += part.valueEnd - part.valueStart;
    }
    if (textBytes > TEXT_BYTES_MAX)
      fail("body_too_large", `The texts of the form are larger than ${TEXT_BYTES_MAX} bytes`);
    this.textBytes = textBytes;
    this.files = this.#parts
      .filter(({ isFile }) => isFile)
      .map(({ name, valueStart, valueEnd }) => ({ name, bytes: bytes.subarray(valueStart, valueEnd) }));
  }

  /** Servers disagree on which of two fields of a name counts, and on whether a file can be a text. */
  #add(part: FormPart): void {
    const { name, isFile } = part;
    requireName(name);
    const plain = name.replace(LIST, "");
    if (plain !== name) {
      if (isSpelledOneWay(plain) || plain !== plain.toLowerCase())
        refuse(name, `is refused: write \`${plain.toLowerCase()}\`, once`);
      return;
    }
    if (isFile) {
      if (isSpelledOneWay(name) && name !== "file") refuse(name, "must be a text, not a file");
      return;
    }
    if (this.#texts.has(name)) refuse(name, "is there twice; send it once");
    this.#texts.set(name, part);
  }

  has(key: string): boolean {
    return this.#texts.has(key);
  }

  kindOf(key: string): Kind | undefined {
    return this.#texts.has(key) ? "string" : undefined;
  }

  value(key: string): string | undefined {
    const part = this.#texts.get(key);
    return part && this.bytes.toString("utf8", part.valueStart, part.valueEnd);
  }

  tokenCount(): null {
    return null;
  }

  spendFields(): SpendFields {
    const fields = new SpendFields();
    for (const name of this.#texts.keys()) if (isSpendField(name)) fields.add(name, this.number(name), "");
    return fields;
  }

  /** The number that a text is; anything else stays the text, which is then refused as such. */
  number(name: string): number | string | undefined {
    const text = this.value(name);
    return text !== undefined && WHOLE_NUMBER.test(text) ? Number(text) : text;
  }

  /** The client's own bytes, unless a field has to change. */
  compose(set: ReadonlyMap<string, string>): ComposedBody {
    const isChanged = set.size > 0 || this.#parts.some(({ name }) => isOwnField(name));
    return new FormBody(isChanged ? this.#spliced(set) : this.bytes);
  }

  #spliced(set: ReadonlyMap<string, string>): Buffer {
    const pieces: Buffer[] = [];
    let from = 0;
    for (const { name, isFile, start, end, valueStart, valueEnd } of this.#parts) {
      const json = isFile ? undefined : set.get(name);
      if (json === undefined && !isOwnField(name)) continue;
      if (json === undefined) pieces.push(this.bytes.subarray(from, start));
      else
        pieces.push(
          this.bytes.subarray(from, valueStart),
          Buffer.from(JSON.parse(json) as string),
          this.bytes.subarray(valueEnd, end),
        );
      from = end;
    }
    pieces.push(this.bytes.subarray(from));
    return Buffer.concat(pieces);
  }
}

class FormBody implements ComposedBody {
  constructor(readonly form: Buffer) {}

  bytes(): Uint8Array<ArrayBuffer> {
    return this.form as Uint8Array<ArrayBuffer>;
  }
  size(): number {
    return this.form.length;
  }
  object(): never {
    throw new BackendError("unsupported", "the backend takes no forms");
  }
}
