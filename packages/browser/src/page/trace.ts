/** A performance trace of one operation: what a person would look for in it, and the whole of it as a file. */
import type { Deadline } from "./deadline.ts";
import type { Page } from "./page.ts";

const categories = [
  "devtools.timeline",
  "disabled-by-default-devtools.timeline",
  "loading",
  "blink.user_timing",
  "v8.execute",
];
const longTaskMs = 50;
/** The browser tells of the largest paint some time after it. */
const tailMs = 300;
const listedMax = 5;
const urlCharsMax = 150;
const chunkBytes = 1024 * 1024;

interface TraceEvent {
  name: string;
  /** Microseconds, as is `dur`. */
  ts: number;
  dur?: number;
  tid: number;
  pid: number;
  args: {
    name?: string;
    data?: {
      url?: string;
      functionName?: string;
      requestId?: string;
      renderBlocking?: string;
      score?: number;
      had_recent_input?: boolean;
      isOutermostMainFrame?: boolean;
      size?: number;
      nodeName?: string;
      /** Of an event that the page was sent. */
      type?: string;
    };
  };
}

const ms = (microseconds: number) => `${Math.round(microseconds / 1_000)} ms`;

/** The slowest piece of work in a task, which says more than that there was one. */
function causeOf(task: TraceEvent, events: TraceEvent[]): string {
  const inside = events.filter(
    ({ tid, pid, ts, dur, name }) =>
      tid === task.tid &&
      pid === task.pid &&
      dur &&
      ts >= task.ts &&
      ts < task.ts + task.dur! &&
      name !== "RunTask",
  );
  const [most] = inside.toSorted((a, b) => b.dur! - a.dur!);
  const named = inside.find(({ name }) => /^(FunctionCall|EvaluateScript)$/.test(name))?.args.data;
  const where = named?.url ? ` (${named.functionName ?? ""} ${named.url.slice(0, urlCharsMax)})` : "";
  return `${most?.name ?? "task"} ${most?.args.data?.type ?? ""}${where}`.trimEnd();
}

/** At most some twenty lines. */
export function summaryOf(events: TraceEvent[]): string[] {
  const sorted = events.filter(({ ts }) => ts > 0).toSorted((a, b) => a.ts - b.ts);
  const named = (name: string) => sorted.filter((event) => event.name === name);
  const start = named("navigationStart").findLast(({ args }) => args.data?.isOutermostMainFrame);
  const startTs = start?.ts ?? sorted[0]?.ts ?? 0;
  const later = (name: string) => named(name).filter(({ ts }) => ts >= startTs);
  const paint = later("largestContentfulPaint::Candidate").at(-1);
  const firstPaint = later("firstContentfulPaint")[0];
  const shifts = later("LayoutShift").filter(({ args }) => !args.data?.had_recent_input);
  const shifted = shifts.reduce((sum, { args }) => sum + (args.data?.score ?? 0), 0);
  const mains = events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const tasks = named("RunTask")
    .filter(
      ({ tid, pid, dur = 0 }) =>
        dur > longTaskMs * 1_000 && mains.some((m) => m.tid === tid && m.pid === pid),
    )
    .toSorted((a, b) => b.dur! - a.dur!);
  const ends = new Map(named("ResourceFinish").map(({ args, ts }) => [args.data?.requestId, ts]));
  const blocking = later("ResourceSendRequest")
    .filter(({ args }) => args.data?.renderBlocking === "blocking")
    .map(({ args, ts }) => ({ url: args.data?.url ?? "", took: (ends.get(args.data?.requestId) ?? ts) - ts }))
    .toSorted((a, b) => b.took - a.took);
  return [
    ...(firstPaint ? [`first contentful paint: ${ms(firstPaint.ts - startTs)}`] : []),
    ...(paint
      ? [`largest contentful paint: ${ms(paint.ts - startTs)} ${paint.args.data?.nodeName ?? ""}`.trim()]
      : []),
    `layout shifts: ${shifts.length}, score ${shifted.toFixed(3)}`,
    `long tasks: ${tasks.length}${tasks.length ? `, ${ms(tasks.reduce((sum, { dur }) => sum + dur!, 0))} in all` : ""}`,
    ...tasks
      .slice(0, listedMax)
      .map((task) => `  ${ms(task.dur!)} at ${ms(task.ts - startTs)}: ${causeOf(task, sorted)}`),
    `requests that block drawing: ${blocking.length}`,
    ...blocking.slice(0, listedMax).map(({ url, took }) => `  ${ms(took)} ${url.slice(0, urlCharsMax)}`),
  ];
}

async function readAll({ session }: Page, handle: string, deadline: Deadline): Promise<string> {
  const parts: string[] = [];
  for (;;) {
    const { data, eof, base64Encoded } = await session.send(
      "IO.read",
      { handle, size: chunkBytes },
      deadline.leftMs,
    );
    parts.push(base64Encoded ? Buffer.from(data, "base64").toString() : data);
    if (eof) break;
  }
  session.tell("IO.close", { handle });
  return parts.join("");
}

/** Runs the work while the browser records what it does for the page. */
export async function traced<T>(
  page: Page,
  work: () => Promise<T>,
  deadline: Deadline,
): Promise<{ result: T; json: string; summary: string[] }> {
  const { session } = page;
  const traceConfig = { includedCategories: categories, excludedCategories: ["*"] };
  await session.send("Tracing.start", { transferMode: "ReturnAsStream", traceConfig }, deadline.leftMs);
  const ended = new Promise<string>((resolve) => {
    const off = session.on("Tracing.tracingComplete", ({ stream }) => {
      off();
      resolve(stream ?? "");
    });
  });
  let result: T;
  try {
    result = await work();
    await Bun.sleep(tailMs);
  } finally {
    session.tell("Tracing.end");
  }
  const json = await readAll(page, await ended, deadline);
  const { traceEvents } = JSON.parse(json) as { traceEvents: TraceEvent[] };
  return { result, json, summary: summaryOf(traceEvents) };
}
