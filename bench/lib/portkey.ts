import { freePort } from "@model-gateway/testing/services.ts";
import { installed, nodePath } from "./installed.ts";
import { startCommand, untilReady } from "./processes.ts";
import type { Target } from "./targets.ts";

const PACKAGE = { name: "@portkey-ai/gateway", version: "1.15.2", file: "build/start-server.js" };
/** Later versions of the HTTP server that it stands on break its streams: their answers' headers are immutable. */
const OVERRIDES = { "@hono/node-server": "1.14.0" };
/** Per request it takes about twenty times what the others take. */
const SHARE = 0.2;

/** Portkey's gateway as `npx` would start it, on Node; throws when it cannot be had. */
export async function startPortkey(upstreamPort: number): Promise<Target> {
  const program = installed(PACKAGE, OVERRIDES);
  const port = await freePort();
  const beganAt = performance.now();
  const { pid } = startCommand([nodePath(), program, `--port=${port}`, "--headless"]);
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
