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

/** Splits a byte stream into lines. A line longer than the limit ends the reading. */
export async function* linesOf(source: ReadableStream<Uint8Array>, lineCharsMax = 1024 * 1024) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of source) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
    if (rest.length > lineCharsMax) return;
  }
}
