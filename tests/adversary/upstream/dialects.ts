import { type Answering, note, type Piece, piecesOf, reportingOf, stopAfter } from "./chat.ts";
import type { Figures } from "./usage.ts";

/** How a vendor's own API writes an answer. */
interface Format {
  /** Begins a stream; `usage` is what is known of it so far. */
  opening(model: string, usage: Figures | null): string;
  piece(text: string, usage: Figures | null): string;
  /** Ends it; where `isDone` is false, without the last event. */
  closing(usage: Figures | null, isDone: boolean): string;
  failure: string;
  whole(model: string, text: string, usage: Figures | null): Record<string, unknown>;
}

type Said = "text" | "thinking" | "call";
function saidIn({ flight }: Answering): Said {
  const { member } = flight.asked.plan;
  if (member === "tool_calls" || member === "function_call") return "call";
  return member === "thinking" || member.startsWith("reasoning") ? "thinking" : "text";
}

/** The arguments of a call as JSON. */
const callText = (text: string) => JSON.stringify({ a: text });
const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const named = (value: { type: string; [member: string]: unknown }) => `event: ${value.type}\n${data(value)}`;

function messages(said: Said): Format {
  const usageOf = (figures: Figures) => ({
    // Read from the cache is beside the input here.
    input_tokens: figures.cached === undefined ? figures.prompt : Number(figures.prompt) - figures.cached,
    cache_read_input_tokens: figures.cached ?? 0,
    output_tokens: figures.completion,
  });
  const block = (text: string) => {
    if (said === "thinking") return { type: "thinking", thinking: text, signature: "s" };
    if (said === "text") return { type: "text", text };
    return { type: "tool_use", id: "toolu_1", name: "look_up", input: text ? { a: text } : {} };
  };
  const delta = (text: string) => {
    if (said === "thinking") return { type: "thinking_delta", thinking: text };
    if (said === "text") return { type: "text_delta", text };
    return { type: "input_json_delta", partial_json: text };
  };
  const message = (model: string) => ({ id: "msg_1", type: "message", role: "assistant", model });
  const stop = { stop_reason: said === "call" ? "tool_use" : "end_turn", stop_sequence: null };
  return {
    opening: (model, usage) =>
      named({
        type: "message_start",
        message: { ...message(model), content: [], ...(usage && { usage: usageOf(usage) }) },
      }) + named({ type: "content_block_start", index: 0, content_block: block("") }),
    piece: (text) => named({ type: "content_block_delta", index: 0, delta: delta(text) }),
    closing: (usage, isDone) =>
      named({ type: "content_block_stop", index: 0 }) +
      named({ type: "message_delta", delta: stop, ...(usage && { usage: usageOf(usage) }) }) +
      (isDone ? named({ type: "message_stop" }) : ""),
    failure: named({ type: "error", error: { type: "api_error", message: "out of order" } }),
    whole: (model, text, usage) => ({
      ...message(model),
      content: [block(text)],
      ...stop,
      ...(usage && { usage: usageOf(usage) }),
    }),
  };
}

function responses(said: Said): Format {
  const usageOf = ({ prompt, completion, cached }: Figures) => ({
    input_tokens: prompt,
    ...(cached !== undefined && { input_tokens_details: { cached_tokens: cached } }),
    output_tokens: completion,
  });
  const item = (text: string) => {
    if (said === "call")
      return {
        type: "function_call",
        id: "fc_1",
        call_id: "call_1",
        name: "look_up",
        arguments: callText(text),
      };
    if (said === "thinking")
      return { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text }] };
    return { type: "message", id: "m_1", role: "assistant", content: [{ type: "output_text", text }] };
  };
  const deltas = {
    text: "response.output_text.delta",
    thinking: "response.reasoning_text.delta",
    call: "response.function_call_arguments.delta",
  };
  const response = (model: string, status: string) => ({ id: "resp_1", object: "response", status, model });
  let written = "";
  let asked = "";
  return {
    opening: (model) => {
      asked = model;
      const created = { type: "response.created", response: response(model, "in_progress") };
      const added = {
        type: "response.output_item.added",
        output_index: 0,
        item: { ...item(""), content: [] },
      };
      return named(created) + named(added);
    },
    piece: (text) => {
      written += text;
      return named({ type: deltas[said], output_index: 0, content_index: 0, delta: text });
    },
    closing: (usage, isDone) => {
      const output = [item(written)];
      const whole = { ...response(asked, "completed"), output, ...(usage && { usage: usageOf(usage) }) };
      const done = { type: "response.output_item.done", output_index: 0, item: output[0] };
      return named(done) + (isDone ? named({ type: "response.completed", response: whole }) : "");
    },
    failure: named({ type: "error", code: "server_error", message: "out of order" }),
    whole: (model, text, usage) => ({
      ...response(model, "completed"),
      output: [item(text)],
      ...(usage && { usage: usageOf(usage) }),
    }),
  };
}

