export type ServerEvent = Record<string, unknown>;

/** The two vendors' names for the finished transcript of what the model said. */
const TRANSCRIPT_DONE = new Set(["response.output_audio_transcript.done", "response.audio_transcript.done"]);

/** The finished transcript that an upstream event brings; null for most of them. */
export function transcriptIn({ type, transcript }: ServerEvent): string | null {
  return TRANSCRIPT_DONE.has(String(type)) && typeof transcript === "string" && transcript !== ""
    ? transcript
    : null;
}
