/** Checks that the map in docs/ARCHITECTURE.md shows the folders that there are. */
import { join } from "node:path";
import { mapProblems } from "./lib/map.ts";

const root = join(import.meta.dir, "..");
const markdown = await Bun.file(join(root, "docs/ARCHITECTURE.md")).text();
const { stdout } = Bun.spawnSync(["git", "ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
});
const files = stdout.toString().trim().split("\n");
const exists = new Set<string>();
for (const file of files) {
  if (!(await Bun.file(join(root, file)).exists())) continue;
  exists.add(file);
  for (let at = file.indexOf("/"); at !== -1; at = file.indexOf("/", at + 1))
    exists.add(file.slice(0, at + 1));
}

const problems = mapProblems(markdown, exists);
if (problems.length > 0) {
  console.error(problems.map((problem) => `docs/ARCHITECTURE.md: ${problem}`).join("\n"));
  process.exit(1);
}
