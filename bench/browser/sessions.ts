/** `bun bench/browser/sessions.ts`: memory of twenty sessions in one browser beside that of twenty tabs. */
import { readFileSync } from "node:fs";
import { startSite, startTool } from "../../packages/browser/tests/helpers.ts";
import { pidsOf } from "./processes.ts";

const count = 20;
const rounds = 2;
const settleMs = 3_000;

/** Proportional: what processes share is counted once. */
function browserMegabytes(): number {
  const { browsers } = pidsOf({ child: { pid: process.pid }, mark: `no-mark-${process.pid}` });
  const kilobytes = browsers.map((pid) => {
    try {
      return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1] ?? 0);
    } catch {
      return 0;
    }
  });
  return Math.round(kilobytes.reduce((sum, each) => sum + each, 0) / 1_024);
}

const items = "<li><a href='/x'>An item with some text</a></li>".repeat(300);
const site = startSite({ "/": `<title>List</title><ul>${items}</ul>` });
for (let round = 0; round < rounds; round++)
  for (const kind of ["tabs", "sessions"] as const) {
    const tool = startTool();
    await tool.post("/navigate", { url: site.url });
    const oneMegabytes = browserMegabytes();
    for (let index = 0; index < count; index++) {
      if (kind === "tabs") await (await tool.session.browser()).newPage();
      const session = kind === "sessions" ? `s${index}` : undefined;
      await tool.post("/navigate", { url: site.url, session });
    }
    await Bun.sleep(settleMs);
    console.log(`${kind}: ${browserMegabytes()} MB with ${count} more than one page's ${oneMegabytes} MB`);
    await tool.stop();
  }
await site.stop();
