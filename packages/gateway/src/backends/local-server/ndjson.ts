import { objectIn } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

/** No model server sends longer lines. */
const LINE_CHARS_MAX = 16 * 1024 * 1024;

export class JsonLines {
  readonly #decoder = new TextDecoder();
  #parts: string[] = [];
  #pendingChars = 0;

  push(bytes: Uint8Array): Record<string, unknown>[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  end(): Record<string, unknown>[] {
    return this.#take(`${this.#decoder.decode()}\n`);
  }

  #take(text: string): Record<string, unknown>[] {
    const lines = text.split("\n");
    const rest = lines.pop()!;
    if (lines.length > 0) {
      lines[0] = this.#parts.join("") + lines[0];
      this.#parts = [];
      this.#pendingChars = 0;
    }
    if (rest) {
      this.#parts.push(rest);
      this.#pendingChars += rest.length;
      if (this.#pendingChars > LINE_CHARS_MAX)
        throw new BackendError(
          "transport",
          `the upstream sent a line of more than ${LINE_CHARS_MAX} characters`,
        );
    }
    return lines.filter((line) => line.trim() !== "").map(parseLine);
  }
}

function parseLine(line: string): Record<string, unknown> {
  const value = objectIn(line);
  if (!value) throw new BackendError("transport", "the upstream sent a line that is not a JSON object");
  return value;
}
