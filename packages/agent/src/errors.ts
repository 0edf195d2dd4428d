/** What went wrong, in one line that an operator can act on. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function errorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/** A mistake in flags, configuration or a request: shown as it is, without a stack. */
export class UsageError extends Error {
  override name = "UsageError";
}
