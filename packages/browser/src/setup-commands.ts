/** The commands that look at browsers and libraries without starting any: doctor, fetch, deps, bundle. */
import { bundleLibraries, renderBundleReport, renderScan, scanDependencies } from "./bundle/index.ts";
import { ToolError } from "./errors.ts";
import { doctor, fetchForBuild, renderDoctor } from "./resolve/index.ts";
import { progressLines } from "./resolve/progress.ts";

export interface SetupArguments {
  command: string;
  operand: string | undefined;
  backend: string | undefined;
  json: boolean;
}

export const setupCommands = ["doctor", "fetch", "deps", "bundle"];

function print(value: unknown, text: string, json: boolean): void {
  console.log(json ? JSON.stringify(value, null, 2) : text);
}

/** Returns the exit code: 0 when all is well, 1 when something is missing. */
export async function runSetupCommand({ command, operand, backend, json }: SetupArguments): Promise<number> {
  const { env } = process;
  if (command === "doctor") {
    const report = await doctor({ env, backend });
    print(report, renderDoctor(report), json);
    return report.ok ? 0 : 1;
  }
  if (command === "fetch") {
    // On stderr, so that a script that reads the path sees nothing else.
    const onProgress = progressLines((line) => process.stderr.write(`${line}\n`));
    const fetched = await fetchForBuild({ env, outDir: operand, onProgress });
    const text = fetched.skipped
      ? "skipped: BROWSER_SKIP_BROWSER_FETCH is set"
      : `${fetched.path} (${fetched.version})`;
    print(fetched, text, json);
    return 0;
  }
  if (command === "deps") {
    if (!operand) throw new ToolError("invalid_request", "deps needs the path of a binary or library.");
    const scan = scanDependencies(operand, { env });
    print(scan, renderScan(scan), json);
    return 0;
  }
  const report = await bundleLibraries({ env, outDir: operand });
  print(report, renderBundleReport(report), json);
  return report.ok ? 0 : 1;
}
