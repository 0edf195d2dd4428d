export type ServerEvent = Record<string, unknown>;

export type Reading =
  | { kind: "usage"; promptTokens: number; completionTokens: number }
  | { kind: "transcript"; text: string };

/** The two vendors' names for the finished transcript of what the model said. */
const TRANSCRIPT_DONE = new Set(["response.output_audio_transcript.done", "response.audio_transcript.done"]);

const count = (value: unknown): number => (typeof value === "number" && value > 0 ? Math.floor(value) : 0);

/** What an upstream event means for metering and history; null for most of them. */
export function readServerEvent(event: ServerEvent): Reading | null {
  if (event.type === "response.done") {
    const response = event.response as
      | { usage?: { input_tokens?: unknown; output_tokens?: unknown } }
      | undefined;
    return {
      kind: "usage",
      promptTokens: count(response?.usage?.input_tokens),
      completionTokens: count(response?.usage?.output_tokens),
    };
  }
  if (
    TRANSCRIPT_DONE.has(String(event.type)) &&
    typeof event.transcript === "string" &&
    event.transcript !== ""
  ) {
    return { kind: "transcript", text: event.transcript };
  }
  return null;
}
