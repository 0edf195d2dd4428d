/** Every way an operation can fail, with the HTTP status that it maps to. The message always says what to do next. */
export const errorStatus = {
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  url_blocked: 403,
  not_found: 404,
  element_not_found: 404,
  stale_ref: 404,
  method_not_allowed: 405,
  element_not_actionable: 409,
  element_covered: 409,
  page_crashed: 409,
  page_closed: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  evaluation_failed: 422,
  busy: 429,
  cancelled: 499,
  internal_error: 500,
  not_supported: 501,
  navigation_failed: 502,
  browser_unavailable: 503,
  timeout: 504,
} as const;

export type ErrorCode = keyof typeof errorStatus;

export class ToolError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "ToolError";
    this.code = code;
  }
}

export function toToolError(error: unknown): ToolError {
  if (error instanceof ToolError) return error;
  return new ToolError("internal_error", error instanceof Error ? error.message : String(error));
}
