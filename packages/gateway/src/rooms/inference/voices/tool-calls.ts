import { fail } from "../../../kernel/errors.ts";
import { JsonNesting } from "../../../kernel/json-scan.ts";
import { newCallId } from "../stream/tool-deltas.ts";

export interface ToolCallDelta {
  index: number | undefined;
  id: string;
  name: string;
  arguments: string;
}

export type ToolCallEvent =
  | { type: "tool_start"; id: string; name: string }
  | { type: "tool_arguments"; text: string }
  | { type: "tool_end" };

/** Arguments of later calls that may wait while an earlier one is still being written. */
const WAITING_CHARS_MAX = 8 * 1024 * 1024;
const CALLS_MAX = 1_000;

interface OpenToolCall {
  id: string;
  sentId: string;
  name: string;
  waiting: string;
  state: "waiting" | "open" | "closed";
  nesting: JsonNesting;
}

/** Whether the piece begins another call although it has the index of a known one. */
function begins(known: OpenToolCall, { index, id, name }: ToolCallDelta): boolean {
  if (known.name === "" || name === "") return false;
  return id !== "" ? id !== known.sentId : index === undefined && known.nesting.isClosed;
}

/** Arguments as the object that an API promises; what is not one is kept under a name that says so. */
export function toolInput(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return { INVALID_JSON: text };
  }
}

/** Puts parallel tool calls in order: upstreams interleave them, leave the index out, or repeat it. */
export class ToolCalls {
  readonly #calls: OpenToolCall[] = [];
  readonly #byIndex = new Map<number, OpenToolCall>();
  #waitingChars = 0;

  get count(): number {
    return this.#calls.length;
  }

  add(delta: ToolCallDelta): ToolCallEvent[] {
    const call = this.#find(delta);
    call.name ||= delta.name;
    const text = delta.arguments;
    if (call.state === "closed") {
      if (text.trim() !== "")
        fail("bad_gateway", "the upstream continued a tool call that it had already finished");
      return [];
    }
    call.waiting += text;
    this.#waitingChars += text.length;
    if (this.#waitingChars > WAITING_CHARS_MAX) {
      fail("bad_gateway", `more than ${WAITING_CHARS_MAX} characters of tool arguments came out of order`);
    }
    return this.#advance();
  }

  /** Ends every call that was begun, e.g. because text or the finish came. */
  close(): ToolCallEvent[] {
    const events: ToolCallEvent[] = [];
    for (const call of this.#calls) {
      if (call.state === "closed") continue;
      this.#pass(call, events);
      call.state = "closed";
      events.push({ type: "tool_end" });
    }
    return events;
  }

  #find(delta: ToolCallDelta): OpenToolCall {
    const { index, id: sentId } = delta;
    const known = index === undefined ? this.#calls.at(-1) : this.#byIndex.get(index);
    if (known && !begins(known, delta)) return known;
    if (this.#calls.length >= CALLS_MAX)
      fail("bad_gateway", `the upstream began more than ${CALLS_MAX} tool calls`);
    const unique = sentId !== "" && !this.#calls.some((other) => other.sentId === sentId);
    const call: OpenToolCall = {
      id: unique ? sentId : newCallId(),
      sentId,
      name: "",
      waiting: "",
      state: "waiting",
      nesting: new JsonNesting(),
    };
    this.#calls.push(call);
    this.#byIndex.set(index ?? this.#calls.length - 1, call);
    return call;
  }

  #advance(): ToolCallEvent[] {
    const events: ToolCallEvent[] = [];
    for (const [i, call] of this.#calls.entries()) {
      if (call.state === "closed") continue;
      // A name may come later than the id; what has no name yet cannot be announced.
      if (call.name === "") break;
      this.#pass(call, events);
      if (!call.nesting.isClosed || i === this.#calls.length - 1) break;
      call.state = "closed";
      events.push({ type: "tool_end" });
    }
    return events;
  }

  #pass(call: OpenToolCall, events: ToolCallEvent[]): void {
    if (call.state === "waiting") {
      call.state = "open";
      events.push({ type: "tool_start", id: call.id, name: call.name });
    }
    if (call.waiting === "") return;
    events.push({ type: "tool_arguments", text: call.waiting });
    call.nesting.feed(call.waiting);
    this.#waitingChars -= call.waiting.length;
    call.waiting = "";
  }
}
