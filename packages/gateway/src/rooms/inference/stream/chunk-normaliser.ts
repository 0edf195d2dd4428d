import { isObject } from "../../../kernel/json.ts";
import { type AnswerForm, type AnswerHead, CHAT_FORM } from "../call/answer-shape.ts";
import { ToolDeltas } from "./tool-deltas.ts";

export interface ChatChunk {
  id?: unknown;
  model?: unknown;
  created?: unknown;
  choices?: unknown;
  usage?: unknown;
  [field: string]: unknown;
}

export interface Choice {
  index: number;
  delta: Record<string, unknown>;
  finish_reason?: unknown;
  /** The stop sequence or token, where the server reports it (vLLM, SGLang). */
  stop_reason?: unknown;
  matched_stop?: unknown;
  /** Where some servers put what belongs into the delta. */
  text?: unknown;
  message?: unknown;
}

/** Adds what strict clients need and some upstreams leave out: ids, `choices`, `index`, `delta`, `finish_reason`, the role. */
export class ChunkNormaliser {
  readonly #opened = new Set<number>();
  readonly #toolDeltas = new Map<number, ToolDeltas>();

  constructor(
    readonly head: AnswerHead | null = null,
    readonly form: AnswerForm = CHAT_FORM,
  ) {}

  /** The choices of a chunk; `changed` says whether the chunk was altered in place. */
  apply(chunk: ChatChunk): { choices: Choice[]; changed: boolean } {
    let changed = this.#completeHead(chunk);
    if (!Array.isArray(chunk.choices)) {
      chunk.choices = [];
      changed = true;
    }
    const choices = (chunk.choices as unknown[]).filter(isObject);
    if (this.form.isText) return { choices: choices.map(textChoice), changed };
    for (const [position, choice] of choices.entries()) {
      if (typeof choice.index !== "number") {
        choice.index = position;
        changed = true;
      }
      if (!isObject(choice.delta)) {
        choice.delta = {};
        changed = true;
      }
      if (choice.finish_reason === undefined) {
        choice.finish_reason = null;
        changed = true;
      }
      if (this.#openRole(choice as unknown as Choice)) changed = true;
      if (this.#completeTools(choice as unknown as Choice)) changed = true;
    }
    return { choices: choices as unknown as Choice[], changed };
  }

  #completeHead(chunk: ChatChunk): boolean {
    const { head, form } = this;
    if (!head) return false;
    const isWhole =
      typeof chunk.id === "string" &&
      chunk.object === form.chunk &&
      typeof chunk.created === "number" &&
      typeof chunk.model === "string";
    if (isWhole) return false;
    chunk.id ??= head.id;
    chunk.object = form.chunk;
    chunk.created ??= head.created;
    chunk.model ??= head.model;
    return true;
  }

  #openRole(choice: Choice): boolean {
    if (this.#opened.has(choice.index)) return false;
    this.#opened.add(choice.index);
    if (choice.delta.role) return false;
    choice.delta = { ...choice.delta, role: "assistant" };
    return true;
  }

  #completeTools({ index, delta }: Choice): boolean {
    if (!Array.isArray(delta.tool_calls)) return false;
    let deltas = this.#toolDeltas.get(index);
    if (!deltas) {
      deltas = new ToolDeltas();
      this.#toolDeltas.set(index, deltas);
    }
    let changed = false;
    for (const piece of delta.tool_calls.filter(isObject)) if (deltas.complete(piece)) changed = true;
    return changed;
  }
}

/** A text as the delta that it would be in a chat. */
const textChoice = (choice: Record<string, unknown>, position: number): Choice => ({
  index: typeof choice.index === "number" ? choice.index : position,
  delta: { ...(isObject(choice.delta) && choice.delta), content: choice.text },
  finish_reason: choice.finish_reason,
  stop_reason: choice.stop_reason,
  matched_stop: choice.matched_stop,
  message: choice.message,
});
