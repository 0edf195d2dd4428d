import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";

export const invalid = (place: string, problem: string): never =>
  fail("invalid_params", `\`${place}\`: ${problem}`);

/** An object in a client's request. Refusals name the field by its place in that request. */
export class Given {
  constructor(
    readonly fields: Readonly<Record<string, unknown>>,
    readonly place = "",
  ) {}

  static at(value: unknown, place: string): Given {
    return isObject(value) ? new Given(value, place) : invalid(place, "must be an object");
  }

  static body(value: unknown): Given {
    return new Given(Given.at(value, "body").fields);
  }

  /** The request's body and its model, a field that almost every API has. */
  static request(value: unknown): { body: Given; model: string } {
    const body = Given.body(value);
    const model = body.string("model");
    if (model === "") body.refuse("model", "is required: an id from GET /v1/models");
    return { body, model };
  }

  placeOf(name: string): string {
    return this.place === "" ? name : `${this.place}.${name}`;
  }

  refuse(name: string, problem: string): never {
    return invalid(this.placeOf(name), problem);
  }

  string(name: string): string {
    const value = this.fields[name];
    return typeof value === "string" ? value : this.refuse(name, "must be a string");
  }

  /** Checked here, where the field still has its original name. */
  count(name: string): number {
    const value = this.fields[name];
    return typeof value === "number" && Number.isInteger(value) && value >= 0
      ? value
      : this.refuse(name, "must be a whole number, 0 or more");
  }

  object(name: string): Given {
    return Given.at(this.fields[name], this.placeOf(name));
  }

  list(name: string): unknown[] {
    const value = this.fields[name];
    return Array.isArray(value) ? value : this.refuse(name, "must be an array");
  }

  objects(name: string): Given[] {
    const place = this.placeOf(name);
    return this.list(name).map((each, i) => Given.at(each, `${place}.${i}`));
  }

  /** Empty if the field is null or absent. */
  objectsIfAny(name: string): Given[] {
    return this.fields[name] == null ? [] : this.objects(name);
  }

  /** The named fields that are present and not null. */
  pick(names: readonly string[]): Record<string, unknown> {
    return pick(this.fields, names);
  }
}

export function pick(fields: Readonly<Record<string, unknown>>, names: readonly string[]) {
  const picked: Record<string, unknown> = {};
  for (const name of names) if (fields[name] != null) picked[name] = fields[name];
  return picked;
}

/** All texts in a list of blocks. */
export const textsIn = (content: unknown): string =>
  (Array.isArray(content) ? content : [])
    .flatMap((block) => (isObject(block) && typeof block.text === "string" ? [block.text] : []))
    .join("\n");
