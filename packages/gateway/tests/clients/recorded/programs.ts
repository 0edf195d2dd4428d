/** Coding agents by their recorded first requests; each goes on as its program does. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DialectName } from "../../dialects/vendors.ts";

// biome-ignore lint/suspicious/noExplicitAny: bodies of four APIs
export type Json = any;

export interface Recorded {
  path: string;
  headers: Record<string, string>;
  body: Json;
}

/** What a client was told in a turn, in the order in which it came. */
export interface Heard {
  text: string;
  thoughts: string;
  calls: { name: string; args: Json }[];
}

export interface RecordedProgram {
  name: string;
  /** What its API is called as a backend's dialect. */
  dialect: DialectName;
  /** Whether it is shown thoughts. */
  seesThoughts: boolean;
  /** The path and the body's fields for a model. */
  asking(recorded: Recorded, model: string): { path: string; body: Json };
  /** Reads a streamed answer's events. */
  hear(events: Json[]): Heard;
  /** The body of the next turn: what was answered, and the results of its calls. */
  next(body: Json, events: Json[], result: string): Json;
}

export const IMAGE = {
  mimeType: "image/png",
  data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
};
const DATA_URL = `data:${IMAGE.mimeType};base64,${IMAGE.data}`;

export const recordedOf = (name: string): Recorded =>
  JSON.parse(readFileSync(join(import.meta.dir, "fixtures", `${name}.json`), "utf8"));

/** Blocks of a streamed Message, put together as Anthropic's SDK does. */
function blocksOf(events: Json[]): Json[] {
  const blocks: Json[] = [];
  for (const { type, index, content_block, delta } of events) {
    if (type === "content_block_start") blocks[index] = { ...content_block, json: "" };
    if (type !== "content_block_delta") continue;
    const block = blocks[index];
    if (delta.type === "text_delta") block.text += delta.text;
    if (delta.type === "thinking_delta") block.thinking += delta.thinking;
    if (delta.type === "signature_delta") block.signature = delta.signature;
    if (delta.type === "input_json_delta") block.json += delta.partial_json;
  }
  return blocks.map(({ json, ...block }) =>
    block.type === "tool_use" ? { ...block, input: JSON.parse(json || "{}") } : block,
  );
}

const claudeCode: RecordedProgram = {
  name: "claude-code",
  dialect: "messages",
  seesThoughts: false,
  asking: ({ path, body }, model) => {
    const image = { type: "image", source: { type: "base64", media_type: IMAGE.mimeType, data: IMAGE.data } };
    const messages = body.messages.map((message: Json) =>
      message.role === "user" ? { ...message, content: [...blocksIn(message.content), image] } : message,
    );
    return { path, body: { ...body, model, messages } };
  },
  hear: (events) => {
    const blocks = blocksOf(events);
    return {
      text: blocks.map(({ text = "" }) => text).join(""),
      thoughts: blocks.map(({ thinking = "" }) => thinking).join(""),
      calls: blocks.flatMap(({ type, name, input }) => (type === "tool_use" ? [{ name, args: input }] : [])),
    };
  },
  next: (body, events, result) => {
    const content = blocksOf(events);
    const results = content.flatMap(({ type, id }) =>
      type === "tool_use" ? [{ tool_use_id: id, type: "tool_result", content: result, is_error: false }] : [],
    );
    const added = [
      { role: "assistant", content },
      { role: "user", content: results },
    ];
    return { ...body, messages: [...body.messages, ...added] };
  },
};
const blocksIn = (content: Json): Json[] =>
  typeof content === "string" ? [{ type: "text", text: content }] : content;

const itemsOf = (events: Json[]): Json[] =>
  events.flatMap(({ type, item }) => (type === "response.output_item.done" ? [item] : []));

