import { fail } from "../../../../kernel/errors.ts";
import { isObject, objectIn } from "../../../../kernel/json.ts";
import { sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import type { AnsweredCall, ChatAnswer, Finish, TokenCounts } from "../chat-answer.ts";
import { type ChatEvent, type Failure, type Speaker, sseEvent } from "../voice.ts";
import type { ClientTool } from "./tools.ts";

/** The last event repeats the whole answer, so all of it is kept; a longer one is aborted. */
const ANSWER_CHARS_MAX = 64 * 1024 * 1024;

export interface ResponseIdentity {
  token: string;
  createdSeconds: number;
  request: Record<string, unknown>;
  clientTools: ReadonlyMap<string, ClientTool>;
  /** Stores the response's JSON and tells whether that worked; null if it is not to be stored. */
  keep: ((responseJson: string) => boolean) | null;
}

export type OutputItem = { id: string; type: string; [field: string]: unknown };
type Part = { type: string; text?: string; [field: string]: unknown };

type Status = "in_progress" | "completed" | "incomplete";

interface Ending {
  status: Status | "failed";
  /** Why the response is incomplete. */
  reason?: string;
  failure?: Failure;
}

const IN_PROGRESS: Ending = { status: "in_progress" };
/** Ends of a chat after which the response is incomplete. */
const INCOMPLETE: Readonly<Record<string, string>> = {
  length: "max_output_tokens",
  content_filter: "content_filter",
};

/** The names of a kind of part and of its events, and the fixed text at both ends of a delta. */
const partForm = (
  name: string,
  make: (text: string) => Part,
  { field = "text", part = "response.content_part", index = "content_index", rest = "" } = {},
) => ({
  make,
  field,
  part,
  index,
  event: `response.${name}`,
  start: `event: response.${name}.delta\ndata: {"type":"response.${name}.delta","sequence_number":`,
  end: `${rest}}\n\n`,
});

export const textPart = (text: string) => ({ type: "output_text", text, annotations: [], logprobs: [] });

const PARTS = {
  text: partForm("output_text", textPart, { rest: ',"logprobs":[]' }),
  refusal: partForm("refusal", (refusal) => ({ type: "refusal", refusal }), { field: "refusal" }),
  reasoning: partForm("reasoning_text", (text) => ({ type: "reasoning_text", text })),
  summary: partForm("reasoning_summary_text", (text) => ({ type: "summary_text", text }), {
    part: "response.reasoning_summary_part",
    index: "summary_index",
  }),
};
type PartKind = keyof typeof PARTS;

/** The item being written: a message or reasoning with its finished parts, or a call. */
interface OpenItem {
  type: "message" | "reasoning" | "call";
  id: string;
  parts: Part[];
  call?: AnsweredCall & { tool: ClientTool };
}

interface OpenPart {
  kind: PartKind;
  text: string;
  /** The part of its deltas between number and text. */
  place: string;
}

/** Clients that ask for a summary expect reasoning there. */
export const wantsSummary = ({ reasoning }: ResponseIdentity["request"]): boolean =>
  isObject(reasoning) && reasoning.summary != null;

/** Some clients keep and return only encrypted reasoning. */
const wantsSealed = ({ include }: ResponseIdentity["request"]): boolean =>
  Array.isArray(include) && include.includes("reasoning.encrypted_content");

export class ResponseSpeaker implements Speaker {
  readonly keepAlive = ": ping\n\n";
  readonly #output: OutputItem[] = [];
  #open: OpenItem | null = null;
  #part: OpenPart | null = null;
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
        return this.#closeItem("completed");
      case "finish": {
        const { closed, status, response } = this.#finished(happened.finish, happened.usage);
        const type = `response.${status}`;
        return `${closed}event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},"response":${response}}\n\n`;
      }
      case "failure":
        return this.#fail(happened.failure);
    }
  }

  #event(type: string, fields: object): string {
    return sseEvent(type, { type, sequence_number: this.#sequence++, ...fields });
  }

  #lifecycle(type: string, ending = IN_PROGRESS): string {
    const isStored = ending === IN_PROGRESS && this.identity.keep !== null;
    return this.#event(type, { response: this.#response(ending, { usage: null, isStored }) });
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
    const opened = this.#part?.kind === kind ? "" : this.#openPart(kind);
    const part = this.#part!;
    part.text += text;
    // Serialised by hand: this is by far the most frequent event.
    const { start, end } = PARTS[kind];
    return `${opened}${start}${this.#sequence++}${part.place}${JSON.stringify(text)}${end}`;
  }

  #openPart(kind: PartKind): string {
    const type = kind === "reasoning" || kind === "summary" ? "reasoning" : "message";
    let events = "";
    if (this.#open?.type === type) events = this.#closePart();
    else {
      events = this.#closeItem("completed");
      events += this.#openItem({ type, id: this.#id(type === "message" ? "msg" : "rs"), parts: [] });
    }
    const { part, index, make } = PARTS[kind];
    const place = { ...this.#place, [index]: this.#open!.parts.length };
    this.#part = { kind, text: "", place: `,${JSON.stringify(place).slice(1, -1)},"delta":` };
    return events + this.#event(`${part}.added`, { ...place, part: make("") });
  }

  #openItem(item: OpenItem): string {
    this.#open = item;
    const added = { output_index: this.#output.length, item: this.#build(item, "in_progress") };
    return this.#event("response.output_item.added", added);
  }

  #beginCall({ id: callId, name }: { id: string; name: string }): string {
    const closed = this.#closeItem("completed");
    const tool = this.identity.clientTools.get(name) ?? { name, custom: false };
    const id = this.#id(tool.custom ? "ctc" : "fc");
    const call = { id: callId, name, arguments: "", tool };
    return closed + this.#openItem({ type: "call", id, parts: [], call });
  }

  #arguments(text: string): string {
    const call = this.#open?.call;
    if (!call) return "";
    this.#count(text);
    call.arguments += text;
    // A custom tool's free text is inside JSON that is not complete yet.
    if (call.tool.custom) return "";
    return this.#event("response.function_call_arguments.delta", { ...this.#place, delta: text });
  }

  #build({ type, id, parts, call }: OpenItem, status: Status): OutputItem {
    if (call) {
      const { name, namespace, custom } = call.tool;
      const common = { id, call_id: call.id, name, ...(namespace !== undefined && { namespace }), status };
      if (custom) return { ...common, type: "custom_tool_call", input: freeTextOf(call.arguments) };
      return { ...common, type: "function_call", arguments: call.arguments };
    }
    if (type === "message") return { id, type, role: "assistant", status, content: parts };
    const { request } = this.identity;
    const thoughts = parts.map(({ text }) => text).join("\n");
    return {
      id,
      type,
      ...(wantsSummary(request) ? { summary: parts } : { summary: [], content: parts }),
      ...(wantsSealed(request) && { encrypted_content: sealedThoughts(thoughts) }),
      status,
    };
  }

  #closePart(): string {
    if (!this.#part) return "";
    const { kind, text } = this.#part;
    const { make, event, field, part, index } = PARTS[kind];
    const { parts } = this.#open!;
    const place = { ...this.#place, [index]: parts.length };
    const logprobs = kind === "text" ? { logprobs: [] } : {};
    const made = make(text);
    parts.push(made);
    this.#part = null;
    return (
      this.#event(`${event}.done`, { ...place, [field]: text, ...logprobs }) +
      this.#event(`${part}.done`, { ...place, part: made })
    );
  }

  #closeCall(call: NonNullable<OpenItem["call"]>): string {
    call.arguments ||= "{}";
    if (!call.tool.custom) {
      const done = { ...this.#place, arguments: call.arguments };
      return this.#event("response.function_call_arguments.done", done);
    }
    const input = freeTextOf(call.arguments);
    return (
      this.#event("response.custom_tool_call_input.delta", { ...this.#place, delta: input }) +
      this.#event("response.custom_tool_call_input.done", { ...this.#place, input })
    );
  }

  #closeItem(status: "completed" | "incomplete"): string {
    const open = this.#open;
    if (!open) return "";
    const closed = open.call ? this.#closeCall(open.call) : this.#closePart();
    const item = this.#build(open, status);
    const done = this.#event("response.output_item.done", { output_index: this.#output.length, item });
    this.#output.push(item);
    this.#open = null;
    return closed + done;
  }

  /** The finished response as JSON, stored if requested. Empty responses are not stored. */
  #finished({ reason: end }: Finish, usage: TokenCounts) {
    const reason = INCOMPLETE[end];
    const status = reason === undefined ? "completed" : "incomplete";
    const closed = this.#closeItem(status);
    const json = (isStored: boolean) =>
      JSON.stringify(this.#response({ status, reason }, { usage, isStored }));
    const { keep } = this.identity;
    const stored = keep && this.#output.length > 0 ? json(true) : null;
    return { closed, status, response: stored !== null && keep?.(stored) ? stored : json(false) };
  }

  #response(
    { status, reason, failure }: Ending,
    { usage, isStored }: { usage: TokenCounts | null; isStored: boolean },
  ) {
    const { token, createdSeconds, request } = this.identity;
    const effort = isObject(request.reasoning) ? request.reasoning.effort : null;
    const text = isObject(request.text) ? request.text : {};
    return {
      id: `resp_${token}`,
      object: "response",
      created_at: createdSeconds,
      status,
      error: failure ? { code: failure.code ?? "server_error", message: failure.message } : null,
      incomplete_details: reason === undefined ? null : { reason },
      model: this.#model,
      output: this.#output,
      usage: usage && {
        input_tokens: usage.prompt,
        input_tokens_details: { cached_tokens: usage.cached, cache_write_tokens: usage.cacheWritten },
        output_tokens: usage.completion,
        output_tokens_details: { reasoning_tokens: usage.reasoning },
        total_tokens: usage.prompt + usage.completion,
      },
      background: false,
      // The rest is constant or repeats the request.
      instructions: request.instructions ?? null,
      max_output_tokens: request.max_output_tokens ?? null,
      metadata: request.metadata ?? {},
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      previous_response_id: request.previous_response_id ?? null,
      reasoning: { effort: effort ?? null, summary: null },
      store: isStored,
      temperature: request.temperature ?? null,
      text: { ...text, format: text.format ?? { type: "text" } },
      tool_choice: request.tool_choice ?? "auto",
      tools: request.tools ?? [],
      top_p: request.top_p ?? null,
      truncation: "disabled",
    };
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

/** The free input of a custom tool, from the one parameter that carries it. */
function freeTextOf(json: string): string {
  const input = objectIn(json)?.input;
  // If the model wrote plain text instead of JSON, that is the input.
  return typeof input === "string" ? input : json;
}
