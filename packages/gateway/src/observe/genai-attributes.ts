/** What spans tell. Most names are those of the OpenTelemetry GenAI conventions, which are still in development. */
export const SPAN = {
  operation: "gen_ai.operation.name",
  provider: "gen_ai.provider.name",
  requestModel: "gen_ai.request.model",
  responseTimeToFirstChunk: "gen_ai.response.time_to_first_chunk",
  inputTokens: "gen_ai.usage.input_tokens",
  outputTokens: "gen_ai.usage.output_tokens",
  /** Its presence marks the span as failed. */
  errorType: "error.type",
  requestId: "gateway.request.id",
  /** `gateway`, `rpc`, … as in usage rows. */
  channel: "gateway.channel",
  attempts: "gateway.attempts",
} as const;