function gemini(said: Said): Format {
  const chunk = (text: string | null, usage: Figures | null, finishReason?: string) => {
    const part =
      said === "call"
        ? { functionCall: { name: "look_up", args: { a: text } } }
        : { text, thought: said === "thinking" };
    return {
      candidates: [
        { index: 0, content: { role: "model", parts: text === null ? [] : [part] }, finishReason },
      ],
      ...(usage && {
        usageMetadata: {
          promptTokenCount: usage.prompt,
          cachedContentTokenCount: usage.cached,
          candidatesTokenCount: usage.completion,
        },
      }),
    };
  };
  return {
    opening: () => "",
    piece: (text, usage) => data(chunk(text, usage)),
    closing: (usage, isDone) => data(chunk(null, usage, isDone ? "STOP" : undefined)),
    failure: data({ error: { code: 500, message: "out of order", status: "INTERNAL" } }),
    whole: (_, text, usage) => chunk(text, usage, "STOP"),
  };
}

/** What is counted beside the rest of the prompt cannot be more than all of it. */
const withinPrompt = (figures: Figures | null): Figures | null =>
  figures?.cached !== undefined && figures.cached > Number(figures.prompt)
    ? { ...figures, cached: undefined }
    : figures;

const FORMATS = { messages, responses, gemini };
export type DialectKind = keyof typeof FORMATS;

/** Answers in a vendor's own API, streamed or whole. */
export async function answerDialect(kind: DialectKind, answering: Answering): Promise<void> {
  const { flight, dispatch, reading, request, reply } = answering;
  const { plan } = flight.asked;
  const isClosed = () => request.closedAtMs !== null;
  const ended = () => {
    if (dispatch.end === "open") dispatch.end = isClosed() ? "closed" : "whole";
  };
  await flight.waitForLeaving("dispatch", isClosed);
  if (plan.ending === "refuse" || plan.ending === "fail") {
    dispatch.end = "failed";
    const error = { type: "api_error", message: "not today" };
    return reply.json({ type: "error", error }, plan.ending === "refuse" ? 400 : 500);
  }
  const said = saidIn(answering);
  const format = FORMATS[kind](said);
  const pieces = piecesOf(flight, { ...reading, choices: 1 });
  const reporting = reportingOf(answering, pieces);
  const told = (figures: Figures | null) => (kind === "messages" ? withinPrompt(figures) : figures);
  const [running, final] = [told(reporting.running), told(reporting.final)];
  // Only the first event of Messages, and each of Gemini's, can say something before the last.
  const early = kind === "responses" ? null : running;
  if (!reading.stream) {
    for (const piece of pieces) note(dispatch, piece);
    const figures = final ?? running;
    const text = JSON.stringify(
      format.whole(dispatch.model, pieces.map((piece) => piece.text).join(""), figures),
    );
    const half = Math.floor(text.length / 2);
    reply.head(200, { "content-type": "application/json" });
    await reply.write(text.slice(0, half));
    for (const moment of ["piece", "usage"] as const) await flight.waitForLeaving(moment, isClosed);
    if (isClosed()) return ended();
    if (plan.ending === "cut") {
      dispatch.end = "failed";
      return reply.reset();
    }
    dispatch.reported = figures;
    await reply.write(text.slice(half));
    await reply.end();
    return ended();
  }
  const stop = stopAfter(answering, pieces);
  const textOf = ({ text, isFirst, isLast }: Piece) =>
    said === "call" && kind !== "gemini" ? `${isFirst ? '{"a":"' : ""}${text}${isLast ? '"}' : ""}` : text;
  reply.head(200, { "content-type": "text/event-stream" });
  if (early) dispatch.reported = early;
  const opening = format.opening(dispatch.model, early);
  // An empty chunk would end the answer.
  if (opening) await reply.write(opening);
  for (const [i, piece] of pieces.entries()) {
    if (isClosed()) return ended();
    if (stop.break === i) {
      dispatch.end = "failed";
      if (plan.ending === "cut") return reply.reset();
      await reply.write(format.failure);
      return reply.end();
    }
    note(dispatch, piece);
    await reply.write(format.piece(textOf(piece), early));
    if (stop.leave === i + 1) await flight.waitForLeaving("piece", isClosed);
  }
  await flight.waitForLeaving("usage", isClosed);
  if (isClosed()) return ended();
  const isDone = plan.ending !== "no-done";
  if (final && (isDone || kind !== "responses")) dispatch.reported = final;
  await reply.write(format.closing(final, isDone));
  // An answer without its last event broke off; after it the gateway need not wait for the end of the connection.
  dispatch.end = isDone ? "whole" : "failed";
  await reply.end();
}
