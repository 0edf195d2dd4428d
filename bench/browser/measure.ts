/** The parts of the comparison. In each of them the tools take turns, so that a disturbance hits all alike. */
import { readdirSync } from "node:fs";
import type { Contestant } from "./contestants.ts";
import { allTasks, type Figures } from "./figures.ts";
import { type Floor, startFloor } from "./floor.ts";
import type { CommandLine, McpClient } from "./mcp-client.ts";
import { endAll, pidsOf, residentMegabytes } from "./processes.ts";
import { untilQuiet } from "./quiet.ts";
import { doTask, taskSteps } from "./task.ts";
import { closeTool, must, openTool, type RunningTool } from "./tool.ts";

const listRounds = 7;
const snapshotTimeoutMs = 25_000;
/** The browser alone takes seconds to lay the large page out; that is not what is measured. */
const loadTimeoutMs = 90_000;
/** Past this a second look at the large page tells nothing new. */
const slowMs = 3_000;
const orphanWaitMs = 2_000;
/** The browser draws 60 times a second. An action right after a frame always waits for a whole one. */
const pauseMsMax = 50;

export interface Subject {
  contestant: Contestant;
  figures: Figures;
}

export const progress = (text: string) => process.stderr.write(`${text}\n`);

/** Each round begins with another one, so that nobody always comes after the same neighbour. */
function rotated<T>(list: T[], by: number): T[] {
  const at = by % list.length;
  return [...list.slice(at), ...list.slice(0, at)];
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

function refOf(text: string, needle: string, { refPattern }: Contestant): string {
  const line = text.split("\n").find((each) => each.includes(needle)) ?? "";
  const match = refPattern.exec(line);
  const ref = match?.[1] ?? match?.[2];
  if (!ref) throw new Error(`no reference for ${needle} in: ${text.slice(0, 500)}`);
  return ref;
}

export async function measureStarts(
  subjects: Subject[],
  { url, rounds, floorFigures }: { url: string; rounds: number; floorFigures: Figures },
): Promise<void> {
  for (let i = 0; i < rounds; i++) {
    await untilQuiet();
    progress(`starts: round ${i + 1} of ${rounds}`);
    for (const { contestant, figures } of rotated(subjects, i)) {
      const tool = await openTool(contestant, url);
      figures.startMs.push(tool.startMs);
      await closeTool(tool);
    }
    const floor = await startFloor(url);
    floorFigures.startMs.push(floor.startMs);
    await floor.stop();
  }
}

/** The tools that stay open for actions and snapshots. */
export interface OpenSubject extends Subject {
  tool: RunningTool;
  button: string;
  field: string;
}

export async function openSubjects(subjects: Subject[], url: string): Promise<OpenSubject[]> {
  const opened: OpenSubject[] = [];
  for (const { contestant, figures } of subjects) {
    const tool = await openTool(contestant, url);
    figures.toolsBytes = (await tool.client.request("tools/list", {}, 30_000)).bytes;
    const text = must(await contestant.snapshot(tool.client), "snapshot");
    const button = refOf(text, "Press me", contestant);
    opened.push({ contestant, figures, tool, button, field: refOf(text, '"Name"', contestant) });
  }
  return opened;
}

/** An agent's actions come at any moment of a frame, so a pause of random length goes before each. */
const pause = () => Bun.sleep(Math.random() * pauseMsMax);

export async function measureActions(
  subjects: OpenSubject[],
  { floor, floorFigures, rounds }: { floor: Floor; floorFigures: Figures; rounds: number },
): Promise<void> {
  progress(`actions: ${rounds} rounds`);
  for (let i = 0; i < rounds; i++) {
    await untilQuiet();
    for (const { contestant, tool, figures, button, field } of rotated(subjects, i)) {
      const { client } = tool;
      await pause();
      figures.clickMs.push(await timed(async () => must(await contestant.click(client, button), "click")));
      await pause();
      figures.typeMs.push(
        await timed(async () => must(await contestant.type(client, field, `text ${i}`), "type")),
      );
      await pause();
      const read = async () => must(await contestant.evaluate(client, "() => document.title"), "evaluate");
      figures.evaluateMs.push(await timed(read));
    }
    for (const [ms, act] of [
      [floorFigures.clickMs, floor.click],
      [floorFigures.typeMs, floor.type],
      [floorFigures.evaluateMs, floor.evaluate],
    ] as const) {
      await pause();
      ms.push(await timed(act));
    }
  }
  for (const { tool, figures } of subjects) figures.memoryMb = residentMegabytes(pidsOf(tool.client).own);
}

export async function measureList(subjects: OpenSubject[], url: string): Promise<void> {
  for (const { contestant, tool } of subjects)
    must(await contestant.navigate(tool.client, `${url}/list`), "navigate");
  for (let i = 0; i < listRounds; i++) {
    await untilQuiet();
    progress(`list: round ${i + 1} of ${listRounds}`);
    for (const { contestant, tool, figures } of rotated(subjects, i)) {
      const ask = () => contestant.snapshot(tool.client, snapshotTimeoutMs);
      figures.listMs.push(
        await timed(async () => {
          figures.listChars = must(await ask(), "snapshot").length;
        }),
      );
    }
  }
}

/** The page that shows what is done at once, and the one that shows it later; with whole looks and with searches. */
export async function measureTask(subjects: OpenSubject[], url: string): Promise<void> {
  for (const [path, page] of [
    ["/orders", "at once"],
    ["/orders-late", "late"],
  ] as const)
    for (const looks of ["whole", "find"] as const)
      for (const { contestant, tool, figures } of subjects) {
        if (looks === "find" && !contestant.find) continue;
        await untilQuiet();
        progress(`task, ${page}, looks ${looks}: ${contestant.name}`);
        try {
          figures.tasks[`${page}, ${looks}`] = await doTask(contestant, tool.client, {
            url: url + path,
            looks,
            steps: taskSteps,
          });
        } catch (error) {
          figures.tasks[`${page}, ${looks}`] = (error as Error).message.slice(0, 200);
        }
      }
}

/** Short tasks on pages of an application and on widgets, each looked at in the way that costs the tool least. */
export async function measureApp(subjects: OpenSubject[], url: string): Promise<void> {
  for (const { name, path, steps } of allTasks)
    for (const { contestant, tool, figures } of subjects) {
      const { deeds } = contestant;
      if (!deeds) continue;
      progress(`app, ${name}: ${contestant.name}`);
      const looks = contestant.find ? "find" : "whole";
      const task = { url: `${url}/app/${path}`, looks, steps } as const;
      try {
        figures.app[name] = await doTask(contestant, tool.client, task);
      } catch (error) {
        figures.app[name] = (error as Error).message.slice(0, 200).replaceAll("\n", " ");
        progress(`  not solved: ${figures.app[name]}`);
      }
      if (steps.some(({ isInNewWindow }) => isInNewWindow)) await deeds.closeWindow(tool.client);
    }
}

/** One tool after the other: each has the large page for itself while it is looked at. */
export async function measureBig(subjects: OpenSubject[], url: string): Promise<void> {
  for (const { contestant, tool, figures } of subjects) {
    await untilQuiet();
    progress(`10 MB page: ${contestant.name}`);
    try {
      await load(contestant, tool.client, `${url}/big`);
      let text = "";
      while (figures.bigMs.length < 3 && (figures.bigMs[0] ?? 0) < slowMs) {
        const ask = async () => {
          text = must(await contestant.snapshot(tool.client, snapshotTimeoutMs), "snapshot");
        };
        figures.bigMs.push(await timed(ask));
      }
      figures.bigChars = text.length;
      figures.bigExpands = await expand(tool.client, text);
    } catch (error) {
      figures.bigNote = (error as Error).message.slice(0, 80);
    }
    endAll(pidsOf(tool.client).browsers);
  }
}

/** Follows the first mark of something left out, where the tool makes such marks. */
async function expand(client: McpClient, text: string): Promise<string> {
  const mark = /see browser_snapshot (\{[^}]*\})/.exec(text.replaceAll('\\"', '"'));
  if (!mark) return "no";
  const more = must(await client.call("browser_snapshot", JSON.parse(mark[1]!)), "expand");
  return more.includes("[ref=") ? "yes" : "no";
}

