/** What the node program and a guard tell each other: one JSON object per line on the guard's stdin and stdout. */

/** First line to the guard. */
export interface GuardOrder {
  command: string[];
  env: Record<string, string>;
  cwd: string;
  logFile: string;
  /** Value of the marker variable that the engine and its children carry. */
  marker: string;
}

/** Later lines to the guard. */
export interface GuardStop {
  stopGraceMs: number;
}

export type GuardEvent =
  | { event: "started"; pid: number }
  | { event: "failed"; message: string }
  | { event: "exited"; code: number | null; signal: string | null; tail: string };

const LINE_CHARS_MAX = 1024 * 1024;

/** Splits a byte stream into lines. Of a line longer than the limit only the end is kept. */
export async function* linesOf(source: ReadableStream<Uint8Array>, separator: string | RegExp = "\n") {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of source) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split(separator);
    rest = (lines.pop() ?? "").slice(-LINE_CHARS_MAX);
    yield* lines;
  }
  if (rest) yield rest;
}
