/** Names of the OpenTelemetry GenAI conventions, which are still in development, in one place. */
export const GEN_AI = {
  operation: "gen_ai.operation.name",
  provider: "gen_ai.provider.name",
  requestModel: "gen_ai.request.model",
  requestMaxTokens: "gen_ai.request.max_tokens",
  requestTemperature: "gen_ai.request.temperature",
  requestTopP: "gen_ai.request.top_p",
  requestStream: "gen_ai.request.stream",
  responseId: "gen_ai.response.id",
  responseModel: "gen_ai.response.model",
  responseFinishReasons: "gen_ai.response.finish_reasons",
  responseTimeToFirstChunk: "gen_ai.response.time_to_first_chunk",
  inputTokens: "gen_ai.usage.input_tokens",
  outputTokens: "gen_ai.usage.output_tokens",
  conversationId: "gen_ai.conversation.id",
} as const;

/** General conventions that go with them. */
export const OTEL = {
  /** What kind of failure; its presence marks the span as failed. */
  errorType: "error.type",
  serverAddress: "server.address",
  serverPort: "server.port",
  httpMethod: "http.request.method",
  httpRoute: "http.route",
  httpStatus: "http.response.status_code",
} as const;

export const GATEWAY = {
  requestId: "gateway.request.id",
  /** `gateway`, `rpc`, … as in usage rows. */
  channel: "gateway.channel",
  attempts: "gateway.attempts",
  usageEstimated: "gateway.usage.estimated",
} as const;
