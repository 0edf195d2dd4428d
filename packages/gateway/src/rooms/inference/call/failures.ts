import { BackendError } from "../../../backends/contract.ts";
import { ServiceError } from "../../../kernel/errors.ts";
import type { Route } from "../../routing/index.ts";

/** Statuses below 500 that say something about the backend rather than about the request. */
const BACKEND_AT_FAULT = new Set([401, 408, 429]);

/** Failures that say nothing about whether the backend works. */
const NOT_ABOUT_BACKEND: ReadonlySet<string> = new Set(["request", "unsupported", "mismatch"]);
/** "Not implemented" is said about a request, whatever its number. */
const NOT_IMPLEMENTED = 501;

/** What the caller is told about a backend's failure. */
export function toFailure(error: unknown): unknown {
  if (!(error instanceof BackendError)) return error;
  const { message, kind, retryAfterSeconds } = error;
  if (kind === "request") return new ServiceError("missing_fields", message, { cause: error });
  if (kind === "unsupported") return new ServiceError("backend_error", message, { cause: error });
  return new ServiceError("bad_gateway", message, { retryAfterSeconds, cause: error });
}

/** Whether asking again could help: an upstream that understood and refused will refuse again. */
export function isFinal(error: unknown): boolean {
  const cause = error instanceof ServiceError ? error.cause : error;
  if (!(cause instanceof BackendError) || cause.kind !== "upstream" || cause.status === undefined)
    return false;
  const { status } = cause;
  if (status === NOT_IMPLEMENTED) return true;
  return status < 500 && !BACKEND_AT_FAULT.has(status) && status !== 409;
}

/** Tells the circuit how a call ended. A refusal of the request itself is an answer like any other. */
export function reportTo(route: Route, error: unknown, body?: () => Uint8Array | string): void {
  if (!(error instanceof BackendError) || NOT_ABOUT_BACKEND.has(error.kind)) route.abandoned();
  else if (isFinal(error)) route.succeeded();
  else {
    const isUnreached = error.kind === "connect";
    const isAboutAny = isUnreached || BACKEND_AT_FAULT.has(error.status ?? 0);
    route.failed({ cause: error.message, isUnreached, body: isAboutAny ? undefined : body });
  }
}
