import { createInterface } from "node:readline/promises";
import { CliError } from "./command.ts";

/** One line from the terminal, edited by the terminal itself. */
async function readLine(question: string): Promise<string> {
  const reader = createInterface({ input: process.stdin, output: process.stderr, terminal: false });
  try {
    return await reader.question(question);
  } finally {
    reader.close();
  }
}

/** Asks on the terminal; where there is none, says which option to give instead. */
export async function ask(question: string, instead: string): Promise<string> {
  if (!process.stdin.isTTY) throw new CliError(`there is no terminal to ask on; give ${instead}`);
  return (await readLine(question)).trim();
}

const echo = (on: boolean) =>
  Bun.spawnSync(["stty", on ? "echo" : "-echo"], { stdio: ["inherit", "ignore", "ignore"] });

/** Reads a secret: without showing it on a terminal, or one line of a pipe. */
export async function askSecret(question: string): Promise<string> {
  if (!process.stdin.isTTY) return (await new Response(Bun.stdin.stream()).text()).split(/\r?\n/)[0]!;
  const showAgain = () => echo(true);
  process.once("exit", showAgain);
  echo(false);
  try {
    return await readLine(question);
  } finally {
    showAgain();
    process.off("exit", showAgain);
    process.stderr.write("\n");
  }
}
