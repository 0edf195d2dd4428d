import { isObject } from "../../kernel/json.ts";

export type ServerEvent = Record<string, unknown>;

const ENDED = /^response\.(completed|failed|incomplete|cancelled)$/;

/** The status of a response that the event ends; null for all others. */
export function endIn({ type, response }: ServerEvent): string | null {
  const { status, usage } = isObject(response) ? response : {};
  if (type === "response.done") return String(status);
  // Others end it only where they bring its usage: `response.done` may follow.
  return (isObject(usage) && ENDED.exec(String(type))?.[1]) || null;
}

/** The two vendors' names for the finished transcript of what the model said. */
const TRANSCRIPT_DONE = new Set(["response.output_audio_transcript.done", "response.audio_transcript.done"]);

/** The finished transcript that an upstream event brings; null for most of them. */
export function transcriptIn({ type, transcript }: ServerEvent): string | null {
  return TRANSCRIPT_DONE.has(String(type)) && typeof transcript === "string" && transcript !== ""
    ? transcript
    : null;
}
