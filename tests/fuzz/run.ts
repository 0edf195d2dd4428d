import { Chance, mutated, reduced } from "./mutations.ts";
import type { FuzzedParser } from "./parser.ts";
import { tunnel, webSocket } from "./parsers/frames.ts";
import { chunks, gzip, names, requestHead, response } from "./parsers/http.ts";
import { body, journal, nesting, rpc, usage } from "./parsers/json.ts";
import { events, lineEnds, multipart, ndjson, pricing } from "./parsers/streams.ts";

export const PARSERS: readonly FuzzedParser[] = [
  requestHead,
  chunks,
  response,
  names,
  gzip,
  webSocket,
  tunnel,
  body,
  nesting,
  rpc,
  usage,
  journal,
  lineEnds,
  events,
  ndjson,
  multipart,
  pricing,
];

/** Inputs made from right ones are kept for a while, to be changed further. */
const KEPT_MAX = 64;
const REDUCED_TRIES_MAX = 2_000;

export interface Finding {
  parser: string;
  /** Of the input and of how it is cut. */
  seed: number;
  base64: string;
  problem: string;
}

/** Why the parser fails for these bytes; null when it does not. */
export async function problemOf(parser: FuzzedParser, bytes: Buffer, seed: number): Promise<string | null> {
  try {
    await parser.check(Buffer.from(bytes), new Chance(seed));
    return null;
  } catch (error) {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
}

/** Inputs without end, each by its own seed. */
export class Fuzzing {
  readonly #seeds: readonly Buffer[];
  readonly #words: readonly Buffer[];
  readonly #kept: Buffer[] = [];
  count = 0;

  constructor(
    readonly parser: FuzzedParser,
    readonly firstSeed: number,
  ) {
    this.#seeds = parser.seeds.map((seed) => Buffer.from(seed as Buffer));
    this.#words = parser.words.map((word) => Buffer.from(word as Buffer));
  }

  /** One input; what was found, made smaller. */
  async next(): Promise<Finding | null> {
    const seed = (this.firstSeed + this.count++) >>> 0;
    const chance = new Chance(seed);
    const from =
      this.#kept.length > 0 && chance.below(3) === 0 ? chance.of(this.#kept) : chance.of(this.#seeds);
    const bytes = mutated(from, chance, this.#words);
    if (chance.below(8) === 0) this.#keep(bytes);
    const problem = await problemOf(this.parser, bytes, seed);
    if (problem === null) return null;
    return {
      parser: this.parser.name,
      seed,
      base64: (await this.#smaller(bytes, seed)).toString("base64"),
      problem,
    };
  }

  #keep(bytes: Buffer): void {
    if (this.#kept.length >= KEPT_MAX) this.#kept.shift();
    this.#kept.push(bytes);
  }

  #smaller(bytes: Buffer, seed: number): Promise<Buffer> {
    let tries = 0;
    return reduced(
      bytes,
      async (smaller) =>
        ++tries <= REDUCED_TRIES_MAX && (await problemOf(this.parser, smaller, seed)) !== null,
    );
  }
}
