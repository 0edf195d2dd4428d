import type { ReceivedRequest, Reply } from "@model-gateway/testing/upstream.ts";
import type { Dispatch, Flight } from "../flights.ts";
import type { OutputMember } from "../plot.ts";
import { markOf, PIECES_MAX, textOf } from "../tokens.ts";
import type { ChatReading } from "./reading.ts";
import { type Figures, type Reporting, reporting, withCache } from "./usage.ts";

/** One request is never really answered with more than this, even if it asks for millions. */
const SERVED_TOKENS_MAX = 6_000;
const CREATED = 1_763_000_000;

/** One piece of one choice; its number is in its text. */
export interface Piece {
  /** What its mark says. */
  number: number;
  choice: number;
  tokens: number;
  text: string;
  isFirst: boolean;
  isLast: boolean;
}

/** Everything that the answer has: as much as is wanted and the limit allows, for every choice. */
export function piecesOf({ asked, modelNumber }: Flight, { choices, limit }: ChatReading): Piece[] {
  const { plan, leave } = asked;
  // Which of the choices that say the same a client has heard could not be told when it leaves in the middle, or when
  // the connection is reset, which loses what is still on its way.
  const areAlike = plan.alike && leave.at !== "piece" && leave.at !== "start" && plan.ending !== "cut";
  const served = Math.min(choices, PIECES_MAX);
  const tokens = Math.min(plan.wants, limit ?? plan.wants, Math.floor(SERVED_TOKENS_MAX / served));
  const pieceTokens = Math.max(plan.pieceTokens, Math.ceil(tokens / Math.floor(PIECES_MAX / served)));
  const pieces: Piece[] = [];
  for (let done = 0; done < tokens; done += pieceTokens) {
    const size = Math.min(pieceTokens, tokens - done);
    for (let choice = 0; choice < served; choice++) {
      const number = areAlike ? Math.floor(pieces.length / served) : pieces.length;
      const mark = markOf({ request: modelNumber, piece: number });
      pieces.push({
        number,
        choice,
        tokens: size,
        text: ` ${mark}${textOf(plan.text, size - 1)}`,
        isFirst: done === 0,
        isLast: done + size >= tokens,
      });
    }
  }
  return pieces;
}

/** Arguments of a call are JSON; what makes them so is not counted. */
const argumentsOf = ({ text, isFirst, isLast }: Piece) =>
  `${isFirst ? '{"a":"' : ""}${text}${isLast ? '"}' : ""}`;

/** The piece as a delta or a message, in the member that the upstream likes to use. */
export function memberOf(member: OutputMember, piece: Piece, streamed: boolean): Record<string, unknown> {
  const { text } = piece;
  switch (member) {
    case "content":
    case "reasoning":
    case "reasoning_content":
    case "thinking":
    case "refusal":
      return { [member]: text };
    case "parts":
      return { content: [{ type: "text", text }] };
    case "tool_calls": {
      const call = { name: "look_up", arguments: argumentsOf(piece) };
      const head = piece.isFirst || !streamed ? { id: `call_${piece.choice}`, type: "function" } : {};
      return { tool_calls: [{ ...(streamed && { index: 0 }), ...head, function: call }] };
    }
    case "function_call":
      return { function_call: { name: "look_up", arguments: argumentsOf(piece) } };
    case "reasoning_details":
      return { reasoning_details: [{ type: "reasoning.text", text }] };
    case "audio":
      return { audio: { id: "audio_1", transcript: text } };
    case "unheard_of":
      return { unheard_of: { deep: [[text]] } };
    case "beside_content":
      return { content: ".", notes: text };
  }
}

export const usageOf = ({ prompt, completion, cached }: Figures) => ({
  prompt_tokens: prompt,
  ...(cached !== undefined && { prompt_tokens_details: { cached_tokens: cached } }),
  completion_tokens: completion,
  total_tokens:
    typeof prompt === "number" && typeof completion === "number" ? prompt + completion : completion,
});

/** The same in a choice of a text completion, where only `text` belongs. */
function textMemberOf(member: OutputMember, piece: Piece): Record<string, unknown> {
  if (member === "unheard_of") return { text: ".", delta: memberOf(member, piece, true) };
  if (member === "beside_content") return { text: ".", message: { notes: piece.text } };
  return { text: piece.text };
}

const event = ({ isText, dispatch }: Answering, fields: Record<string, unknown>) => {
  const object = isText ? "text_completion" : "chat.completion.chunk";
  const chunk = { id: "chatcmpl-1", object, created: CREATED, model: dispatch.model, ...fields };
  return `data: ${JSON.stringify(chunk)}\n\n`;
};

/** What a choice of a streamed answer says. */
const saidBy = ({ isText, flight }: Answering, piece: Piece): Record<string, unknown> => {
  const { member } = flight.asked.plan;
  return isText ? textMemberOf(member, piece) : { delta: memberOf(member, piece, true) };
};

/** A request that the upstream has read. */
export interface Served {
  flight: Flight;
  dispatch: Dispatch;
  reading: ChatReading;
}

export const newDispatch = ({
  model,
  promptTokens,
  choices,
  limit,
}: Pick<ChatReading, "model" | "promptTokens" | "choices" | "limit">): Dispatch => ({
  model,
  promptTokens,
  choices,
  limit,
  pieces: [],
  hiddenTokens: 0,
  reported: null,
  end: "open",
});

/** One answer on its way out over HTTP. */
export interface Answering extends Served {
  request: ReceivedRequest;
  reply: Reply;
  /** A text completion. */
  isText: boolean;
}

const sumOf = (pieces: readonly Piece[]) => pieces.reduce((sum, { tokens }) => sum + tokens, 0);

