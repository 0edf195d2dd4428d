#!/usr/bin/env bun
import { serve } from "./service/serve.ts";

const [name, ...words] = process.argv.slice(2);

/** Every command but the service itself, which starts sooner without them. */
async function runOther(): Promise<void> {
  // The reader of our output may close the pipe early, e.g. `head`.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(0);
  });
  const { runCli } = await import("./run.ts");
  process.exitCode = await runCli(process.argv.slice(2));
}

// Not awaited at the top level, which bundles with bytecode cannot do.
void (name === serve.name ? serve.run({ words }) : runOther());
