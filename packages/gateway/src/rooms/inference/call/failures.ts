import { Reply } from "@model-gateway/wire/http";
import { BackendError, type Overflow } from "../../../backends/contract.ts";
import { type ErrorName, ServiceError } from "../../../kernel/errors.ts";
import { BUSY_RETRY_SECONDS } from "../../routing/index.ts";
import { Revocation } from "./deadlines.ts";

export function toFailure(error: unknown, headers?: Readonly<Record<string, string>>): unknown {
  // A refusal of ours, such as that another backend costs more than the payer has.
  if (error instanceof ServiceError && headers)
    return Object.assign(error, { headers: { ...headers, ...error.headers } });
  if (!(error instanceof BackendError)) return error;
  const { message, kind, retryAfterSeconds, status } = error;
  const common = { headers, cause: error };
  if (error instanceof Revocation) return new ServiceError("auth_required", message, common);
  if (kind === "request") return new ServiceError("missing_fields", message, common);
  if (kind === "unsupported") return new ServiceError("backend_error", message, common);
  if (kind === "busy")
    return new ServiceError("busy", `${message}; try again`, {
      ...common,
      retryAfterSeconds: BUSY_RETRY_SECONDS,
    });
  const rest = status === undefined ? undefined : { upstream: upstreamMember(error) };
  return new ServiceError("bad_gateway", message, { ...common, retryAfterSeconds, rest });
}

/** `error.upstream`: the upstream's own refusal, for programs. */
function upstreamMember(error: BackendError) {
  const { status, refusal } = error;
  const overflow = refusal?.overflow;
  return {
    status,
    type: refusal?.type ?? null,
    code: overflow ? OVERFLOW_CODE : (refusal?.code ?? null),
    param: refusal?.param ?? null,
    ...(overflow && { prompt_tokens: overflow.promptTokens, context_tokens: overflow.contextTokens }),
  };
}

const OVERFLOW_CODE = "context_length_exceeded";

/** Statuses that refuse the request itself; the client may see them as they are. */
const PASSED: ReadonlyMap<number | undefined, ErrorName> = new Map([
  [400, "upstream_bad_request"],
  [404, "upstream_not_found"],
  [413, "upstream_too_large"],
  [415, "upstream_unsupported"],
  [422, "upstream_unprocessable"],
]);

/** The failure with the upstream's own status and message, if the upstream refused the request itself. */
export function asUpstreamSaid(failure: ServiceError): ServiceError {
  const { cause } = failure;
  if (!(cause instanceof BackendError) || cause.kind !== "upstream") return failure;
  const kind = PASSED.get(cause.status);
  if (!kind) return failure;
  const { refusal, detail } = cause;
  const overflow = refusal?.overflow;
  const upstream = upstreamMember(cause);
  const rest = {
    type: (!overflow && refusal?.type) || "invalid_request_error",
    param: refusal?.param ?? (overflow ? "messages" : null),
    code: upstream.code,
    upstream,
  };
  const message = overflow ? overflowWords(overflow, detail) : detail;
  const { headers } = failure;
  return new ServiceError(kind, message, { rest, headers, cause, data: overflow ? { overflow } : undefined });
}

/** Refusals about the operator's account with the vendor, which clients should not see. */
const OPERATORS_OWN: ReadonlySet<number> = new Set([401, 402, 403]);

/** The vendor's own refusal of a request that was passed verbatim; null when the client must not see one. */
export function nativeRefusal({ cause, headers }: ServiceError, requestId: string): Reply | null {
  if (!(cause instanceof BackendError) || !cause.answer || cause.status === undefined) return null;
  if (OPERATORS_OWN.has(cause.status)) return null;
  const { body, contentType, headers: own } = cause.answer;
  return new Reply({ status: cause.status, contentType, requestId, headers: { ...headers, ...own } }, body);
}

/** OpenAI's wording, which client libraries look for. */
function overflowWords({ promptTokens, contextTokens }: Overflow, detail: string): string {
  if (promptTokens === null || contextTokens === null) return detail;
  return `This model's maximum context length is ${contextTokens} tokens. However, your messages resulted in ${promptTokens} tokens.`;
}

/** Whether another target of a model route may succeed. A malformed request fails everywhere. */
export function mayFallBack(error: unknown): boolean {
  if (!(error instanceof BackendError) || ["request", "too_large"].includes(error.kind)) return false;
  if (error.refusal?.overflow) return true;
  return error.kind !== "upstream" || !UNACCEPTABLE.has(error.status ?? 0);
}

const UNACCEPTABLE = new Set([400, 413, 415, 422]);
