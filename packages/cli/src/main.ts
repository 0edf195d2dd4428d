#!/usr/bin/env bun
import { runCli } from "./run.ts";

// The reader of our output may close the pipe early, e.g. `head`.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(0);
});

// Serving goes on after the command has returned, so the code is set and not enforced.
process.exitCode = await runCli(process.argv.slice(2));
