/**
 * Imported first by every script: `--help` prints the comment that the script begins with and ends there, before
 * anything is started. So what a script says about itself is written once.
 */
import { readFileSync } from "node:fs";

const asksHelp = process.argv.slice(2).some((word) => word === "--help" || word === "-h");
const comment = asksHelp ? /^\/\*\*([\s\S]*?)\*\//.exec(readFileSync(Bun.main, "utf8"))?.[1] : undefined;
if (comment !== undefined) {
  process.stdout.write(`${comment.replace(/^[ \t]*\*? ?/gm, "").trim()}\n`);
  process.exit(0);
}
