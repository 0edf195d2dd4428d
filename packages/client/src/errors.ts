/** The JSON-RPC codes that callers branch on. */
export const RPC_CODE = {
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  application: -32000,
  authentication: -32005,
  quota: -32006,
  adminRequired: -32007,
} as const;

/** A JSON-RPC call that the service answered with an error. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  constructor(
    readonly method: string,
    readonly code: number,
    message: string,
    readonly data?: Record<string, unknown>,
  ) {
    super(message);
  }

  get retryAfterSeconds(): number | null {
    const value = this.data?.retry_after;
    return typeof value === "number" ? value : null;
  }
}

export interface RestErrorDetails {
  status: number;
  type: string;
  code: string;
  retryAfterSeconds: number | null;
  requestId: string | null;
}

/** A REST call that the service answered with an error status, or a stream that carried one. */
export class RestError extends Error {
  override readonly name = "RestError";
  readonly status: number;
  readonly type: string;
  readonly code: string;
  readonly retryAfterSeconds: number | null;
  readonly requestId: string | null;
  constructor(message: string, details: RestErrorDetails) {
    super(message);
    this.status = details.status;
    this.type = details.type;
    this.code = details.code;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.requestId = details.requestId;
  }
}

/** The service could not be reached, or the connection broke. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

const ERROR_TEXT_LENGTH_MAX = 500;

/** The error of a response that is not 2xx: the JSON shape, or the plain text of the early refusals. */
export async function restErrorOf(response: Response): Promise<RestError> {
  const text = await response.text().catch(() => "");
  let body: { error?: { message?: string; type?: string; code?: string } } = {};
  try {
    body = JSON.parse(text) as typeof body;
  } catch {
    // Refusals before the handler are plain text; the text itself is the message then.
  }
  const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
  const message = body.error?.message ?? text.trim().slice(0, ERROR_TEXT_LENGTH_MAX);
  return new RestError(message || `HTTP ${response.status}`, {
    status: response.status,
    type: body.error?.type ?? "http_error",
    code: body.error?.code ?? String(response.status),
    retryAfterSeconds: Number.isNaN(retryAfter) ? null : retryAfter,
    requestId: response.headers.get("x-request-id"),
  });
}

export const isAbort = (error: unknown): boolean => error instanceof Error && error.name === "AbortError";
