/**
 * `npm run bench`: this gateway, Portkey's, claude-code-router, nginx as a plain proxy and the least that this runtime
 * can do, in one run, taking turns, so that whatever else the machine does hits all of them. Prints a table and writes JSON to
 * bench/results/.
 *
 *   --quick              a fraction of the time, for a first look
 *   --only chat,streams  some groups: chat latency ttft quiet prompt agents session embeddings streams voices translated verbatim board rpc idle start growth soak sharing workers cores tunnel
 *                        (tunnel: BENCH_ENGINE="bun front.ts" is started with a port and a model id, instead of a clock)
 *   --continue <file>    goes on with a run that was interrupted, from its file in bench/results/; with --only, these
 *                        groups are measured anew
 *   --write-docs         also writes the tables and charts of docs/performance.md and docs/scaling.md
 */
import "../scripts/lib/help.ts";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "../scripts/lib/args.ts";
import { writeDocs } from "./docs/write.ts";
import type { Bench } from "./lib/bench.ts";
import { type Figure, format, type Measured, type Results } from "./lib/figures.ts";
import { startGateway } from "./lib/gateway.ts";
import { startPortkey } from "./lib/portkey.ts";
import { startServer, stopAll } from "./lib/processes.ts";
import { startRouter } from "./lib/router.ts";
import { startBareProxy, startNginx, type Target } from "./lib/targets.ts";
import { rows } from "./rows/index.ts";

const ROUNDS = 3;
const QUICK_SCALE = 1 / 5;
/** Tokens of a stream. */
const CHUNKS = { whole: 60, quick: 20 };
const resultsDir = join(import.meta.dir, "results");

const { values: flags } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    continue: { type: "string" },
    "write-docs": { type: "boolean", default: false },
  },
});
const groups = [...new Set(rows.map(({ group }) => group))];
const only = flags.only?.split(",") ?? groups;
const unknown = only.filter((group) => !groups.includes(group));
if (unknown.length > 0) {
  console.error(`--only: no such group: ${unknown.join(", ")}; there are ${groups.join(", ")}`);
  process.exit(1);
}
if (flags["write-docs"] && (flags.quick || flags.only)) {
  console.error("--write-docs takes a whole run: leave --quick and --only out");
  process.exit(1);
}

const chunks = flags.quick ? CHUNKS.quick : CHUNKS.whole;

async function startTargets(upstreamPort: number, missing: string[]): Promise<Bench> {
  const nginx = await startNginx(upstreamPort);
  if (!nginx) missing.push("nginx: it is not installed");
  const bare = await startBareProxy(upstreamPort);
  const parsing = await startBareProxy(upstreamPort, "parsing");
  const orMissing = (name: string, starting: Promise<Target>) =>
    starting.catch((error: Error) => {
      missing.push(`${name}: ${error.message}`);
      return null;
    });
  const portkey = await orMissing("Portkey's gateway", startPortkey(upstreamPort));
  const router = await orMissing("claude-code-router", startRouter(upstreamPort));
  const gateway = await startGateway({ upstreamPort, name: "gateway" });
  return {
    targets: [nginx, bare, parsing, portkey, router, gateway].filter(
      (target): target is Target => target !== null,
    ),
    gateway,
    upstreamPort,
    quick: flags.quick,
    chunks,
    rounds: flags.quick ? 1 : ROUNDS,
    scale: (count) => (flags.quick ? Math.ceil(count * QUICK_SCALE) : count),
  };
}

const COLUMNS: readonly Measured[] = [
  "direct",
  "nginx",
  "bare",
  "bareAgain",
  "parsing",
  "portkey",
  "router",
  "gateway",
  "points",
  "tunnel",
  "postgres",
  "redis",
];

function printTable(figures: readonly Figure[]): void {
  const columns = COLUMNS.filter((column) => figures.some(({ values }) => values[column] !== undefined));
  console.table(figures.map((figure) => tableRow(figure, columns)));
}

function tableRow({ name, unit, values }: Figure, columns: readonly Measured[]): Record<string, string> {
  const cells = columns.map((column) => [
    column,
    values[column] === undefined ? "" : `${format(values[column])} ${unit}`,
  ]);
  const ratio = values.bare && values.gateway ? `${(values.gateway / values.bare).toFixed(2)} x` : "";
  return { what: name, ...Object.fromEntries(cells), ...(ratio && { "gateway of bare": ratio }) };
}

const load = () => loadavg()[0]!;
const machine = {
  cpu: cpus()[0]?.model ?? "unknown",
  cores: cpus().length,
  bun: Bun.version,
  loadBefore: load(),
  loadAfter: 0,
};

/** What an interrupted run has measured counts only beside figures of the same machine. */
function readInterrupted(file: string): Results {
  const earlier = JSON.parse(readFileSync(file, "utf8")) as Results;
  const isSame = (["cpu", "cores", "bun"] as const).every((key) => earlier.machine[key] === machine[key]);
  if (!isSame || earlier.quick !== flags.quick) {
    console.error(
      `--continue: ${file} is of another machine, of another Bun, or of a run with other options`,
    );
    process.exit(1);
  }
  return earlier;
}

const results: Results = flags.continue
  ? { ...readInterrupted(flags.continue), missing: [] }
  : { takenAt: new Date().toISOString(), quick: flags.quick, machine, missing: [], figures: [] };
const measured = new Set(flags.only ? [] : results.figures.map(({ group }) => group));
const resultsFile = join(resultsDir, `${results.takenAt.replaceAll(":", "-")}.json`);

/** After each group, so that an interruption loses one at most. */
function save(): void {
  results.machine.loadAfter = load();
  mkdirSync(resultsDir, { recursive: true });
  writeFileSync(resultsFile, `${JSON.stringify(results, null, 2)}\n`);
}

try {
  const upstream = await startServer("upstream.ts", [], { CHUNKS: String(chunks) });
  const bench = await startTargets(upstream.port, results.missing);
  for (const line of results.missing) console.log(`left out: ${line}`);
  for (const group of only.filter((each) => !measured.has(each))) {
    const startedMs = performance.now();
    const figures: Figure[] = [];
    for (const row of rows.filter((each) => each.group === group))
      figures.push(...(await row.measure(bench)));
    results.figures = [...results.figures.filter((figure) => figure.group !== group), ...figures].sort(
      (one, other) => groups.indexOf(one.group) - groups.indexOf(other.group),
    );
    save();
    console.log(`${group}: ${Math.round((performance.now() - startedMs) / 1_000)} s`);
    printTable(figures);
  }
} finally {
  await stopAll();
  console.log(`written to ${resultsFile}`);
}
printTable(results.figures);
if (flags["write-docs"]) writeDocs(results);
process.exit(0);
