/** What the page shows for a realtime event, under any vendor's names. */
export interface RealtimeEvent {
  type: string;
  [field: string]: unknown;
}

export const isRealtimeEvent = (event: Record<string, unknown>): event is RealtimeEvent =>
  typeof event.type === "string";

export interface Line {
  /** Speaker and item: a transcript grows by its item's pieces. */
  id: string;
  who: "you" | "model";
  text: string;
}

const LINES_MAX = 200;
const MODEL_PIECE = /^response\.((output_)?audio_transcript|(output_)?text)\.delta$/;
const MODEL_WHOLE = /^response\.((output_)?audio_transcript|(output_)?text)\.done$/;
const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);

export const audioOf = ({ type, delta }: RealtimeEvent): string | null =>
  /^response\.(output_)?audio\.delta$/.test(type) ? text(delta) : null;

export const isInterruption = ({ type }: RealtimeEvent): boolean =>
  type === "input_audio_buffer.speech_started";

/** Why the upstream ended the session. */
export const closingOf = ({ type, reason }: RealtimeEvent): string | null =>
  type === "session.closed" ? (text(reason) ?? "no reason was given") : null;

/** What an error event says; the session may well go on after it. */
export function errorOf({ type, error, message }: RealtimeEvent): string | null {
  if (type !== "error") return null;
  const told = typeof error === "object" && error !== null ? (error as { message?: unknown }).message : error;
  return text(told) ?? text(message) ?? "the model reports an error";
}

/** The lines with what the event adds: pieces grow, and a whole transcript settles its line. */
export function withWords(lines: readonly Line[], event: RealtimeEvent): readonly Line[] {
  const item = text(event.item_id) ?? text(event.response_id) ?? "";
  const put = (who: Line["who"], change: (before: string) => string): readonly Line[] => {
    const id = `${who} ${item}`;
    const known = lines.find((line) => line.id === id);
    if (known) return lines.map((line) => (line === known ? { ...line, text: change(line.text) } : line));
    return [...lines, { id, who, text: change("") }].slice(-LINES_MAX);
  };
  const piece = MODEL_PIECE.test(event.type) ? text(event.delta) : null;
  if (piece !== null) return put("model", (before) => before + piece);
  const whole = MODEL_WHOLE.test(event.type) ? (text(event.transcript) ?? text(event.text)) : null;
  if (whole !== null) return put("model", () => whole);
  const heard = event.type.endsWith("input_audio_transcription.completed") ? text(event.transcript) : null;
  return heard === null ? lines : put("you", () => heard);
}
