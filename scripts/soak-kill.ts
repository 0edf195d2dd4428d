/**
 * `npm run soak:kill -- [--cycles 500] [--database sqlite|postgres]`: kills the metering under load with
 * SIGKILL, as often as asked, and ends with 0 only when no answered request lost its row, none has two, and the
 * ledger's sums hold. The ordinary tests do the same two dozen times.
 */
import "./lib/help.ts";
import { startServices } from "@model-gateway/testing/services.ts";
import { parseArgs } from "./lib/args.ts";

const CYCLES_PER_ROUND = 50;

const { values } = parseArgs({
  options: { cycles: { type: "string", default: "500" }, database: { type: "string", default: "sqlite" } },
});
const cycles = Number(values.cycles);
if (!Number.isSafeInteger(cycles) || cycles < 1) throw new Error("--cycles must be a whole number above 0");
if (values.database !== "sqlite" && values.database !== "postgres")
  throw new Error("--database must be sqlite or postgres");

const services = values.database === "postgres" ? await startServices() : null;
process.on("exit", () => services?.stop());
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(130));
Object.assign(process.env, services?.env);

// Imported only now, because the databases that exist are read from the environment.
const { freshDatabase } = await import("@model-gateway/testing/databases.ts");
const { killCycles } = await import("../packages/gateway/tests/metering/kill-cycles.ts");

let failed = false;
for (let done = 0; done < cycles; done += CYCLES_PER_ROUND) {
  const { options, drop } = await freshDatabase(values.database);
  const round = Math.min(CYCLES_PER_ROUND, cycles - done);
  const { answered, rows, problems } = await killCycles(options, round);
  await drop();
  console.log(
    `${done + round} kills: ${answered} answered, ${rows} rows, ${problems.length || "no"} problems`,
  );
  for (const problem of problems) console.log(`  ${problem}`);
  failed ||= problems.length > 0;
}
process.exit(failed ? 1 : 0);
