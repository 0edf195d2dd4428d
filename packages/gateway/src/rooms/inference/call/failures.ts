import { BackendError } from "../../../backends/contract.ts";
import { ServiceError } from "../../../kernel/errors.ts";
import type { Route } from "../../routing/index.ts";

/** Statuses below 500 that say something about the backend rather than about the request. */
const BACKEND_AT_FAULT = new Set([401, 408, 429]);

/** Failures before anything was sent; they say nothing about the backend. */
const OURS: ReadonlySet<string> = new Set(["request", "unsupported"]);

/** The caller's error for a backend's failure. */
export function toFailure(error: unknown): unknown {
  if (!(error instanceof BackendError)) return error;
  const { message, kind, retryAfterSeconds } = error;
  if (kind === "request") return new ServiceError("missing_fields", message, { cause: error });
  if (kind === "unsupported") return new ServiceError("backend_error", message, { cause: error });
  return new ServiceError("bad_gateway", message, { retryAfterSeconds, cause: error });
}

/** Whether a retry could help: an upstream that understood and refused will refuse again. */
export function isFinal(error: unknown): boolean {
  const cause = error instanceof ServiceError ? error.cause : error;
  if (!(cause instanceof BackendError) || cause.kind !== "upstream" || cause.status === undefined)
    return false;
  return cause.status < 500 && !BACKEND_AT_FAULT.has(cause.status) && cause.status !== 409;
}

/** Reports a call's outcome to the circuit breaker. A refusal of the request itself counts as a success. */
export function reportTo(route: Route, error: unknown): void {
  if (!(error instanceof BackendError) || OURS.has(error.kind)) route.abandoned();
  else if (isFinal(error)) route.succeeded();
  else route.failed(error.message);
}
