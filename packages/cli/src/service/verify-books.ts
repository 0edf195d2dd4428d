import { verifyLedger } from "@model-gateway/gateway/rooms/ledger/index.ts";
import { openUsedDatabase } from "@model-gateway/gateway/storage/index.ts";
import { CliError } from "../command.ts";
import type { Output } from "../output.ts";
import { serviceConfig } from "./migrate.ts";

/** Recomputes every balance of the service on this machine. */
export async function verifyBooks(output: Output): Promise<void> {
  const db = await openUsedDatabase(serviceConfig(process.env)).catch((error: Error) => {
    throw new CliError(error.message);
  });
  try {
    const report = await verifyLedger(db);
    output.result(report, () => [
      `${report.accounts} accounts, ${report.movements} movements, ${report.entries} entries recomputed`,
      ...(report.debts.count > 0 ? [`${report.debts.count} debts, ${report.debts.points} points owed`] : []),
      ...report.problems.map(({ check, message }) => `  ${check}: ${message}`),
      report.ok ? "Every balance follows from its entries" : "The ledger does not add up",
    ]);
    if (!report.ok) process.exitCode = 1;
  } finally {
    await db.close();
  }
}
