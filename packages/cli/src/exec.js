#!/usr/bin/env node
// `exec` for the one shell that has none, Windows' cmd. The scripts in package.json say `exec bun …`, so that a shell
// gives its place to the service and signals to npm reach it. Every other shell has the command built in and never
// comes here.
import { spawn } from "node:child_process";

const [command, ...args] = process.argv.slice(2);
// Programs of npm packages are .cmd files there, which only a shell starts.
const child = spawn(command, args, { stdio: "inherit", shell: true });
child.on("exit", (code) => process.exit(code ?? 1));
