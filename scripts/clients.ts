/**
 * `npm run clients -- install`  gets the coding agents that the grid of clients is tested with: Codex, Claude Code,
 *                               Gemini CLI and OpenCode (1.5 GB, into `.cache/clients`)
 * `npm run clients -- test`     runs the grid of clients, and the coding agents against each dialect of a backend
 * `npm run clients -- record`   the same, and records the requests of their sessions for `npm test`
 */
import "./lib/help.ts";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export const PROGRAMS = {
  "@openai/codex": "0.166.0",
  "@anthropic-ai/claude-code": "2.1.325",
  "@google/gemini-cli": "0.61.0",
  "opencode-ai": "1.18.18",
} as const;
export const folder = join(import.meta.dir, "../.cache/clients");

function fail(message: string): never {
  console.error(`clients: ${message}`);
  process.exit(1);
}

function run(command: string[], cwd?: string): void {
  const { status, error } = spawnSync(command[0]!, command.slice(1), { stdio: "inherit", cwd });
  if (status !== 0) fail(`${command.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

function install(): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, dependencies: PROGRAMS }));
  run(["npm", "install", "--no-audit", "--no-fund"], folder);
}

const test = () => run([process.execPath, join(import.meta.dir, "test.ts"), "tests/clients/grid"]);
const record = () => {
  process.env.RECORD = "1";
  test();
};

if (import.meta.main) {
  const commands: Record<string, () => void> = { install, test, record };
  const command = commands[process.argv[2] ?? ""];
  if (!command) fail(`say what to do: ${Object.keys(commands).join(", ")}`);
  command();
}
