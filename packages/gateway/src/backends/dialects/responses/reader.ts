import { isObject } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import { BackendError, type NativeDialect, type NativeReader } from "../../contract.ts";
import { eventText, sealed, wordsOf } from "../dialect.ts";
import { chatUsage, type Item } from "./answer.ts";

const SEALED = "encrypted_content";

export class ResponsesReader implements NativeReader {
  usage: unknown = null;
  isComplete = false;
  get isCounted(): boolean {
    return this.usage !== null;
  }
  isOver = false;
  failure: string | null = null;
  #response: Item = {};
  #sequence = -1;
  readonly #done: Item[] = [];
  /** The item that is being written, and its text so far. */
  #open: Item | null = null;
  #openText = "";
  /** Items of which pieces came; others are counted when they are done. */
  #hasPieces = false;

  read(event: Item): unknown {
    if (typeof event.sequence_number === "number") this.#sequence = event.sequence_number;
    const response = isObject(event.response) ? event.response : null;
    switch (event.type) {
      case "response.created":
      case "response.queued":
      case "response.in_progress":
        if (response) this.#response = response;
        return null;
      case "response.output_item.added":
        this.#open = isObject(event.item) ? event.item : {};
        this.#openText = "";
        this.#hasPieces = false;
        return null;
      case "response.output_item.done":
        this.#open = null;
        if (isObject(event.item)) this.#done.push(event.item);
        if (!this.#hasPieces) return sealed(event.item, SEALED);
        this.#hasPieces = false;
        return null;
      case "response.completed":
      case "response.incomplete":
        this.isComplete = this.isOver = true;
        if (response) {
          this.#response = response;
          this.usage = chatUsage(response);
        }
        // It repeats the items; some servers send them nowhere else.
        return this.#done.length === 0 && !this.#hasPieces ? response?.output : null;
      case "response.failed":
        this.failure = wordsOf(response?.error);
        this.usage = response && chatUsage(response);
        return null;
      case "error":
        this.failure = wordsOf(isObject(event.error) ? event.error : event);
        return null;
      default:
        if (event.delta === undefined) return null;
        this.#hasPieces = true;
        if (typeof event.delta === "string") this.#openText += event.delta;
        return event.delta;
    }
  }

  whole(response: Item): unknown {
    this.usage = chatUsage(response);
    if (response.status === "failed")
      throw new BackendError("upstream", wordsOf(response.error), 500).having(this.usage);
    if (!Array.isArray(response.output))
      throw new BackendError("transport", "the upstream answered without `output`");
    this.#response = response;
    this.isComplete = this.isOver = true;
    return response.output.map((item) => sealed(item, SEALED));
  }

  limited(usage: { promptTokens: number; completionTokens: number } | null): string {
    const cut = this.#open && cutItem(this.#open, this.#openText);
    const output = cut ? [...this.#done, cut] : this.#done;
    const counts = usage && {
      input_tokens: usage.promptTokens,
      output_tokens: usage.completionTokens,
      total_tokens: usage.promptTokens + usage.completionTokens,
    };
    const response = {
      ...this.#response,
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output,
      usage: counts,
    };
    return (
      (cut ? this.#event("response.output_item.done", { output_index: this.#done.length, item: cut }) : "") +
      this.#event("response.incomplete", { response })
    );
  }

  failed(message: string): string {
    return this.#event("error", { code: "server_error", message, param: null });
  }

  #event(type: string, fields: object): string {
    return eventText({ type, sequence_number: ++this.#sequence, ...fields }, type);
  }
}

function cutItem(item: Item, text: string): Item {
  const status = "incomplete";
  if (item.type === "message")
    return { ...item, status, content: [{ type: "output_text", text, annotations: [], logprobs: [] }] };
  return item.type === "function_call" ? { ...item, status, arguments: text } : { ...item, status };
}

/** Nothing is stored at the vendor for this gateway, so its own reasoning always comes sealed. */
const isUnsealed = (item: unknown): boolean =>
  isObject(item) &&
  item.type === "reasoning" &&
  (item.encrypted_content == null || thoughtsIn(item.encrypted_content) !== null);

/** Reasoning of other models is left out. */
export const mended: NativeDialect["mended"] = (body) => {
  const input = body.value("input");
  if (!Array.isArray(input) || !input.some(isUnsealed)) return [];
  return [["input", JSON.stringify(input.filter((item) => !isUnsealed(item)))]];
};
