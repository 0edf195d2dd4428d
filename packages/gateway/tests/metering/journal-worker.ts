/** A process to be killed: appends rows to a journal and prints the id of each one once it stands there. */
import { writeSync } from "node:fs";
import { entry, open } from "./journal-support.ts";

const STDOUT = 1;
const [dir, rows] = [process.argv[2]!, Number(process.argv[3])];
const journal = open(dir);
for (let n = 0; n < rows; n++) {
  const one = entry({ requestId: Bun.randomUUIDv7() });
  journal.append(one);
  writeSync(STDOUT, `${one.requestId}\n`);
}
writeSync(STDOUT, `${JSON.stringify({ ...journal.backlog, lost: journal.lost })}\n`);
process.kill(process.pid, "SIGKILL");