/** A navigation that ran out of the tool's own time has still brought the page, once it has loaded. */
async function load(contestant: Contestant, client: McpClient, url: string): Promise<void> {
  const reply = await contestant.navigate(client, url, loadTimeoutMs);
  if (!reply.isError) return;
  progress(`${contestant.name}: ${reply.text.slice(0, 100)}`);
  must(await contestant.evaluate(client, "() => document.readyState"), "load");
}

const shellQuoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** Who is killed: the tool itself, a shell that started it, or npm, which starts it through a shell. */
const victims: Record<string, (start: CommandLine) => CommandLine> = {
  tool: (start) => start,
  parent: (start) => ({
    ...start,
    command: "sh",
    args: ["-c", '"$@"; exit', "sh", start.command, ...start.args],
  }),
  npm: (start) => ({
    ...start,
    command: "npm",
    args: ["exec", "-c", [start.command, ...start.args].map(shellQuoted).join(" ")],
  }),
};

/** The client's end of the pipes stays open: only the kill tells the tool that it is over. */
export async function measureKills({ contestant, figures }: Subject, url: string): Promise<void> {
  progress(`kill: ${contestant.name}`);
  const left: string[] = [];
  for (const [whom, wrap] of Object.entries(victims)) {
    const tool = await openTool(contestant, url, wrap);
    const before = pidsOf(tool.client);
    tool.client.child.kill("SIGKILL");
    await Bun.sleep(orphanWaitMs);
    const { own, browsers } = pidsOf(tool.client);
    const files = readdirSync(tool.tempDir).length;
    if (browsers.length + files > 0)
      left.push(`${whom}: ${browsers.length} browser processes, ${files} temporary entries`);
    endAll([...before.own, ...before.browsers, ...own, ...browsers]);
    await closeTool(tool);
  }
  figures.leftAfterKill = left.join("; ") || "nothing";
}
