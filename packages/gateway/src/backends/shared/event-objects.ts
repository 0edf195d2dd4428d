import { objectIn } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

const EVENT_CHARS_MAX = 16 * 1024 * 1024;

/** Cuts the bytes of an event stream into the JSON objects of its events, wherever the network split them. */
export class EventObjects {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  #chars = 0;

  push(bytes: Uint8Array): Record<string, unknown>[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  /** A last event that no blank line closed. */
  end(): Record<string, unknown>[] {
    return this.#take(`${this.#decoder.decode()}\n\n`);
  }

  #take(text: string): Record<string, unknown>[] {
    this.#rest += text;
    this.#chars += text.length;
    if (this.#chars > EVENT_CHARS_MAX)
      throw new BackendError(
        "transport",
        `the upstream sent an event of more than ${EVENT_CHARS_MAX} characters`,
      );
    // A line may come in thousands of pieces.
    if (!text.includes("\n")) return [];
    const lines = this.#rest.split(/\r?\n/);
    this.#rest = lines.pop()!;
    const events: Record<string, unknown>[] = [];
    for (const line of lines) {
      if (line === "") this.#chars = 0;
      if (line.startsWith("data:")) this.#data.push(line.slice(5));
      else if (line === "" && this.#data.length > 0) {
        const data = this.#data.join("\n").trim();
        this.#data = [];
        if (data !== "" && data !== "[DONE]") events.push(parsed(data));
      }
    }
    return events;
  }
}

function parsed(data: string): Record<string, unknown> {
  const value = objectIn(data);
  if (!value) throw new BackendError("transport", "the upstream sent an event that is not a JSON object");
  return value;
}
