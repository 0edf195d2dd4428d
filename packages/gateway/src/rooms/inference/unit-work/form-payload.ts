import { BackendError } from "../../../backends/contract.ts";
import { failField } from "../../../kernel/errors.ts";
import { isOwnField } from "../request/field-rules.ts";
import { type ComposedBody, Payload } from "../request/payload.ts";
import { type FormPart, readForm, writeForm } from "./multipart.ts";

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
    return new FormBody(this.bytes, writeForm(sent, this.#boundary));
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
    if (!file) texts.set(name, textOrCount(name, value.toString()));
  }
  return Object.fromEntries(texts);
}

/** A count as a number; other text stays text, and is refused later. */
const textOrCount = (name: string, text: string): string | number =>
  WHOLE_NUMBER.test(text) && COUNTS.has(name) ? Number(text) : text;

class FormBody implements ComposedBody {
  constructor(
    readonly received: Buffer,
    readonly pieces: Buffer[],
  ) {}

  bytes(): Uint8Array<ArrayBuffer> {
    return this.received as Uint8Array<ArrayBuffer>;
  }
  /** Copies large files only once. */
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
