import { join } from "node:path";
import { buildHash } from "../../packages/gateway/src/kernel/version.ts";
import { packAssets } from "../../packages/gateway/src/transports/console/assets.ts";

export const ROOT = join(import.meta.dir, "../..");

/** A program that is handed out: as an npm package, and as one executable. */
export interface Program {
  name: string;
  description: string;
  entry: string;
  /** The page that becomes the package's README. */
  readme: string;
  /** Constants of the build. */
  defines(): Promise<Record<string, string>>;
}

export const gateway: Program = {
  name: "model-gateway",
  description: "One address for every model your team uses: gateway, console and command line",
  entry: join(ROOT, "packages/cli/src/main.ts"),
  readme: join(ROOT, "docs/cli.md"),
  defines: async () => ({
    CONSOLE_ASSETS: JSON.stringify(await packAssets()),
    BUILD_HASH: JSON.stringify(buildHash()),
  }),
};

export const browserTool: Program = {
  name: "browser-tool",
  description: "A browser for coding agents, over MCP and HTTP",
  entry: join(ROOT, "packages/browser/src/cli.ts"),
  readme: join(ROOT, "docs/browser.md"),
  defines: async () => ({}),
};
