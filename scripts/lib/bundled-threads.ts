/**
 * Loaded by scripts/test.ts into its test processes: the service's threads run their code in one file with bytecode, as
 * in the packages that are handed out. Every service that a test boots starts such a thread, and loading its hundred
 * source files takes four times as long.
 */
import { fileURLToPath } from "node:url";

/** By the path of the source. */
const bundles: Record<string, string> = JSON.parse(process.env.TEST_BUNDLED_THREADS ?? "{}");
const pathOf = (code: string | URL) =>
  String(code).startsWith("file:") ? fileURLToPath(code) : String(code);

globalThis.Worker = class extends Worker {
  constructor(code: string | URL, options?: WorkerOptions) {
    super(bundles[pathOf(code)] ?? code, options);
  }
};
