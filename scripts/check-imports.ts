/**
 * Checks the import direction of the house: wire, protocol <- kernel <- contracts <- rooms <- app. Rooms meet only
 * through each other's index.ts and without cycles, also where they reach each other through a call's `rooms` or
 * through what the wiring hands them. Each violation is printed with the rule that it breaks.
 *
 *   --graph   prints which room uses which
 */
import { join } from "node:path";
import { Glob } from "bun";
import { importProblems, roomGraph, unwiredRooms, WIRING } from "./lib/imports.ts";

const root = join(import.meta.dir, "..");
const sources = new Map<string, string>();
for await (const file of new Glob("packages/*/src/**/*.{ts,tsx}").scan(root))
  sources.set(file, await Bun.file(join(root, file)).text());

if (process.argv.includes("--graph"))
  for (const [room, others] of roomGraph(sources)) console.log(`${room}: ${[...others].sort().join(", ")}`);

const problems = importProblems(sources);
for (const room of unwiredRooms(sources))
  problems.push(`${WIRING} has no "const ${room} = …": what the room is handed cannot be checked`);
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
