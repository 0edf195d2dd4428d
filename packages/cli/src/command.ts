import type { ParseArgsOptionsConfig } from "node:util";
import type { Connection } from "./connection.ts";
import { didYouMean } from "./did-you-mean.ts";
import type { Output } from "./output.ts";

/** A failure that the user can fix: only its message is shown. */
export class CliError extends Error {}
/** The command line itself is wrong, and nothing was done: exit code 2. */
export class UsageError extends CliError {}

export interface Invocation {
  /** The words after the command, without the options. */
  words: readonly string[];
  options: Readonly<Record<string, string | boolean | undefined>>;
  output: Output;
  connection: Connection;
}

export interface Command {
  name: string;
  summary: string;
  /** Shown first in the help: what people copy. */
  examples: readonly string[];
  /** Words that may follow the command, for completion. */
  actions?: readonly string[];
  options?: ParseArgsOptionsConfig & Record<string, { help?: string }>;
  /** Options by the field of the service's methods that they fill, where the two have different names. */
  fields?: Readonly<Record<string, string>>;
  /** Arguments are handed through as they are. */
  passThrough?: boolean;
  run(invocation: Invocation): Promise<void> | void;
}

/** The option's text, or null. */
export function text(options: Invocation["options"], name: string): string | null {
  const value = options[name];
  return typeof value === "string" ? value : null;
}

/** The word at a position, or an error that says what is expected. */
export function needed(words: readonly string[], place: number, what: string): string {
  const word = words[place];
  if (word === undefined) throw new UsageError(`${what} is missing`);
  return word;
}

export function wholeNumber(options: Invocation["options"], name: string): number | null {
  const value = text(options, name);
  if (value === null) return null;
  if (!/^[1-9]\d*$/.test(value)) throw new UsageError(`--${name} must be a whole number above 0`);
  return Number(value);
}

/** Chooses by the first word; the help lists what there is. */
export function act<T>(words: readonly string[], actions: Record<string, () => T>, fallback: string): T {
  const name = words[0] ?? fallback;
  const chosen = Object.hasOwn(actions, name) ? actions[name] : undefined;
  if (!chosen)
    throw new UsageError(
      `unknown action "${words[0]}"${didYouMean(words[0]!, Object.keys(actions)) || `; choose one of: ${Object.keys(actions).join(", ")}`}`,
    );
  return chosen();
}

/** Refuses options that the chosen action would ignore. */
export function refuseIdle(options: Invocation["options"], names: readonly string[], where: string): void {
  const idle = names.find((name) => options[name] !== undefined);
  if (idle) throw new UsageError(`--${idle} has no effect ${where}`);
}
