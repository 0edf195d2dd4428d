import { fail } from "../../../../kernel/errors.ts";
import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { type ChatEvent, type Failure, type Speaker, sseEvent } from "../voice.ts";
import {
  callIdPrefix,
  callItem,
  type Ending,
  endingOf,
  finishedJson,
  freeTextOf,
  messageItem,
  type OutputItem,
  type ResponseIdentity,
  reasoningItem,
  reasoningPart,
  refusalPart,
  responseObject,
  summaryPart,
  textPart,
  wantsSummary,
} from "./response.ts";

/** The last event repeats the whole answer, so all of it is kept; a longer one is aborted. */
const ANSWER_CHARS_MAX = 64 * 1024 * 1024;

const IN_PROGRESS: Ending = { status: "in_progress" };

type PartKind = keyof typeof PARTS;

interface OpenPart {
  kind: PartKind;
  text: string;
  /** The part of its deltas between number and text. */
  place: string;
}

/** The item being written: a message or reasoning with its parts, or a call. */
type OpenItem =
  | { type: "message" | "reasoning"; id: string; parts: object[]; part: OpenPart | null }
  | { type: "call"; id: string; call: AnsweredCall };

/** The fixed text at both ends of a delta. */
const deltaOf = (event: string, rest = "") => ({
  start: `event: ${event}.delta\ndata: {"type":"${event}.delta","sequence_number":`,
  end: `${rest}}\n\n`,
});

const CONTENT = { part: "response.content_part", index: "content_index" };
const PARTS = {
  text: {
    ...CONTENT,
    make: textPart,
    event: "response.output_text",
    field: "text",
    delta: deltaOf("response.output_text", ',"logprobs":[]'),
  },
  refusal: {
    ...CONTENT,
    make: refusalPart,
    event: "response.refusal",
    field: "refusal",
    delta: deltaOf("response.refusal"),
  },
  reasoning: {
    ...CONTENT,
    make: reasoningPart,
    event: "response.reasoning_text",
    field: "text",
    delta: deltaOf("response.reasoning_text"),
  },
  summary: {
    part: "response.reasoning_summary_part",
    index: "summary_index",
    make: summaryPart,
    event: "response.reasoning_summary_text",
    field: "text",
    delta: deltaOf("response.reasoning_summary_text"),
  },
} as const;

export class ResponseSpeaker implements Speaker {
  readonly keepAlive = ": ping\n\n";
  readonly #output: OutputItem[] = [];
  #open: OpenItem | null = null;
  #sequence = 0;
  #items = 0;
  #chars = 0;
  #model = "";

  constructor(readonly identity: ResponseIdentity) {}

  /** The response that a stream of these events would end with. */
  whole({ model, reasoning, text, refusal, calls, finish, usage }: ChatAnswer): string {
    this.#model = model;
    if (reasoning) this.write({ type: "reasoning", text: reasoning });
    if (text) this.write({ type: "text", text });
    if (refusal) this.write({ type: "refusal", text: refusal });
    for (const call of calls) {
      this.write({ type: "tool_start", ...call });
      this.write({ type: "tool_arguments", text: call.arguments });
      this.write({ type: "tool_end", call });
    }
    return this.#finished(finish, usage).response;
  }

  write(happened: ChatEvent): string {
    switch (happened.type) {
      case "start":
        this.#model = happened.model;
        return this.#lifecycle("response.created") + this.#lifecycle("response.in_progress");
      case "reasoning":
        return this.#text(wantsSummary(this.identity.request) ? "summary" : "reasoning", happened.text);
      case "text":
      case "refusal":
        return this.#text(happened.type, happened.text);
      case "tool_start":
        return this.#beginCall(happened);
      case "tool_arguments":
        return this.#arguments(happened.text);
      case "tool_end":
        return this.#closeItem();
      case "finish":
        return this.#finish(happened.finish, happened.usage);
      case "failure":
        return this.#fail(happened.failure);
    }
  }

  #event(type: string, fields: object): string {
    return sseEvent(type, { type, sequence_number: this.#sequence++, ...fields });
  }

  #lifecycle(type: string, ending: Ending = IN_PROGRESS): string {
    const answered = { model: this.#model, output: this.#output, ending, usage: null };
    const willBeStored = ending === IN_PROGRESS && this.identity.keep !== null;
    return this.#event(type, { response: responseObject(this.identity, answered, willBeStored) });
  }

  #id(prefix: string): string {
    return `${prefix}_${this.identity.token}_${this.#items++}`;
  }

  get #place() {
    return { item_id: this.#open?.id, output_index: this.#output.length };
  }

  #count(text: string): void {
    this.#chars += text.length;
    if (this.#chars > ANSWER_CHARS_MAX)
      fail("bad_gateway", `the answer is longer than ${ANSWER_CHARS_MAX} characters`);
  }

