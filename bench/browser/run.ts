/**
 * `bun bench/browser/run.ts`: the browser tool beside three others, on the same browser and pages, in turns.
 * Installs the others into .cache/, prints a table, and writes bench/results/browser.json.
 */
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Contestant, contestants, installDir, packages } from "./contestants.ts";
import { type Floor, startFloor } from "./floor.ts";
import { McpClient } from "./mcp-client.ts";
import { servePages } from "./pages.ts";
import { browsersOf, endAll, ownPids, residentMegabytes } from "./processes.ts";

const { values: flags } = parseArgs({
  options: { rounds: { type: "string", default: "30" }, starts: { type: "string", default: "5" } },
});
const rounds = Number(flags.rounds);
const starts = Number(flags.starts);
const snapshotTimeoutMs = 25_000;
/** The browser alone takes seconds to lay the large page out; that is not what is measured. */
const loadTimeoutMs = 90_000;
/** Past this a second look at the large page tells nothing new. */
const slowMs = 3_000;
const orphanWaitMs = 2_000;
/** For all tools alike: what a common tokenizer makes of snapshots, on average. */
const charsPerToken = 3.3;

const root = join(import.meta.dir, "../..");

interface Figures {
  startMs: number[];
  clickMs: number[];
  typeMs: number[];
  evaluateMs: number[];
  listMs: number[];
  listChars: number;
  bigMs: number[];
  bigChars: number;
  bigNote: string;
  toolsBytes: number;
  memoryMb: number;
  leftAfterKill: string;
}

const newFigures = (): Figures => ({
  startMs: [],
  clickMs: [],
  typeMs: [],
  evaluateMs: [],
  listMs: [],
  listChars: 0,
  bigMs: [],
  bigChars: 0,
  bigNote: "",
  toolsBytes: 0,
  memoryMb: 0,
  leftAfterKill: "",
});

const progress = (text: string) => process.stderr.write(`${text}\n`);

async function install(): Promise<void> {
  mkdirSync(installDir, { recursive: true });
  const isThere = packages.every((each) => {
    const name = each.slice(0, each.lastIndexOf("@"));
    return existsSync(join(installDir, "node_modules", name));
  });
  if (isThere) return;
  await Bun.write(join(installDir, "package.json"), '{"private":true}');
  console.log(`installing ${packages.join(", ")}`);
  const { exitCode } = Bun.spawnSync(["npm", "install", "--no-audit", "--no-fund", ...packages], {
    cwd: installDir,
  });
  if (exitCode !== 0)
    throw new Error("npm could not install the other tools; they are needed for the comparison.");
}

