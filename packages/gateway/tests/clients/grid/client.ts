/** What every client of the grid does, whatever API it speaks. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** The columns of the grid, in the words of docs/clients.md. */
export const CELLS = [
  "streamed",
  "whole",
  "tool round trip",
  "overflow",
  "wrong key",
  "unknown model",
  "abort",
] as const;
export type Cell = (typeof CELLS)[number];

export interface Door {
  url: string;
  key: string;
  model: string;
}

export interface Question {
  prompt: string;
  stream: boolean;
  /** A picture goes along; for coding agents. */
  image?: boolean;
}

export interface Client {
  name: string;
  version: string;
  /** The path that its chats are sent to. */
  surface: string;
  /** Cells that it cannot have, each with the reason. */
  lacks?: Partial<Record<Cell, string>>;
  /** Where it does not fail at the first refusal, or does not pass on what the gateway says. */
  differs?: Partial<Record<Cell, Difference>>;
  /** The text of the answer; rejects with what the client tells its user. All of its settings are the defaults. */
  ask(door: Door, question: Question): Promise<string>;
  /** Lets the model call the tool, runs it, and returns the text of the answer to its result. */
  useTool(door: Door, prompt: string): Promise<string>;
  /** Leaves a streamed answer that has begun. */
  leave(door: Door, prompt: string, begun: () => Promise<void>): Promise<void>;
}

export interface Difference {
  /** How many it makes. */
  requests: number;
  /** What it says instead. */
  says?: RegExp;
  /** For the grid in docs/clients.md. */
  because: string;
}

/** A picture of one pixel. */
export const IMAGE_DATA =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** What tools say. */
export const WEATHER = "21 degrees in Oslo";
export const TOOL = {
  name: "weather",
  description: "Weather of a city",
  parameters: {
    type: "object" as const,
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false as const,
  },
};

/** Of a package that npm installed. */
export function versionOf(name: string): string {
  const file = join(import.meta.dir, "../../../../../node_modules", name, "package.json");
  return JSON.parse(readFileSync(file, "utf8")).version;
}

/** The pieces of a stream, put together. */
export async function joined<Piece>(
  pieces: AsyncIterable<Piece>,
  textOf: (piece: Piece) => string | null | undefined,
): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += textOf(piece) ?? "";
  return text;
}

/** Leaving often shows as an error; that the upstream is left is what counts. */
export async function leaving(read: (signal: AbortController) => Promise<unknown>): Promise<void> {
  const controller = new AbortController();
  await read(controller).catch((error: unknown) => {
    if (!controller.signal.aborted) throw error;
  });
}
