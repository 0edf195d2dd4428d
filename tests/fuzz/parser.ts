import type { Chance } from "./mutations.ts";

/** A parser at an edge: what it is fed, and what must hold whatever that is. */
export interface FuzzedParser {
  name: string;
  /** Inputs that are right, from which others are made. */
  seeds: readonly (string | Buffer)[];
  /** What the format gives a meaning to. */
  words: readonly (string | Buffer)[];
  /** Throws when something does not hold; refusing the input is no failure. */
  check(bytes: Buffer, chance: Chance): void | Promise<void>;
}

/** What a parser is allowed to throw. */
// biome-ignore lint/suspicious/noExplicitAny: any constructor will do
export type Refusals = readonly (abstract new (...args: any[]) => Error)[];

export const REFUSED = Symbol("refused");

/** What `read` returns, or `REFUSED`; anything else that it throws is a failure. */
export function orRefused<T>(refusals: Refusals, read: () => T): T | typeof REFUSED {
  try {
    return read();
  } catch (error) {
    if (refusals.some((refusal) => error instanceof refusal)) return REFUSED;
    throw error;
  }
}

export function same(what: string, one: unknown, other: unknown): void {
  if (!Bun.deepEquals(one, other, true))
    throw new Error(`${what} differs: ${shown(one)} and ${shown(other)}`);
}

export function holds(what: string, isSo: boolean): void {
  if (!isSo) throw new Error(`does not hold: ${what}`);
}

const shown = (value: unknown): string => String(Bun.inspect(value)).slice(0, 400);
