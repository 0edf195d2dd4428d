/**
 * `bun bench/browser/run.ts`: the browser tool beside three others, on the same browser and pages, in turns.
 * Installs the others and the widgets that they are tried on into .cache/, prints a table, and writes bench/results/browser.json.
 *
 * `--parts starts,actions,task,app,list,big,kills` measures some of it, and `--keep` adds that to what the file holds;
 * `--only <text>,…` takes the tools whose names contain one of the texts; `--rounds` and `--starts` say how often.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "../../scripts/lib/args.ts";
import { contestants, installDir, makeFiles, packages } from "./contestants.ts";
import { type Figures, newFigures, table } from "./figures.ts";
import { startFloor } from "./floor.ts";
import {
  measureActions,
  measureApp,
  measureBig,
  measureKills,
  measureList,
  measureStarts,
  measureTask,
  openSubjects,
  progress,
  type Subject,
} from "./measure.ts";
import { servePages } from "./pages.ts";
import { closeTool } from "./tool.ts";
import { widgetPackages } from "./widgets.ts";

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "30" },
    starts: { type: "string", default: "7" },
    parts: { type: "string", default: "starts,actions,task,app,list,big,kills" },
    only: { type: "string", default: "" },
    keep: { type: "boolean", default: false },
  },
});
const parts = new Set(flags.parts.split(","));
const root = join(import.meta.dir, "../..");
const resultsPath = join(root, "bench/results/browser.json");

async function install(): Promise<void> {
  mkdirSync(installDir, { recursive: true });
  await makeFiles();
  const wanted = [...packages, ...widgetPackages];
  const isThere = wanted.every((each) => {
    const name = each.slice(0, each.lastIndexOf("@"));
    return existsSync(join(installDir, "node_modules", name));
  });
  if (isThere) return;
  await Bun.write(join(installDir, "package.json"), '{"private":true}');
  console.log(`installing ${wanted.join(", ")}`);
  const { exitCode } = Bun.spawnSync(["npm", "install", "--no-audit", "--no-fund", ...wanted], {
    cwd: installDir,
  });
  if (exitCode !== 0)
    throw new Error(
      "npm could not install the other tools and the widgets; they are needed for the comparison.",
    );
}

function compile(): string | null {
  const path = join(installDir, "browser-tool");
  const build = [process.execPath, join(root, "scripts/build-browser.ts"), "--outfile", path];
  return Bun.spawnSync(build).exitCode === 0 ? path : null;
}

function kept(): Map<string, Figures> {
  if (!flags.keep || !existsSync(resultsPath)) return new Map();
  return new Map(Object.entries(JSON.parse(readFileSync(resultsPath, "utf8")) as Record<string, Figures>));
}

const load = () =>
  loadavg()
    .map((value) => value.toFixed(2))
    .join(" ");

async function measureOpen(
  subjects: Subject[],
  { url, floorFigures }: { url: string; floorFigures: Figures },
): Promise<void> {
  const open = await openSubjects(subjects, url);
  const floor = await startFloor(url);
  if (parts.has("actions")) await measureActions(open, { floor, floorFigures, rounds: Number(flags.rounds) });
  if (parts.has("task")) await measureTask(open, url);
  if (parts.has("app")) await measureApp(open, url);
  if (parts.has("list")) {
    await measureList(open, url);
    floorFigures.listMs.push((await floor.read(`${url}/list`)).ms);
  }
  if (parts.has("big")) {
    await measureBig(open, url);
    floorFigures.bigMs.push((await floor.read(`${url}/big`)).ms);
  }
  await floor.stop();
  for (const { tool } of open) await closeTool(tool);
}

await install();
const old = kept();
const list = contestants(compile()).filter(({ name }) =>
  flags.only.split(",").some((part) => name.includes(part)),
);
const site = servePages();
const subjects = list.map((contestant) => ({
  contestant,
  figures: old.get(contestant.name) ?? newFigures(),
}));
const floorFigures = old.get("bare CDP") ?? newFigures();
progress(`load before: ${load()}`);
if (parts.has("starts"))
  await measureStarts(subjects, { url: site.url, rounds: Number(flags.starts), floorFigures });
if (["actions", "task", "app", "list", "big"].some((part) => parts.has(part)))
  await measureOpen(subjects, { url: site.url, floorFigures });
if (parts.has("kills")) for (const subject of subjects) await measureKills(subject, site.url);
progress(`load after: ${load()}`);

const all = new Map(subjects.map(({ contestant, figures }) => [contestant.name, figures]));
all.set("bare CDP", floorFigures);
console.log(table(all));
mkdirSync(join(root, "bench/results"), { recursive: true });
await Bun.write(resultsPath, JSON.stringify(Object.fromEntries(all), null, 2));
await site.stop();
process.exit(0);
