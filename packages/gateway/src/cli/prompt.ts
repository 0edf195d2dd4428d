import { createInterface } from "node:readline/promises";
import { CliError } from "./command.ts";

/** Asks on the terminal; where there is none, says which option to give instead. */
export async function ask(question: string, instead: string): Promise<string> {
  if (!process.stdin.isTTY) throw new CliError(`there is no terminal to ask on; give ${instead}`);
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return (await reader.question(question)).trim();
  } finally {
    reader.close();
  }
}

const CONTROL_C = "\x03";
const ERASE = new Set(["\x7f", "\b"]);

/** Reads a secret: without showing it on a terminal, or one line of a pipe. */
export async function askSecret(question: string): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) return (await new Response(Bun.stdin.stream()).text()).split(/\r?\n/)[0]!;
  stderr.write(question);
  stdin.setRawMode(true);
  stdin.resume();
  let typed = "";
  try {
    for await (const chunk of stdin) {
      for (const letter of String(chunk)) {
        if (letter === CONTROL_C) throw new CliError("given up");
        if (letter === "\r" || letter === "\n") return typed;
        if (ERASE.has(letter)) typed = typed.slice(0, -1);
        else typed += letter;
      }
    }
    return typed;
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write("\n");
  }
}
