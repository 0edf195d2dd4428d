/**
 * `npm run soak:workers -- [--kills 30] [--workers 2]`: a service of several workers on one embedded database under
 * load, of which one process after the other is killed with SIGKILL, every third time the supervisor. Ends with 0 only
 * when no answered request lost its row, none has two, and the ledger's sums hold.
 */
import "./lib/help.ts";
import { killWorkers, openWorkers } from "../tests/cluster/support/workers.ts";
import { parseArgs } from "./lib/args.ts";

const { values } = parseArgs({
  options: { kills: { type: "string", default: "30" }, workers: { type: "string", default: "2" } },
});
const kills = Number(values.kills);
const workers = Number(values.workers);
if (!Number.isSafeInteger(kills) || kills < 1) throw new Error("--kills must be a whole number above 0");
if (!Number.isSafeInteger(workers) || workers < 2)
  throw new Error("--workers must be a whole number above 1");

const stage = await openWorkers(workers, { SERVICE_DRAIN_TIMEOUT_MS: "1000" });
const { answered, rows, problems } = await killWorkers(stage, kills).finally(() => stage.end());
console.log(`${kills} kills: ${answered} answered, ${rows} rows, ${problems.length || "no"} problems`);
for (const problem of problems) console.log(`  ${problem}`);
process.exit(problems.length > 0 ? 1 : 0);
