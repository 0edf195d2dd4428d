/**
 * `npm run sbom`: the bill of materials, as CycloneDX JSON, from package-lock.json. Ends with code 1 when something
 * is pinned without a hash, shipped under a licence that was not agreed on, or runs a script when it is installed.
 *
 *   --licences   which licence covers what, instead
 */
import "./lib/help.ts";
import { join } from "node:path";
import { componentsOf, cycloneDx, type Lock, licenceTable, problemsOf } from "./lib/sbom.ts";

const lock = (await Bun.file(join(import.meta.dir, "..", "package-lock.json")).json()) as Lock;
const components = componentsOf(lock);
const isTable = process.argv.includes("--licences");
process.stdout.write(isTable ? licenceTable(components) : `${JSON.stringify(cycloneDx(lock), null, 2)}\n`);
const problems = problemsOf(components);
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exitCode = 1;
}
