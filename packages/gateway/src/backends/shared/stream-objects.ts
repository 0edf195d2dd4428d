import { objectIn } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

const CHARS_MAX = 16 * 1024 * 1024;

/** Cuts the bytes of a stream into its JSON objects, wherever the network split them. */
export class StreamObjects {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  /** Of the event or line that has not ended. */
  #chars = 0;

  /** `events`: each event's data is one; `lines`: each line is. */
  constructor(readonly form: "events" | "lines") {}

  push(bytes: Uint8Array): Record<string, unknown>[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The last one may lack its end. */
  end(): Record<string, unknown>[] {
    return this.#take(`${this.#decoder.decode()}\n\n`);
  }

  #take(text: string): Record<string, unknown>[] {
    this.#rest += text;
    this.#chars += text.length;
    if (this.#chars > CHARS_MAX)
      throw new BackendError("transport", `the upstream sent an event of more than ${CHARS_MAX} characters`);
    // A line may come in thousands of pieces.
    if (!text.includes("\n")) return [];
    const lines = this.#rest.split(/\r?\n/);
    this.#rest = lines.pop()!;
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): Record<string, unknown>[] {
    if (this.form === "events" && line !== "") {
      if (line.startsWith("data:")) this.#data.push(line.slice(5));
      return [];
    }
    this.#chars = this.#rest.length;
    const data =
      this.form === "lines"
        ? line
        : this.#data
            .splice(0)
            .join("\n")
            .replace(/^\s*\[DONE\]\s*$/, "");
    return data.trim() === "" ? [] : [parsed(data)];
  }
}

function parsed(data: string): Record<string, unknown> {
  const value = objectIn(data);
  if (!value) throw new BackendError("transport", "the upstream sent something that is not a JSON object");
  return value;
}
