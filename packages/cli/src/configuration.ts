import { readFileSync } from "node:fs";
import { type Document, isNode, LineCounter, parseDocument } from "yaml";
import { CliError } from "./command.ts";
import { contentOf, type Env } from "./secrets.ts";

export type Entry = Record<string, unknown>;
export type Configuration = Record<string, Entry[]>;

const isMembers = (value: unknown): value is Entry =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A configuration as it stands in a file, which knows the line of each of its fields. */
export class ConfigurationFile {
  readonly #lines = new LineCounter();
  readonly #document: Document;
  /** What was put in from elsewhere, which nobody shall read. */
  readonly secrets = new Set<unknown>();

  constructor(readonly path: string) {
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (error) {
      throw new CliError(`${path}: ${(error as Error).message}`);
    }
    this.#document = parseDocument(text, { lineCounter: this.#lines, prettyErrors: false });
    const [error] = this.#document.errors;
    if (error) throw new CliError(`${path}:${this.#lines.linePos(error.pos[0]).line}: ${error.message}`);
  }

  /** Where a field stands; of one that is missing, where it belongs. */
  #lineOf(place: readonly (string | number)[]): number {
    const node = place.length === 0 ? this.#document.contents : this.#document.getIn(place, true);
    if (isNode(node) && node.range) return this.#lines.linePos(node.range[0]).line;
    return place.length === 0 ? 1 : this.#lineOf(place.slice(0, -1));
  }

  /** `gateway.yaml:7: backends, fast: url: must not be empty`. */
  problem(place: readonly (string | number)[], message: string): string {
    const [section, at, ...fields] = place;
    const entry = at === undefined ? undefined : this.#document.getIn([section, at]);
    const read = (name: string) => (entry as { get?(name: string): unknown } | undefined)?.get?.(name);
    const where = [section, read("name") ?? read("model"), fields.join(".")].filter(Boolean);
    // Where the service's words name the field themselves, once is enough.
    const words = message.replace(`\`${fields.at(-1)}\`: `, "");
    return `${this.path}:${this.#lineOf(place)}: ${where.join(", ")}: ${words}`;
  }

  /** Its sections, with what it takes from elsewhere put in. */
  read(env: Env): Configuration {
    const refuse = (place: readonly (string | number)[], message: string): never => {
      throw new CliError(this.problem(place, message));
    };
    let document: unknown;
    try {
      document = this.#document.toJS() ?? {};
    } catch (error) {
      refuse([], (error as Error).message);
    }
    if (!isMembers(document)) return refuse([], "must have sections, such as backends");
    for (const [section, entries] of Object.entries(document)) {
      if (!Array.isArray(entries)) refuse([section], "must be a list");
      for (const [at, entry] of (entries as unknown[]).entries())
        if (!isMembers(entry)) refuse([section, at], "must have fields, such as name");
    }
    const configuration = document as Configuration;
    for (const [at, backend] of (configuration.backends ?? []).entries()) {
      const put = (into: Entry, field: string, place: readonly (string | number)[]) => {
        const value = into[field];
        if (!isMembers(value)) return;
        try {
          into[field] = secretOf(value, env);
          this.secrets.add(into[field]);
        } catch (error) {
          refuse(place, (error as Error).message);
        }
      };
      for (const field of ["api_key", "url"]) put(backend, field, ["backends", at, field]);
      if (typeof backend.api_key === "string" && !isMembers(this.#given(at)))
        refuse(["backends", at, "api_key"], "is a secret: write { env: NAME } or { file: /path } instead");
      if (isMembers(backend.headers))
        for (const name of Object.keys(backend.headers))
          put(backend.headers, name, ["backends", at, "headers", name]);
    }
    return configuration;
  }

  /** The key of a backend as it is written. */
  #given(at: number): unknown {
    const node = this.#document.getIn(["backends", at, "api_key"], true);
    return isNode(node) ? node.toJS(this.#document) : node;
  }
}

/** `{ env: NAME }` or `{ file: /path }`. */
function secretOf(reference: Entry, env: Env): string {
  const { env: name, file } = reference;
  if (Object.keys(reference).length === 1 && typeof name === "string")
    return env[name] || refuse(`the environment has no ${name}`);
  if (Object.keys(reference).length === 1 && typeof file === "string") return contentOf(file, "file");
  return refuse("must be { env: NAME } or { file: /path }");
}

function refuse(message: string): never {
  throw new CliError(message);
}
