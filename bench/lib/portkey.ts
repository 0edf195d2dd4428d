import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { startCommand, untilReady } from "./processes.ts";
import type { Target } from "./targets.ts";

const VERSION = "1.15.2";
const INSTALL_WITHIN_MS = 120_000;
/** Per request it takes about twenty times what the others take. */
const SHARE = 0.2;

/** Later versions of the HTTP server that it stands on break its streams: their answers' headers are immutable. */
const MANIFEST = {
  private: true,
  dependencies: { "@portkey-ai/gateway": VERSION },
  overrides: { "@hono/node-server": "1.14.0" },
};

/** Outside the project: it is something to compare with and nothing that the project needs. */
const home = join(
  process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"),
  `model-gateway-bench/portkey-${VERSION}`,
);
const program = join(home, "node_modules/@portkey-ai/gateway/build/start-server.js");

function install(): void {
  if (existsSync(program)) return;
  console.log(`installing @portkey-ai/gateway ${VERSION} into ${home}`);
  mkdirSync(home, { recursive: true });
  writeFileSync(join(home, "package.json"), JSON.stringify(MANIFEST));
  const { exitCode, stderr } = Bun.spawnSync(
    ["npm", "install", "--prefix", home, "--ignore-scripts", "--no-audit", "--no-fund"],
    { timeout: INSTALL_WITHIN_MS, stderr: "pipe" },
  );
  if (exitCode === 0) return;
  console.error(stderr.toString().trim());
  throw new Error("npm could not install it");
}

/** Portkey's gateway as `npx` would start it, on Node; throws when it cannot be had. */
export async function startPortkey(upstreamPort: number): Promise<Target> {
  const node = Bun.which("node");
  if (!node) throw new Error("it needs node");
  install();
  const port = await freePort();
  const beganAt = performance.now();
  const { pid } = startCommand([node, program, `--port=${port}`, "--headless"]);
  await untilReady("Portkey's gateway", async () => (await fetch(`http://127.0.0.1:${port}/`)).ok);
  return {
    peer: "portkey",
    pid,
    port,
    key: "none",
    headers: `x-portkey-provider: openai\r\nx-portkey-custom-host: http://127.0.0.1:${upstreamPort}/v1\r\n`,
    share: SHARE,
    startedMs: performance.now() - beganAt,
  };
}
