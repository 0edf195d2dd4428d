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
import { type FormPart, readForm, writeForm } from "./multipart.ts";

/** Of all texts together; files are bounded by the body. */
const TEXT_BYTES_MAX = 1024 * 1024;
/** More digits are no number that any field may have. */
const WHOLE_NUMBER = /^\d{1,9}$/;
/** Names that stand for a list or an object, as form libraries write them: `image[]`. */
const BRACKETS = /\[.*$/;

const refuse = (field: string, expected: string): never =>
  fail("missing_fields", `\`${field}\` ${expected}`, { data: { fields: [field] } });

/**
 * A `multipart/form-data` body. It is sent as a form written from what was read, so that no server can find anything
 * else in it. No client can know the boundary beforehand, so none can put it into a value.
 */
export class FormPayload implements Payload {
  readonly messagesProblem = null;
  readonly mayHaveMedia = false;
  readonly files: readonly { name: string; bytes: Buffer }[];
  readonly #texts = new Map<string, Buffer>();
  readonly #parts: readonly FormPart[];
  readonly #boundary = `form-${crypto.randomUUID()}`;

  constructor(
    /** As the client sent it. */
    readonly bytes: Buffer,
    contentType: string,
  ) {
    this.#parts = readForm(bytes, contentType);
    let textBytes = 0;
    for (const part of this.#parts) {
      this.#add(part);
      if (!part.file) textBytes += part.value.length;
    }
    if (textBytes > TEXT_BYTES_MAX)
      fail("body_too_large", `The texts of the form are larger than ${TEXT_BYTES_MAX} bytes`);
    this.files = this.#parts
      .filter(({ file }) => file !== null)
      .map(({ name, value }) => ({ name, bytes: value }));
    for (const { name } of this.files)
      if (this.#texts.has(name)) refuse(name, "is there as a text and as a file; send one of them");
  }

  /** Of what is sent. */
  get contentType(): string {
    return `multipart/form-data; boundary=${this.#boundary}`;
  }

  /** Servers disagree on which of two fields of a name counts, and on whether a file can be a text. */
  #add({ name, file, value }: FormPart): void {
    requireName(name);
    const plain = name.replace(BRACKETS, "");
    if (plain !== name) {
      if (isSpelledOneWay(plain) || plain !== plain.toLowerCase())
        refuse(name, `is refused: write \`${plain.toLowerCase()}\`, once`);
      return;
    }
    if (file) {
      if (isSpelledOneWay(name) && name !== "file") refuse(name, "must be a text, not a file");
      return;
    }
    if (this.#texts.has(name)) refuse(name, "is there twice; send it once");
    this.#texts.set(name, value);
  }

  has(key: string): boolean {
    return this.#texts.has(key);
  }

  kindOf(key: string): Kind | undefined {
    return this.#texts.has(key) ? "string" : undefined;
  }

  value(key: string): string | undefined {
    return this.#texts.get(key)?.toString();
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

  compose(set: ReadonlyMap<string, string>): ComposedBody {
    const sent = this.#parts.flatMap((part) => {
      if (isOwnField(part.name)) return [];
      const json = part.file ? undefined : set.get(part.name);
      return json === undefined ? part : { ...part, value: Buffer.from(JSON.parse(json) as string) };
    });
    return new FormBody(this.bytes, writeForm(sent, this.#boundary));
  }
}

class FormBody implements ComposedBody {
  constructor(
    readonly received: Buffer,
    readonly pieces: Buffer[],
  ) {}

  /** As it came: what is sent has another boundary each time. */
  bytes(): Uint8Array<ArrayBuffer> {
    return this.received as Uint8Array<ArrayBuffer>;
  }
  /** Large files are copied once, into what the runtime sends from. */
  form(): Blob {
    return new Blob(this.pieces as Buffer<ArrayBuffer>[]);
  }
  size(): number {
    return this.received.length;
  }
  object(): never {
    throw new BackendError("unsupported", "the backend takes no forms");
  }
}
