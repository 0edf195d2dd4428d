import { isObject } from "../../../kernel/json.ts";
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

type Fields = Readonly<Record<string, unknown>>;

/** A chat request that is already an object: it is serialised once and never parsed. */
export class ObjectPayload implements Payload {
  readonly #fields: Fields;

  constructor(fields: Fields) {
    this.#fields = fields;
    for (const key in fields) {
      requireName(key);
      requireSettings(key, fields[key]);
    }
  }

  get messagesProblem(): MessagesProblem | null {
    return problemOfMessages(this.#fields.messages);
  }

  get mayHaveMedia(): boolean {
    const { messages } = this.#fields;
    const isPlain = (message: unknown) =>
      isObject(message) && !Array.isArray(message.content) && message.images === undefined;
    return !Array.isArray(messages) || !messages.every(isPlain);
  }

  has(key: string): boolean {
    return this.value(key) !== undefined;
  }
  kindOf(key: string): Kind | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    if (Array.isArray(value)) return value.length > 0 ? "array" : "empty array";
    return typeof value === "string"
      ? "string"
      : value === null
        ? "null"
        : isObject(value)
          ? "object"
          : "scalar";
  }
  value(key: string): unknown {
    return Object.hasOwn(this.#fields, key) ? this.#fields[key] : undefined;
  }
  tokenCount(key: string): number | null {
    const value = this.value(key);
    const tokens = Array.isArray(value) ? value.flat() : [];
    return tokens.length > 0 && tokens.every((token) => typeof token === "number") ? tokens.length : null;
  }

  spendFields(): SpendFields {
    const fields = new SpendFields();
    const extra = this.#extra();
    const replaced = namesSent(extra);
    for (const name in this.#fields) {
      if (replaced.has(name)) continue;
      const value = this.#fields[name];
      if (name === PREDICTION) fields.predictionTokens = tokensOf(value);
      else if (name === OPTIONS) readOptions(fields, value);
      else if (isSpendField(name) && value !== undefined) fields.add(name, value, "");
    }
    for (const { name, value, isSent } of extra) {
      if (isSent && name === PREDICTION) fields.predictionTokens = tokensOf(value);
      if (!isSpendField(name)) continue;
      if (isSent) fields.add(name, value, "extra.");
      else spendNumber(value, `extra.${name}`);
    }
    return fields;
  }

  compose(set: ReadonlyMap<string, string>): ComposedBody {
    if (set.size === 0 && !hasOwnField(this)) return new ComposedObject(this.#fields, set);
    const extra = this.#extra();
    const replaced = namesSent(extra);
    const kept = Object.entries(this.#fields).filter(
      ([name]) => !set.has(name) && !isOwnField(name) && !replaced.has(name),
    );
    for (const { name, value, isSent } of extra) if (isSent && !set.has(name)) kept.push([name, value]);
    return new ComposedObject(Object.fromEntries(kept), set);
  }

  #extra(): readonly ExtraField[] {
    const { extra } = this.#fields;
    if (!isObject(extra)) return NO_EXTRA;
    return Object.entries(extra).map(([name, value]) => {
      requireSettings(name, value, "extra.");
      return { name, value, isSent: isExtraSent(this, name) };
    });
  }
}

/** Settings in a place of their own say nothing that the gateway has to read. */
function requireSettings(name: string, value: unknown, where = ""): void {
  if (!isInnerSettings(name) || !isObject(value)) return;
  for (const key of Object.keys(value)) requireOutside(key, where + name);
}

interface ExtraField {
  name: string;
  value: unknown;
  isSent: boolean;
}

const NO_EXTRA: readonly ExtraField[] = [];
const NONE: ReadonlySet<string> = new Set();
const namesSent = (extra: readonly ExtraField[]): ReadonlySet<string> =>
  extra.length === 0 ? NONE : new Set(extra.filter(({ isSent }) => isSent).map(({ name }) => name));

function readOptions(fields: SpendFields, options: unknown): void {
  if (!isObject(options)) return;
  for (const [name, value] of Object.entries(options)) {
    SPELLED_ONE_WAY_IN_OPTIONS.require(name, "options.");
    if (isSpendField(name)) fields.add(name, value, "options.");
  }
}

const tokensOf = (value: unknown): number =>
  estimatePromptTokens(Buffer.from(JSON.stringify(value) ?? ""), false);

class ComposedObject implements ComposedBody {
  /** Until it is turned into bytes. */
  #text: string | null = null;
  #bytes: Buffer<ArrayBuffer> | null = null;

  constructor(
    readonly fields: Fields,
    readonly set: ReadonlyMap<string, string>,
  ) {}

  size(): number {
    if (this.#bytes) return this.#bytes.length;
    this.#text ??= this.#json();
    return this.#text.length;
  }
  bytes(): Buffer<ArrayBuffer> {
    this.#bytes ??= Buffer.from(this.#text ?? this.#json());
    this.#text = null;
    return this.#bytes;
  }
  #json(): string {
    const json = JSON.stringify(this.fields);
    if (this.set.size === 0) return json;
    const members = json === "{}" ? [] : [json.slice(1, -1)];
    for (const [name, value] of this.set) members.push(`${JSON.stringify(name)}:${value}`);
    return `{${members.join(",")}}`;
  }
  object(): Record<string, unknown> {
    const set = [...this.set].map(([name, json]) => [name, JSON.parse(json)]);
    return { ...this.fields, ...Object.fromEntries(set) };
  }
}
