import { newCallId } from "../../../kernel/ids.ts";
import { isObject } from "../../../kernel/json.ts";

/** Maximum number of calls in one choice. */
const CALLS_MAX = 1_000;

interface ToolCallStart {
  index: number;
  /** Empty until the upstream sends one, or until we make one when the name arrives. */
  id: string;
  hasName: boolean;
}

/** Some servers send arguments as an object instead of JSON text. */
export const argumentsText = (args: unknown): string =>
  typeof args === "string" || args == null ? (args ?? "") : JSON.stringify(args);

/** Adds index, id, type and textual arguments to the tool call pieces of one choice. */
export class ToolDeltas {
  readonly #calls: ToolCallStart[] = [];
  readonly #bySentIndex = new Map<number, ToolCallStart>();

  complete(piece: Record<string, unknown>): boolean {
    const { index, function: fn } = piece;
    const name = isObject(fn) && typeof fn.name === "string" ? fn.name : "";
    const sentId = typeof piece.id === "string" ? piece.id : "";
    const call = this.#find(typeof index === "number" ? index : null, sentId, name);
    if (!call) return false;
    call.hasName ||= name !== "";
    let changed = textArguments(fn);
    if (call.index !== index) {
      piece.index = call.index;
      changed = true;
    }
    if (call.id === "" && sentId === "" && name !== "") {
      piece.id = newCallId();
      changed = true;
    }
    if (call.id === "" && typeof piece.id === "string") call.id = piece.id;
    if (typeof piece.id === "string" && piece.type === undefined) {
      piece.type = "function";
      changed = true;
    }
    return changed;
  }

  #find(sentIndex: number | null, id: string, name: string): ToolCallStart | null {
    const known = sentIndex === null ? this.#withId(id) : this.#bySentIndex.get(sentIndex);
    // Some servers use one index for two calls.
    const isOther = known?.hasName && name !== "" && id !== "" && id !== known.id;
    if (known && !isOther) return known;
    if (this.#calls.length >= CALLS_MAX) return null;
    const isFree = sentIndex !== null && !this.#calls.some(({ index }) => index === sentIndex);
    const next = this.#calls.reduce((max, { index }) => Math.max(max, index), -1) + 1;
    const call = { index: isFree ? sentIndex : next, id: "", hasName: false };
    this.#calls.push(call);
    if (sentIndex !== null) this.#bySentIndex.set(sentIndex, call);
    return call;
  }

  /** A piece without an id belongs to the latest call. */
  #withId(id: string): ToolCallStart | undefined {
    return id === "" ? this.#calls.at(-1) : this.#calls.find((call) => call.id === id);
  }
}

function textArguments(fn: unknown): boolean {
  if (!isObject(fn) || fn.arguments == null || typeof fn.arguments === "string") return false;
  fn.arguments = argumentsText(fn.arguments);
  return true;
}

export function completeCalls(message: Record<string, unknown>): void {
  if (!Array.isArray(message.tool_calls)) return;
  for (const call of message.tool_calls.filter(isObject)) {
    if (typeof call.id !== "string" || call.id === "") call.id = newCallId();
    textArguments(call.function);
  }
}
