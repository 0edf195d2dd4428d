#!/usr/bin/env bun
import { runCli } from "./cli/run.ts";

// Serving goes on after the command has returned, so the code is set and not enforced.
process.exitCode = await runCli(process.argv.slice(2));
