import { type Answering, note, type Piece, piecesOf, reportingOf, stopAfter } from "./chat.ts";
import type { Figures } from "./usage.ts";

/** Ollama knows three members for what a model says. */
function messageOf({ flight }: Answering, { text }: Piece): Record<string, unknown> {
  const { member } = flight.asked.plan;
  const head = { role: "assistant", content: "" };
  if (member === "tool_calls")
    return { ...head, tool_calls: [{ function: { name: "look_up", arguments: { a: text } } }] };
  if (member === "thinking" || member.startsWith("reasoning")) return { ...head, thinking: text };
  return { ...head, content: text };
}

const line = (model: string, message: Record<string, unknown>, rest: Record<string, unknown> = {}) =>
  `${JSON.stringify({ model, created_at: "2026-11-15T12:00:00Z", message, done: false, ...rest })}\n`;

/** Zero counts are left out, as the real one does. */
const counts = (figures: Figures | null) => ({
  ...(figures?.prompt ? { prompt_eval_count: figures.prompt } : {}),
  ...(figures?.completion ? { eval_count: figures.completion } : {}),
});

/** Counts that are left out were not reported. */
const told = (figures: Figures | null): Figures | null =>
  figures?.prompt || figures?.completion ? figures : null;

/** Answers as Ollama's own API does: lines of JSON, the counts in the last one. */
export async function answerOllama(answering: Answering): Promise<void> {
  const { flight, dispatch, reading, request, reply } = answering;
  const { plan } = flight.asked;
  const isClosed = () => request.closedAtMs !== null;
  await flight.waitForLeaving("dispatch", isClosed);
  if (plan.ending === "refuse" || plan.ending === "fail") {
    dispatch.end = "failed";
    return reply.json({ error: "not today" }, plan.ending === "refuse" ? 400 : 500);
  }
  const pieces = piecesOf(flight, reading);
  const { final } = reportingOf(answering, pieces);
  const stop = stopAfter(answering, pieces);
  const done = { done: true, done_reason: "stop", total_duration: 1, ...counts(final) };
  reply.head(200, { "content-type": "application/x-ndjson" });
  if (!reading.stream) {
    for (const piece of pieces) note(dispatch, piece);
    const whole = { ...pieces[0]!, text: pieces.map(({ text }) => text).join("") };
    await flight.waitForLeaving("piece", isClosed);
    await flight.waitForLeaving("usage", isClosed);
    if (isClosed()) return endOf(answering);
    dispatch.reported = told(final);
    await reply.write(line(dispatch.model, messageOf(answering, whole), done));
    await reply.end();
    return endOf(answering);
  }
  for (const [i, piece] of pieces.entries()) {
    if (isClosed()) return endOf(answering);
    if (stop.break === i) {
      dispatch.end = "failed";
      if (plan.ending === "cut") return reply.reset();
      await reply.write(`${JSON.stringify({ error: "out of order" })}\n`);
      return reply.end();
    }
    note(dispatch, piece);
    await reply.write(line(dispatch.model, messageOf(answering, piece)));
    if (stop.leave === i + 1) await flight.waitForLeaving("piece", isClosed);
  }
  await flight.waitForLeaving("usage", isClosed);
  if (!isClosed()) {
    dispatch.reported = told(final);
    await reply.write(line(dispatch.model, { role: "assistant", content: "" }, done));
    // After it the gateway need not wait for the end of the connection.
    dispatch.end = "whole";
    await reply.end();
  }
  endOf(answering);
}

function endOf({ dispatch, request }: Answering): void {
  if (dispatch.end === "open") dispatch.end = request.closedAtMs === null ? "whole" : "closed";
}