function compile(): string | null {
  const path = join(installDir, "browser-tool");
  const { exitCode } = Bun.spawnSync([
    process.execPath,
    join(root, "scripts/build-browser.ts"),
    "--outfile",
    path,
  ]);
  return exitCode === 0 ? path : null;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

function must(reply: { isError: boolean; text: string }, what: string): string {
  if (reply.isError) throw new Error(`${what}: ${reply.text.slice(0, 300)}`);
  return reply.text;
}

async function open(contestant: Contestant, url: string): Promise<{ client: McpClient; ms: number }> {
  const from = performance.now();
  const client = new McpClient(contestant.start);
  await client.initialize();
  must(await contestant.navigate(client, url), `${contestant.name} navigate`);
  return { client, ms: performance.now() - from };
}

async function close(client: McpClient): Promise<void> {
  const own = ownPids(client.child.pid!);
  client.child.stdin!.end();
  await Promise.race([new Promise((resolve) => client.child.once("exit", resolve)), Bun.sleep(3_000)]);
  endAll([...own, ...browsersOf(client.mark)]);
}

function refOf(text: string, needle: string, { refPattern }: Contestant): string {
  const line = text.split("\n").find((each) => each.includes(needle)) ?? "";
  const match = refPattern.exec(line);
  const ref = match?.[1] ?? match?.[2];
  if (!ref) throw new Error(`no reference for ${needle} in: ${text.slice(0, 500)}`);
  return ref;
}

interface Open {
  contestant: Contestant;
  client: McpClient;
  figures: Figures;
  button: string;
  field: string;
}

async function measureStarts(
  list: Contestant[],
  all: Map<string, Figures>,
  floorStarts: number[],
  url: string,
) {
  for (let i = 0; i < starts; i++) {
    progress(`starts: round ${i + 1} of ${starts}`);
    for (const contestant of list) {
      const { client, ms } = await open(contestant, url);
      all.get(contestant.name)!.startMs.push(ms);
      await close(client);
    }
    const floor = await startFloor(url);
    floorStarts.push(floor.startMs);
    await floor.stop();
  }
}

async function measureActions(tools: Open[], floor: Floor, floorFigures: Figures): Promise<void> {
  progress(`actions: ${rounds} rounds`);
  for (let i = 0; i < rounds; i++) {
    for (const { contestant, client, figures, button, field } of tools) {
      figures.clickMs.push(await timed(async () => must(await contestant.click(client, button), "click")));
      figures.typeMs.push(
        await timed(async () => must(await contestant.type(client, field, `text ${i}`), "type")),
      );
      const read = async () => must(await contestant.evaluate(client, "() => document.title"), "evaluate");
      figures.evaluateMs.push(await timed(read));
    }
    floorFigures.clickMs.push(await timed(floor.click));
    floorFigures.typeMs.push(await timed(floor.type));
    floorFigures.evaluateMs.push(await timed(floor.evaluate));
  }
}

async function measureSnapshots({ contestant, client, figures }: Open, url: string): Promise<void> {
  progress(`snapshots: ${contestant.name}`);
  must(await contestant.navigate(client, `${url}/list`), "navigate");
  for (let i = 0; i < 5; i++) {
    figures.listMs.push(
      await timed(async () => {
        figures.listChars = must(await contestant.snapshot(client, snapshotTimeoutMs), "snapshot").length;
      }),
    );
  }
  figures.memoryMb = residentMegabytes(ownPids(client.child.pid!));
  try {
    await load(contestant, client, `${url}/big`);
    while (figures.bigMs.length < 3 && (figures.bigMs[0] ?? 0) < slowMs) {
      figures.bigMs.push(
        await timed(async () => {
          figures.bigChars = must(await contestant.snapshot(client, snapshotTimeoutMs), "snapshot").length;
        }),
      );
    }
  } catch (error) {
    figures.bigNote = (error as Error).message.slice(0, 80);
  }
}

/** A navigation that ran out of the tool's own time has still brought the page, once it has loaded. */
async function load(contestant: Contestant, client: McpClient, url: string): Promise<void> {
  const reply = await contestant.navigate(client, url, loadTimeoutMs);
  if (!reply.isError) return;
  progress(`${contestant.name}: ${reply.text.slice(0, 100)}`);
  must(await contestant.evaluate(client, "() => document.readyState"), "load");
}

/** Started by a shell that is then killed, with the client's end of the pipes still open. */
async function measureOrphans(contestant: Contestant, url: string): Promise<string> {
  progress(`kill: ${contestant.name}`);
  const left: string[] = [];
  for (const whom of ["tool", "parent"] as const) {
    const { command, args } = contestant.start;
    const wrapped =
      whom === "parent"
        ? { ...contestant.start, command: "sh", args: ["-c", '"$@"; exit', "sh", command, ...args] }
        : contestant.start;
    const { client } = await open({ ...contestant, start: wrapped }, url);
    const own = ownPids(client.child.pid!);
    client.child.kill("SIGKILL");
    await Bun.sleep(orphanWaitMs);
    const browsers = browsersOf(client.mark);
    if (browsers.length > 0) left.push(`${whom}: ${browsers.length} browser processes`);
    endAll([...own, ...browsers]);
  }
  return left.join("; ") || "nothing";
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
const ms = (values: number[]) =>
  values.length === 0 ? "-" : median(values) < 20 ? median(values).toFixed(1) : median(values).toFixed(0);
const tokens = (chars: number) => (chars === 0 ? "-" : `${(chars / charsPerToken / 1_000).toFixed(1)}k`);

function table(all: Map<string, Figures>): string {
  const rows: [string, (f: Figures) => string][] = [
    ["start → first page, ms", (f) => ms(f.startMs)],
    ["click → result, ms", (f) => ms(f.clickMs)],
    ["type → result, ms", (f) => ms(f.typeMs)],
    ["evaluate, ms", (f) => ms(f.evaluateMs)],
    ["snapshot 3,000 items, ms", (f) => ms(f.listMs)],
    ["  its tokens", (f) => tokens(f.listChars)],
    ["snapshot 10 MB page, ms", (f) => f.bigNote || ms(f.bigMs)],
    ["  its tokens", (f) => tokens(f.bigChars)],
    ["tools/list, bytes", (f) => (f.toolsBytes ? String(f.toolsBytes) : "-")],
    ["own memory, MB", (f) => (f.memoryMb ? f.memoryMb.toFixed(0) : "-")],
    ["left 2 s after SIGKILL", (f) => f.leftAfterKill || "-"],
  ];
  const names = [...all.keys()];
  const lines = [`| p50 | ${names.join(" | ")} |`, `|---|${names.map(() => "---|").join("")}`];
  for (const [label, cell] of rows)
    lines.push(`| ${label} | ${names.map((name) => cell(all.get(name)!)).join(" | ")} |`);
  return lines.join("\n");
}

await install();
const list = contestants(compile());
const site = servePages();
const all = new Map(list.map(({ name }) => [name, newFigures()]));
const floorFigures = newFigures();
all.set("bare CDP", floorFigures);

await measureStarts(list, all, floorFigures.startMs, site.url);

const tools: Open[] = [];
for (const contestant of list) {
  const { client } = await open(contestant, site.url);
  const figures = all.get(contestant.name)!;
  figures.toolsBytes = (await client.request("tools/list", {}, 30_000)).bytes;
  const text = must(await contestant.snapshot(client), "snapshot");
  tools.push({
    contestant,
    client,
    figures,
    button: refOf(text, "Press me", contestant),
    field: refOf(text, '"Name"', contestant),
  });
}
const floor = await startFloor(site.url);
await measureActions(tools, floor, floorFigures);
for (const tool of tools) await measureSnapshots(tool, site.url);
const listRead = await floor.read(`${site.url}/list`);
floorFigures.listMs.push(listRead.ms);
const bigRead = await floor.read(`${site.url}/big`);
floorFigures.bigMs.push(bigRead.ms);
await floor.stop();
for (const { client } of tools) await close(client);
for (const contestant of list)
  all.get(contestant.name)!.leftAfterKill = await measureOrphans(contestant, site.url);

console.log(table(all));
mkdirSync(join(root, "bench/results"), { recursive: true });
await Bun.write(join(root, "bench/results/browser.json"), JSON.stringify(Object.fromEntries(all), null, 2));
await site.stop();
process.exit(0);
