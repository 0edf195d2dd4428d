/** What is measured of each tool, and the table that is made of it. */

import { type AppTask, appTasks } from "./app.ts";
import type { TaskOutcome } from "./task.ts";
import { widgetTasks } from "./widgets.ts";

export const allTasks: AppTask[] = [...appTasks, ...widgetTasks];

export interface Figures {
  startMs: number[];
  clickMs: number[];
  typeMs: number[];
  evaluateMs: number[];
  listMs: number[];
  listChars: number;
  bigMs: number[];
  bigChars: number;
  bigNote: string;
  /** Whether what did not fit into a snapshot is named in it, with the way to see it. */
  bigExpands: string;
  /** The twenty-step task by variant: what it took, or why it was not finished. */
  tasks: Record<string, TaskOutcome | string>;
  /** The tasks on the application by name. */
  app: Record<string, TaskOutcome | string>;
  toolsBytes: number;
  memoryMb: number;
  leftAfterKill: string;
}

export const newFigures = (): Figures => ({
  startMs: [],
  clickMs: [],
  typeMs: [],
  evaluateMs: [],
  listMs: [],
  listChars: 0,
  bigMs: [],
  bigChars: 0,
  bigNote: "",
  bigExpands: "",
  tasks: {},
  app: {},
  toolsBytes: 0,
  memoryMb: 0,
  leftAfterKill: "",
});

/** For all tools alike: what a common tokenizer makes of snapshots, on average. */
const charsPerToken = 3.3;

const quantile = (values: number[], share: number) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))]!;
const rounded = (value: number) => (value < 20 ? value.toFixed(1) : value.toFixed(0));
const ms = (values: number[]) => (values.length === 0 ? "-" : rounded(quantile(values, 0.5)));
const spread = (values: number[]) =>
  values.length === 0 ? "-" : `${rounded(quantile(values, 0))} to ${rounded(quantile(values, 0.95))}`;
const tokens = (chars: number) => (chars === 0 ? "-" : `${(chars / charsPerToken / 1_000).toFixed(1)}k`);

function taskCell(task: TaskOutcome | string | undefined): string {
  if (task === undefined) return "-";
  if (typeof task === "string") return task;
  return `${(task.chars / 1_000).toFixed(1)}k, ${task.calls}, ${task.ms.toFixed(0)}`;
}

const isSolved = (task: TaskOutcome | string | undefined) => typeof task === "object";

/** How many were solved, and what those took that all of these tools solved. */
function appCell(tasks: AppTask[], { app }: Figures, tools: Figures[]): string {
  const solved = tasks.filter(({ name }) => isSolved(app[name]));
  const common = tasks.filter(({ name }) => tools.every((each) => isSolved(each.app[name])));
  const sum = (pick: (task: TaskOutcome) => number) =>
    common.reduce((total, { name }) => total + pick(app[name] as TaskOutcome), 0);
  if (Object.keys(app).length === 0) return "-";
  return `${solved.length} of ${tasks.length}; the ${common.length} that all solved: ${sum(({ calls }) => calls)} calls, ${sum(({ chars }) => chars)} characters`;
}

const rows: [string, (f: Figures, all: Figures[]) => string][] = [
  ["start → first page, ms", (f) => ms(f.startMs)],
  ["  least to p95", (f) => spread(f.startMs)],
  ["click → result, ms", (f) => ms(f.clickMs)],
  ["  least to p95", (f) => spread(f.clickMs)],
  ["type → result, ms", (f) => ms(f.typeMs)],
  ["  least to p95", (f) => spread(f.typeMs)],
  ["evaluate, ms", (f) => ms(f.evaluateMs)],
  ["  least to p95", (f) => spread(f.evaluateMs)],
  ["snapshot 3,000 items, ms", (f) => ms(f.listMs)],
  ["  least to p95", (f) => spread(f.listMs)],
  ["  its tokens", (f) => tokens(f.listChars)],
  ["snapshot 10 MB page, ms", (f) => f.bigNote || ms(f.bigMs)],
  ["  its tokens", (f) => tokens(f.bigChars)],
  ["  the rest can be asked for", (f) => f.bigExpands || "-"],
  ...["at once, whole", "at once, find", "late, whole", "late, find"].map(
    (variant): [string, (f: Figures) => string] => [
      `20-step task, ${variant}: characters, calls, ms`,
      (f) => taskCell(f.tasks[variant]),
    ],
  ),
  ["tasks on an application", (f, all) => appCell(appTasks, f, all)],
  ["widgets", (f, all) => appCell(widgetTasks, f, all)],
  ...allTasks.map(({ name }): [string, (f: Figures) => string] => [
    `  ${name}: characters, calls, ms`,
    (f) => taskCell(f.app?.[name]),
  ]),
  ["tools/list, bytes", (f) => (f.toolsBytes ? String(f.toolsBytes) : "-")],
  ["own memory, MB", (f) => (f.memoryMb ? f.memoryMb.toFixed(0) : "-")],
  ["left 2 s after SIGKILL", (f) => f.leftAfterKill || "-"],
];

export function table(all: Map<string, Figures>): string {
  const names = [...all.keys()];
  const lines = [`| p50 | ${names.join(" | ")} |`, `|---|${names.map(() => "---|").join("")}`];
  // Who was not given the tasks has no say in which of them all have solved.
  const tools = [...all.values()].filter(({ app }) => Object.keys(app).length > 0);
  for (const [label, cell] of rows)
    lines.push(`| ${label} | ${names.map((name) => cell(all.get(name)!, tools)).join(" | ")} |`);
  return lines.join("\n");
}