const codex: RecordedProgram = {
  name: "codex",
  dialect: "responses",
  seesThoughts: true,
  asking: ({ path, body }, model) => {
    const content = [{ type: "input_image", image_url: DATA_URL, detail: "auto" }];
    return {
      path,
      body: { ...body, model, input: [...body.input, { type: "message", role: "user", content }] },
    };
  },
  hear: (events) => {
    const items = itemsOf(events);
    return {
      text: items
        .flatMap(({ type, content }) => (type === "message" ? content : []))
        .map(({ text }) => text)
        .join(""),
      thoughts: items
        .flatMap(({ type, content }) => (type === "reasoning" ? (content ?? []) : []))
        .map(({ text }) => text)
        .join(""),
      calls: items.flatMap(({ type, name, arguments: args, input }) =>
        /_call$/.test(type) ? [{ name, args: args === undefined ? { input } : JSON.parse(args) }] : [],
      ),
    };
  },
  next: (body, events, result) => {
    const items = itemsOf(events);
    const results = items.flatMap(({ type, call_id }) =>
      /_call$/.test(type) ? [{ type: `${type}_output`, call_id, output: result }] : [],
    );
    // Codex keeps of reasoning what is sealed.
    const kept = items.map((item) => (item.type === "reasoning" ? { ...item, content: null } : item));
    return { ...body, input: [...body.input, ...kept, ...results] };
  },
};

const partsOf = (events: Json[]): Json[] =>
  events.flatMap((chunk) => chunk.candidates?.[0]?.content?.parts ?? []);

const geminiCli: RecordedProgram = {
  name: "gemini-cli",
  dialect: "gemini",
  seesThoughts: true,
  asking: ({ body }, model) => {
    const [first, ...rest] = body.contents;
    const contents = [{ ...first, parts: [...first.parts, { inlineData: IMAGE }] }, ...rest];
    return { path: `/v1beta/models/${model}:streamGenerateContent?alt=sse`, body: { ...body, contents } };
  },
  hear: (events) => {
    const parts = partsOf(events);
    const textOf = (isThought: boolean) =>
      parts.map(({ thought, text = "" }) => ((thought === true) === isThought ? text : "")).join("");
    const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
    return { text: textOf(false), thoughts: textOf(true), calls };
  },
  next: (body, events, result) => {
    // Gemini CLI drops thoughts, and joins texts.
    const parts = partsOf(events).filter(({ thought }) => !thought);
    const text = parts.map((part) => part.text ?? "").join("");
    const calls = parts.filter(({ functionCall }) => functionCall);
    const results = calls.map(({ functionCall: { id, name } }) => ({
      functionResponse: { id, name, response: { output: result } },
    }));
    const added = [
      { role: "model", parts: [...(text ? [{ text }] : []), ...calls] },
      { role: "user", parts: results },
    ];
    return { ...body, contents: [...body.contents, ...added] };
  },
};

const deltasOf = (events: Json[]): Json[] => events.flatMap(({ choices }) => choices?.[0]?.delta ?? []);
const joinedOf = (events: Json[], field: string): string =>
  deltasOf(events)
    .map((delta) => delta[field] ?? "")
    .join("");
function callsOf(events: Json[]): Json[] {
  const calls: Json[] = [];
  for (const { index, id, function: fn } of deltasOf(events).flatMap(({ tool_calls = [] }) => tool_calls)) {
    calls[index] ??= { id, type: "function", function: { name: fn.name, arguments: "" } };
    calls[index].function.arguments += fn.arguments ?? "";
  }
  return calls;
}

const openCode: RecordedProgram = {
  name: "opencode",
  dialect: "chat",
  seesThoughts: true,
  asking: ({ path, body }, model) => {
    const content = [
      { type: "text", text: "Look." },
      { type: "image_url", image_url: { url: DATA_URL } },
    ];
    return { path, body: { ...body, model, messages: [...body.messages, { role: "user", content }] } };
  },
  hear: (events) => ({
    text: joinedOf(events, "content"),
    thoughts: joinedOf(events, "reasoning_content"),
    calls: callsOf(events).map(({ function: fn }) => ({ name: fn.name, args: JSON.parse(fn.arguments) })),
  }),
  next: (body, events, result) => {
    const tool_calls = callsOf(events);
    const reasoning_content = joinedOf(events, "reasoning_content");
    const answer = {
      ...{ role: "assistant", content: joinedOf(events, "content"), tool_calls },
      ...(reasoning_content && { reasoning_content }),
    };
    const results = tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: result }));
    return { ...body, messages: [...body.messages, answer, ...results] };
  },
};

export const RECORDED: readonly RecordedProgram[] = [claudeCode, codex, geminiCli, openCode];
