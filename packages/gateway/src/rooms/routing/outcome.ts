import { BackendError, isOverloaded } from "../../backends/contract.ts";
import { ServiceError } from "../../kernel/errors.ts";
import type { Route } from "./router.ts";

/** Statuses below 500 that say something about the backend rather than about the request. */
const BACKEND_AT_FAULT = new Set([401, 408, 429]);

/** Failures that say nothing about whether the backend works. */
const NOT_ABOUT_BACKEND: ReadonlySet<string> = new Set(["request", "unsupported", "mismatch", "gone"]);
/** A backend that has no such feature says so about the request, though its status is above 499. */
const NOT_IMPLEMENTED = 501;

/** Whether a retry could help: an upstream that understood and refused will refuse again. */
export function isFinal(error: unknown): boolean {
  const cause = error instanceof ServiceError ? error.cause : error;
  if (!(cause instanceof BackendError) || cause.kind !== "upstream" || cause.status === undefined)
    return false;
  const { status } = cause;
  if (status === NOT_IMPLEMENTED) return true;
  return status < 500 && !BACKEND_AT_FAULT.has(status) && status !== 409;
}

/** Tells the circuit how a call ended. A refusal of the request itself is an answer like any other. */
export function reportTo(route: Route, error: unknown): void {
  if (!(error instanceof BackendError) || NOT_ABOUT_BACKEND.has(error.kind)) route.abandoned();
  else if (error.kind === "busy") route.full();
  else if (isOverloaded(error)) route.abandoned();
  else if (isFinal(error)) route.succeeded();
  else {
    const { kind, message: cause } = error;
    route.failed({ cause, isAnswered: kind === "upstream", isUnreached: kind === "connect" });
  }
}
