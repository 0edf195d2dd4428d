import { fail } from "../../../kernel/errors.ts";
import { newCallId } from "../../../kernel/ids.ts";
import { isObject, jsonIn, textOf } from "../../../kernel/json.ts";
import { JsonNesting } from "../../../kernel/json-scan.ts";
import type { AnsweredCall } from "./chat-answer.ts";

export type ToolCallEvent =
  | { type: "tool_start"; id: string; name: string }
  | { type: "tool_arguments"; text: string }
  /** With the whole call, for APIs that do not stream calls. */
  | { type: "tool_end"; call: AnsweredCall };

/** Limit for arguments of later calls that wait for an earlier one to end. */
const WAITING_CHARS_MAX = 8 * 1024 * 1024;
const CALLS_MAX = 1_000;
/** Limit for one call, which is kept until it ends. */
const ARGUMENTS_CHARS_MAX = 8 * 1024 * 1024;

interface OpenToolCall extends AnsweredCall {
  waiting: string;
  state: "waiting" | "open" | "closed";
  nesting: JsonNesting;
}

/** Arguments as an object; invalid JSON is kept under a name that says so. */
export function toolInput(text: string): unknown {
  const input = jsonIn(text);
  return input === undefined ? { INVALID_JSON: text } : input;
}

/** Puts interleaved parallel tool calls in order. */
export class ToolCalls {
  readonly #calls: OpenToolCall[] = [];
  readonly #byIndex = new Map<unknown, OpenToolCall>();
  #waitingChars = 0;

  get count(): number {
    return this.#calls.length;
  }

  /** Adds a piece that the meter has completed. */
  add({ index, id, function: fn }: Record<string, unknown>): ToolCallEvent[] {
    const { name, arguments: args }: Record<string, unknown> = isObject(fn) ? fn : {};
    const call = this.#byIndex.get(index) ?? this.#open(index, textOf(id));
    call.name ||= textOf(name);
    const text = textOf(args);
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

  /** Ends all open calls, e.g. because text or the finish came. */
  close(): ToolCallEvent[] {
    const events: ToolCallEvent[] = [];
    for (const call of this.#calls) {
      if (call.state === "closed") continue;
      this.#pass(call, events);
      this.#end(call, events);
    }
    return events;
  }

  #open(index: unknown, id: string): OpenToolCall {
    if (this.#calls.length >= CALLS_MAX)
      fail("bad_gateway", `the upstream began more than ${CALLS_MAX} tool calls`);
    const isTaken = id === "" || this.#calls.some((other) => other.id === id);
    const call: OpenToolCall = {
      id: isTaken ? newCallId() : id,
      name: "",
      arguments: "",
      waiting: "",
      state: "waiting",
      nesting: new JsonNesting(),
    };
    this.#calls.push(call);
    this.#byIndex.set(index, call);
    return call;
  }

  #advance(): ToolCallEvent[] {
    const events: ToolCallEvent[] = [];
    for (const [i, call] of this.#calls.entries()) {
      if (call.state === "closed") continue;
      // The name may come later than the id, and a call without a name cannot be announced.
      if (call.name === "") break;
      this.#pass(call, events);
      if (!call.nesting.isClosed || i === this.#calls.length - 1) break;
      this.#end(call, events);
    }
    return events;
  }

  #end(call: OpenToolCall, events: ToolCallEvent[]): void {
    call.state = "closed";
    const { id, name, arguments: args } = call;
    events.push({ type: "tool_end", call: { id, name, arguments: args || "{}" } });
    call.arguments = "";
  }

  #pass(call: OpenToolCall, events: ToolCallEvent[]): void {
    if (call.state === "waiting") {
      call.state = "open";
      events.push({ type: "tool_start", id: call.id, name: call.name });
    }
    if (call.waiting === "") return;
    events.push({ type: "tool_arguments", text: call.waiting });
    call.nesting.feed(call.waiting);
    call.arguments += call.waiting;
    if (call.arguments.length > ARGUMENTS_CHARS_MAX)
      fail("bad_gateway", `a tool call has more than ${ARGUMENTS_CHARS_MAX} characters of arguments`);
    this.#waitingChars -= call.waiting.length;
    call.waiting = "";
  }
}