/** Writes down that a piece is sent; pieces with the same mark add up. */
export function note({ pieces }: Dispatch, { number, tokens }: Piece): void {
  pieces[number] = (pieces[number] ?? 0) + tokens;
}

/** What it will say about all that it is about to serve; hidden tokens are billed only where they are told. */
export function reportingOf({ flight, dispatch, reading }: Served, pieces: readonly Piece[]): Reporting {
  const { report, cached } = flight.asked.plan;
  const told =
    (report === "honest" || report === "running-honest") && (reading.tellsUsage || !reading.stream);
  dispatch.hiddenTokens = told ? reading.predictionTokens : 0;
  return withCache(cached, reporting(report, dispatch.promptTokens, sumOf(pieces) + dispatch.hiddenTokens));
}

/** The pieces after which the answer breaks off, or at which the client leaves. */
export const stopAfter = ({ flight }: Served, pieces: readonly Piece[]) => {
  const { leave, plan } = flight.asked;
  const breaks = plan.ending === "cut" || plan.ending === "error-event";
  return {
    leave: leave.at === "piece" ? Math.min(leave.piece, pieces.length) : null,
    break: breaks ? Math.ceil(pieces.length / 2) : null,
  };
};

/** Answers as a server of the chat-completions kind, streaming or not. */
export async function answerChat(answering: Answering): Promise<void> {
  const { flight, dispatch, reading, request, reply } = answering;
  const { plan } = flight.asked;
  const isClosed = () => request.closedAtMs !== null;
  await flight.waitForLeaving("dispatch", isClosed);
  if (plan.ending === "refuse" || plan.ending === "fail") {
    dispatch.end = "failed";
    const status = plan.ending === "refuse" ? 400 : 500;
    return reply.json({ error: { message: "not today", type: "server_error", code: null } }, status);
  }
  const pieces = piecesOf(flight, reading);
  await (reading.stream ? streamChat(answering, pieces) : wholeChat(answering, pieces));
  if (dispatch.end === "open") dispatch.end = isClosed() ? "closed" : "whole";
}

async function streamChat(answering: Answering, pieces: readonly Piece[]): Promise<void> {
  const { flight, dispatch, request, reply } = answering;
  const { plan } = flight.asked;
  const isClosed = () => request.closedAtMs !== null;
  const { running, final } = reportingOf(answering, pieces);
  const stop = stopAfter(answering, pieces);
  const nothing = answering.isText ? { text: "" } : { delta: {} };
  reply.head(200, { "content-type": "text/event-stream" });
  const opening = answering.isText ? nothing : { delta: { role: "assistant" } };
  await reply.write(event(answering, { choices: [{ index: 0, ...opening, finish_reason: null }] }));
  for (const [i, piece] of pieces.entries()) {
    if (isClosed()) return;
    if (stop.break === i) {
      dispatch.end = "failed";
      if (plan.ending === "cut") return reply.reset();
      await reply.write(
        `data: ${JSON.stringify({ error: { message: "out of order", type: "server_error" } })}\n\n`,
      );
      return reply.end();
    }
    note(dispatch, piece);
    const choices = [{ index: piece.choice, ...saidBy(answering, piece), finish_reason: null }];
    if (running) dispatch.reported = running;
    await reply.write(event(answering, { choices, ...(running && { usage: usageOf(running) }) }));
    if (stop.leave === i + 1) await flight.waitForLeaving("piece", isClosed);
  }
  await flight.waitForLeaving("usage", isClosed);
  if (isClosed()) return;
  const ended = [...new Set(pieces.map(({ choice }) => choice))];
  await reply.write(
    event(answering, { choices: ended.map((index) => ({ index, ...nothing, finish_reason: "stop" })) }),
  );
  if (final && answering.reading.tellsUsage) {
    dispatch.reported = final;
    await reply.write(event(answering, { choices: [], usage: usageOf(final) }));
  }
  if (plan.ending !== "no-done") await reply.write("data: [DONE]\n\n");
  await reply.end();
}

/** All pieces of each choice as one. */
export function wholePieces(pieces: readonly Piece[]): Piece[] {
  const texts = new Map<number, Piece>();
  for (const piece of pieces) {
    const text = (texts.get(piece.choice)?.text ?? "") + piece.text;
    texts.set(piece.choice, { ...piece, isFirst: true, isLast: true, text });
  }
  return [...texts.values()];
}

async function wholeChat(answering: Answering, pieces: readonly Piece[]): Promise<void> {
  const { flight, dispatch, reply, request, isText } = answering;
  const { plan } = flight.asked;
  const isClosed = () => request.closedAtMs !== null;
  const { running, final } = reportingOf(answering, pieces);
  const figures = final ?? running;
  const choices = wholePieces(pieces).map((piece) => ({
    index: piece.choice,
    ...(isText
      ? textMemberOf(plan.member, piece)
      : { message: { role: "assistant", content: null, ...memberOf(plan.member, piece, false) } }),
    finish_reason: "stop",
  }));
  const text = JSON.stringify({
    id: "chatcmpl-1",
    object: isText ? "text_completion" : "chat.completion",
    created: CREATED,
    model: dispatch.model,
    choices,
    ...(figures && { usage: usageOf(figures) }),
  });
  const half = Math.floor(text.length / 2);
  for (const piece of pieces) note(dispatch, piece);
  reply.head(200, { "content-type": "application/json" });
  await reply.write(text.slice(0, half));
  await flight.waitForLeaving("piece", isClosed);
  await flight.waitForLeaving("usage", isClosed);
  if (isClosed()) return;
  if (plan.ending === "cut") {
    dispatch.end = "failed";
    return reply.reset();
  }
  dispatch.reported = figures;
  await reply.write(text.slice(half));
  await reply.end();
}
