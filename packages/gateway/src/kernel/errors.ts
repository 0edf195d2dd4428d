import { BadRequest, JSON_TYPE, Reply } from "@model-gateway/wire/http";

const PLAIN_TYPE = "text/plain; charset=utf-8";

interface ErrorKind {
  rpc: number;
  status: number;
  type: string;
  code: string;
}

const app = (status: number, type: string, code: string): ErrorKind => ({ rpc: -32000, status, type, code });
const invalid = (code: string): ErrorKind => ({ rpc: -32602, status: 400, type: "invalid_request", code });

/** Every error of the service. Code throws `fail("name", …)`; only transports turn it into an answer. */
export const ERRORS = {
  parse_error: { rpc: -32700, status: 400, type: "invalid_request", code: "parse_error" },
  invalid_request: { rpc: -32600, status: 400, type: "invalid_request", code: "invalid_request" },
  method_not_found: { rpc: -32601, status: 404, type: "invalid_request", code: "method_not_found" },
  // The contract's REST code for malformed fields that have no code of their own.
  invalid_params: { rpc: -32602, status: 400, type: "invalid_request", code: "missing_fields" },
  internal: { rpc: -32603, status: 500, type: "server_error", code: "internal_error" },
  auth_required: { rpc: -32005, status: 401, type: "auth_error", code: "unauthorized" },
  admin_token_required: { rpc: -32005, status: 401, type: "auth_error", code: "unauthorized" },
  admin_required: { rpc: -32007, status: 403, type: "auth_error", code: "admin_required" },
  quota_exceeded: { rpc: -32006, status: 429, type: "quota_error", code: "quota_exceeded" },
  payment_required: { rpc: -32006, status: 402, type: "insufficient_credits", code: "payment_required" },
  rate_limited: { rpc: -32000, status: 429, type: "rate_limit_error", code: "rate_limit_exceeded" },

  missing_fields: invalid("missing_fields"),
  missing_index: invalid("missing_index"),
  missing_alias: invalid("missing_alias"),
  missing_target: invalid("missing_target"),
  bad_id: invalid("bad_id"),
  bad_group_by: invalid("bad_group_by"),
  bad_since: invalid("bad_since"),
  bad_until: invalid("bad_until"),
  unknown_type: invalid("unknown_type"),
  body_too_large: { rpc: -32600, status: 413, type: "invalid_request", code: "body_too_large" },
  unsupported_media_type: app(415, "invalid_request", "unsupported_media_type"),

  app_error: app(400, "invalid_request", "app_error"),
  conflict: app(409, "invalid_request", "conflict"),
  forbidden: app(403, "auth_error", "forbidden"),
  route_not_found: app(404, "invalid_request", "not_found"),
  method_not_allowed: app(405, "invalid_request", "method_not_allowed"),
  not_found: app(404, "invalid_request", "not_found"),
  conversation_forbidden: app(403, "auth_error", "conversation_forbidden"),
  conversation_not_found: app(404, "invalid_request", "conversation_not_found"),
  model_not_allowed: app(403, "auth_error", "model_not_allowed"),
  model_unpriced: app(403, "invalid_request", "model_unpriced"),
  model_not_found: app(404, "invalid_request_error", "model_not_found"),
  no_job: app(404, "not_found", "no_job"),
  backend_error: app(500, "server_error", "backend_error"),
  // All backends are at their concurrency limit.
  busy: app(429, "rate_limit_error", "backend_busy"),
  all_unhealthy: app(500, "server_error", "internal_error"),
  bad_gateway: app(502, "server_error", "bad_gateway"),
  // Refused by an upstream, on surfaces that pass its status on.
  upstream_bad_request: app(400, "invalid_request_error", "invalid_request"),
  upstream_not_found: app(404, "invalid_request_error", "not_found"),
  upstream_too_large: app(413, "invalid_request_error", "request_too_large"),
  upstream_unsupported: app(415, "invalid_request_error", "unsupported_media_type"),
  upstream_unprocessable: app(422, "invalid_request_error", "unprocessable"),
  bridge_unreachable: app(502, "server_error", "bridge_unreachable"),
  no_video_backend: app(503, "video_backend_error", "no_backend"),
  unavailable: app(503, "server_error", "unavailable"),
} as const satisfies Record<string, ErrorKind>;

