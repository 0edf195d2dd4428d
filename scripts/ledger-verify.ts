/**
 * `npm run ledger:verify [-- --json]`: recomputes every balance of the points ledger from its entries and says
 * what does not match. Reads the same environment as the service, which may be running. Exit status: 0 all
 * in order, 1 something does not match, 2 it could not be checked.
 */
import "./lib/help.ts";
import { readConfig } from "../packages/gateway/src/config.ts";
import { verifyLedger } from "../packages/gateway/src/rooms/ledger/index.ts";
import { openUsedDatabase } from "../packages/gateway/src/storage/index.ts";

async function main(): Promise<number> {
  const read = readConfig(process.env);
  if ("problems" in read) throw new Error(read.problems.join("\n"));
  const db = await openUsedDatabase(read.config);
  try {
    const report = await verifyLedger(db);
    if (process.argv.includes("--json")) console.log(JSON.stringify(report));
    else {
      for (const { check, message } of report.problems) console.log(`${check}: ${message}`);
      const { accounts, movements, entries, debts } = report;
      if (debts.count > 0) console.log(`${debts.count} debts, ${debts.points} points owed`);
      console.log(
        `${accounts} accounts, ${movements} movements, ${entries} entries: ${report.ok ? "all in order" : "NOT in order"}`,
      );
    }
    return report.ok ? 0 : 1;
  } finally {
    await db.close();
  }
}

process.exit(
  await main().catch((error: Error) => {
    console.error(`The ledger could not be checked: ${error.message}`);
    return 2;
  }),
);