  #text(kind: PartKind, text: string): string {
    this.#count(text);
    const opened = this.#openPart(kind);
    const item = this.#open as Extract<OpenItem, { parts: object[] }>;
    const part = item.part as OpenPart;
    part.text += text;
    // Serialised by hand: this is by far the most frequent event.
    const { delta } = PARTS[kind];
    return `${opened}${delta.start}${this.#sequence++}${part.place}${JSON.stringify(text)}${delta.end}`;
  }

  /** Events that open a part of this kind; empty if it is open already. */
  #openPart(kind: PartKind): string {
    const type = kind === "reasoning" || kind === "summary" ? "reasoning" : "message";
    let events = "";
    if (this.#open?.type !== type) {
      events += this.#closeItem();
      this.#open = { type, id: this.#id(type === "message" ? "msg" : "rs"), parts: [], part: null };
      events += this.#added(this.#build("in_progress"));
    }
    const item = this.#open as Extract<OpenItem, { parts: object[] }>;
    if (item.part?.kind === kind) return events;
    events += this.#closePart(item);
    const { part, index, make } = PARTS[kind];
    const place = { ...this.#place, [index]: item.parts.length };
    item.part = { kind, text: "", place: `,${JSON.stringify(place).slice(1, -1)},"delta":` };
    return events + this.#event(`${part}.added`, { ...place, part: make("") });
  }

  #added(item: OutputItem): string {
    return this.#event("response.output_item.added", { output_index: this.#output.length, item });
  }

  #beginCall({ id, name }: { id: string; name: string }): string {
    const closed = this.#closeItem();
    const prefix = callIdPrefix(this.identity.clientTools.get(name));
    this.#open = { type: "call", id: this.#id(prefix), call: { id, name, arguments: "" } };
    return closed + this.#added(this.#build("in_progress"));
  }

  #isCustom(call: AnsweredCall): boolean {
    return this.identity.clientTools.get(call.name)?.custom === true;
  }

  #arguments(text: string): string {
    if (this.#open?.type !== "call") return "";
    this.#count(text);
    this.#open.call.arguments += text;
    // A custom tool's free text is inside JSON that is not complete yet.
    if (this.#isCustom(this.#open.call)) return "";
    return this.#event("response.function_call_arguments.delta", { ...this.#place, delta: text });
  }

  #build(status: "in_progress" | "completed" | "incomplete"): OutputItem {
    const open = this.#open as OpenItem;
    if (open.type === "call") {
      return callItem(open.id, {
        call: open.call,
        tool: this.identity.clientTools.get(open.call.name),
        status,
      });
    }
    const make = open.type === "message" ? messageItem : reasoningItem;
    return make(open.id, { content: open.parts, status, request: this.identity.request });
  }

  #closePart(item: Extract<OpenItem, { parts: object[] }>): string {
    if (!item.part) return "";
    const { kind, text } = item.part;
    const { make, event, field, part, index } = PARTS[kind];
    const place = { ...this.#place, [index]: item.parts.length };
    const logprobs = kind === "text" ? { logprobs: [] } : {};
    const events =
      this.#event(`${event}.done`, { ...place, [field]: text, ...logprobs }) +
      this.#event(`${part}.done`, { ...place, part: make(text) });
    item.parts.push(make(text));
    item.part = null;
    return events;
  }

  #closeCall({ call }: { call: AnsweredCall }): string {
    call.arguments ||= "{}";
    if (this.#isCustom(call)) {
      const input = freeTextOf(call.arguments);
      return (
        this.#event("response.custom_tool_call_input.delta", { ...this.#place, delta: input }) +
        this.#event("response.custom_tool_call_input.done", { ...this.#place, input })
      );
    }
    return this.#event("response.function_call_arguments.done", {
      ...this.#place,
      arguments: call.arguments,
    });
  }

  #closeItem(status: "completed" | "incomplete" = "completed"): string {
    if (!this.#open) return "";
    const closed = this.#open.type === "call" ? this.#closeCall(this.#open) : this.#closePart(this.#open);
    const item = this.#build(status);
    const done = this.#event("response.output_item.done", { output_index: this.#output.length, item });
    this.#output.push(item);
    this.#open = null;
    return closed + done;
  }

  #finished(finish: Finish, usage: TokenCounts) {
    const ending = endingOf(finish);
    const closed = this.#closeItem(ending.status === "completed" ? "completed" : "incomplete");
    const answered = { model: this.#model, output: this.#output, ending, usage };
    return { closed, ending, response: finishedJson(this.identity, answered) };
  }

  #finish(finish: Finish, usage: TokenCounts): string {
    const { closed, ending, response } = this.#finished(finish, usage);
    const type = `response.${ending.status}`;
    return `${closed}event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},"response":${response}}\n\n`;
  }

  /** Clients look for the failure in the response, in the event or in the event's `error`. */
  #fail(failure: Failure): string {
    const { message, code, type } = failure;
    const started = this.#sequence === 0 ? this.#lifecycle("response.created") : "";
    const closed = this.#closeItem("incomplete");
    const failed = this.#lifecycle("response.failed", { status: "failed", failure });
    const flat = { code, message, param: null };
    return started + closed + failed + this.#event("error", { ...flat, error: { ...flat, type } });
  }
}
