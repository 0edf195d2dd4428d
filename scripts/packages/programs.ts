import { join } from "node:path";
import { buildHash } from "../../packages/gateway/src/kernel/version.ts";
import { packAssets } from "../../packages/gateway/src/transports/console/assets.ts";

export const ROOT = join(import.meta.dir, "../..");

interface ProgramWorker {
  entry: string;
  /** Its name beside the program, in an npm package. */
  file: string;
  /** What all entries of an executable have in common is left out of their paths. */
  pathInExecutable: string;
  /** The constant of the build that says where it is, from the program. */
  constant: string;
}

/** A program that is handed out: as an npm package, and as one executable. */
export interface Program {
  name: string;
  description: string;
  entry: string;
  /** Code of threads and of processes that it starts, which is loaded by its path: nothing imports it. */
  workers: readonly ProgramWorker[];
  /** The page that becomes the package's README. */
  readme: string;
  /** Constants of the build. */
  defines(): Promise<Record<string, string>>;
}

export const gateway: Program = {
  name: "model-gateway",
  description: "One address for every model your team uses: gateway, console and command line",
  entry: join(ROOT, "packages/cli/src/main.ts"),
  workers: [
    {
      entry: join(ROOT, "packages/gateway/src/app/journal-thread/worker.ts"),
      file: "settling-worker.js",
      pathInExecutable: "./gateway/src/app/journal-thread/worker.ts",
      constant: "SETTLING_WORKER",
    },
    {
      entry: join(ROOT, "packages/gateway/src/storage/sqlite/reports-worker.ts"),
      file: "reports-worker.js",
      pathInExecutable: "./gateway/src/storage/sqlite/reports-worker.ts",
      constant: "REPORTS_WORKER",
    },
  ],
  readme: join(ROOT, "docs/cli.md"),
  defines: async () => ({
    CONSOLE_ASSETS: JSON.stringify(await packAssets()),
    BUILD_HASH: JSON.stringify(buildHash()),
  }),
};

export const nodeProgram: Program = {
  name: "model-agent",
  description: "Serves models of a GPU machine for the model gateway",
  entry: join(ROOT, "packages/agent/src/main.ts"),
  workers: [
    {
      entry: join(ROOT, "packages/agent/src/guard/main.ts"),
      file: "engine-guard.js",
      pathInExecutable: "./agent/src/guard/main.ts",
      constant: "ENGINE_GUARD",
    },
  ],
  readme: join(ROOT, "docs/agent-node.md"),
  defines: async () => ({}),
};

export const browserTool: Program = {
  name: "browser-tool",
  description: "A browser for coding agents, over MCP and HTTP",
  entry: join(ROOT, "packages/browser/src/cli.ts"),
  workers: [],
  readme: join(ROOT, "docs/browser.md"),
  defines: async () => ({}),
};