export type ErrorName = keyof typeof ERRORS;

/** The error for an invalid value: one for all fields, or one per field, where "" stands for the value itself. */
export type FieldErrors = ErrorName | { readonly [field: string]: ErrorName };

interface FailOptions {
  /** Machine-readable addition: `error.data` on RPC. */
  data?: Record<string, unknown>;
  /** Sent as `Retry-After` on REST and as `data.retry_after` on RPC. */
  retryAfterSeconds?: number;
  /** Added to REST's `error`, or replacing its members. */
  rest?: Record<string, unknown>;
  headers?: Readonly<Record<string, string>>;
  cause?: unknown;
}

export class ServiceError extends Error {
  readonly data?: Record<string, unknown>;
  readonly retryAfterSeconds?: number;
  readonly rest?: Record<string, unknown>;
  readonly headers?: Readonly<Record<string, string>>;
  constructor(
    readonly kind: ErrorName,
    message: string,
    options: FailOptions = {},
  ) {
    super(message, { cause: options.cause });
    this.name = "ServiceError";
    this.data = options.data;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.rest = options.rest;
    this.headers = options.headers;
  }
}

/** An API key is refused or rate limited: plain text by contract, unlike all other REST errors. */
export class KeyRefusal extends ServiceError {}

export function fail(kind: ErrorName, message: string, options?: FailOptions): never {
  throw new ServiceError(kind, message, options);
}

export const failField = (field: string, problem: string): never =>
  fail("missing_fields", `\`${field}\` ${problem}`, { data: { fields: [field] } });

export const failParam = (name: string, problem: string, kind: ErrorName = "invalid_params"): never =>
  fail(kind, `\`${name}\`: ${problem}`, { data: { fields: [name] } });

export class Outage extends Error {}

const OUTAGE_RETRY_SECONDS = 5;

/** What the caller may see of a thrown value; unexpected errors become a neutral message. */
export function toServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error;
  if (error instanceof BadRequest)
    return new ServiceError(error.status === 413 ? "body_too_large" : "invalid_request", error.message);
  if (error instanceof Outage)
    return new ServiceError("unavailable", "The database cannot be used right now; try again shortly", {
      retryAfterSeconds: OUTAGE_RETRY_SECONDS,
      cause: error,
    });
  return new ServiceError(
    "internal",
    "Internal error; the server's log has the details under this request id",
    { cause: error },
  );
}

export const isOurs = ({ kind, cause }: ServiceError): boolean =>
  kind === "internal" || cause instanceof Outage;

export function toRpcError(error: ServiceError) {
  const { retryAfterSeconds } = error;
  const data =
    retryAfterSeconds === undefined ? error.data : { ...error.data, retry_after: retryAfterSeconds };
  return { code: ERRORS[error.kind].rpc, message: error.message, ...(data && { data }) };
}

export function toRestBody(error: ServiceError): { error: { message: string; type: string; code: string } } {
  const { type, code } = ERRORS[error.kind];
  return { error: { message: error.message, type, code, ...error.rest } };
}

export function toRestReply(
  error: ServiceError,
  requestId: string,
  more: Record<string, string> = {},
): Reply {
  const { kind, retryAfterSeconds } = error;
  const { status } = ERRORS[kind];
  const headers = {
    ...error.headers,
    ...more,
    ...(retryAfterSeconds !== undefined && { "retry-after": String(retryAfterSeconds) }),
  };
  if (error instanceof KeyRefusal)
    return new Reply({ status, contentType: PLAIN_TYPE, requestId, headers }, error.message);
  const head = { status, contentType: JSON_TYPE, requestId, headers };
  return new Reply(head, JSON.stringify(toRestBody(error)));
}
