/** The libraries that were built into this executable. Kept light: this much is loaded before every start. */

export interface EmbeddedLibrary {
  /** The file name that the loader looks for. */
  name: string;
  sha256: string;
  bytes: number;
}

// Replaced by `bun build --compile --define NAME=value`; from source it does not exist, hence the typeof test.
declare const BROWSER_BUNDLED_LIBS: EmbeddedLibrary[] | undefined;

export function embeddedLibraries(): EmbeddedLibrary[] {
  return typeof BROWSER_BUNDLED_LIBS === "undefined" ? [] : BROWSER_BUNDLED_LIBS;
}

/** Libraries are embedded under their checksums, because a name need not be one that a bundler leaves alone. */
export const embeddedFileName = (sha256: string) => `${sha256}.bin`;
