/** Why a browser could not be found, fetched, loaded or bundled; each one is explained in docs/browser-binaries.md. */
export const setupErrorCodes = [
  "invalid_setting",
  "override_unusable",
  "browser_not_found",
  "feature_disabled",
  "platform_unsupported",
  "download_skipped",
  "download_failed",
  "download_timeout",
  "checksum_mismatch",
  "archive_invalid",
  "cache_unusable",
  "engine_library_missing",
  "engine_library_invalid",
  "engine_abi_mismatch",
  "engine_create_failed",
  "bundle_invalid",
  "binary_invalid",
] as const;

export type SetupErrorCode = (typeof setupErrorCodes)[number];

interface SetupErrorDetails {
  /** The way out, as one or more full sentences. */
  wayOut: string;
  cause?: unknown;
}

/** The message says what happened and then what to do about it. */
export class SetupError extends Error {
  readonly wayOut: string;

  constructor(
    readonly code: SetupErrorCode,
    what: string,
    details: SetupErrorDetails,
  ) {
    super(`${what} ${details.wayOut}`, { cause: details.cause });
    this.name = "SetupError";
    this.wayOut = details.wayOut;
  }
}

export function isErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && codes.includes((error as NodeJS.ErrnoException).code ?? "");
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
